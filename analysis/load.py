"""Run folders into one table: what belongs together is pooled, what does not is refused in one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis import table
from analysis.latency import with_latencies
from analysis.ragged import Floats
from analysis.steps import Gaps, delivery_gaps, with_steps
from analysis.table import Requests
from loadtest import records
from loadtest.records import RunInfo
from tierscope.errors import BadInputError

MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """Run folders read back. ``requests`` holds all of them, ``gaps`` the gaps between their deliveries; row i
    of both is the same request. ``notes`` says what could not be read.
    """

    folders: tuple[Path, ...]
    infos: tuple[RunInfo, ...]
    requests: Requests
    gaps: Gaps
    notes: list[str]


def load(folders: Sequence[Path]) -> Loaded:
    """Read run folders of one target and one set of tiers.

    Raises BadInputError if one is no run folder or of an unknown version, if they do not belong together, or
    if nothing at all was recorded in them.
    """
    if not folders:
        raise BadInputError("no run folder was given; expected at least one")
    _refuse_twice(folders)
    infos: list[RunInfo] = []
    parts: list[Requests] = []
    notes: list[str] = []
    for number, folder in enumerate(folders):
        info, part, said = _read(folder, number)
        infos.append(info)
        parts.append(part)
        prefix = f"{folder.name}: " if len(folders) > 1 else ""
        notes += [prefix + note for note in said]
        if not len(part):
            notes.append(f"{prefix}no request was recorded")
    _refuse_strangers(folders, infos)
    if not any(len(part) for part in parts):
        names = ", ".join(str(folder) for folder in folders)
        raise BadInputError(f"{names}: no request was recorded; there is nothing to analyse")
    requests = with_latencies(table.concatenate(parts))
    requests = requests.in_order(_order(requests))
    gaps = delivery_gaps(requests)
    return Loaded(tuple(folders), tuple(infos), with_steps(requests, gaps), gaps, _bounded(notes))


def _read(folder: Path, number: int) -> tuple[RunInfo, Requests, list[str]]:
    run = records.read_run(folder)
    return run.info, table.from_records(run.records, number), run.notes


def _order(requests: Requests) -> Floats:
    """Rank of each request: by run, then by the instant of sending (or of when it should have been sent)."""
    sent = requests.column("sent_at_s")
    at = np.where(np.isfinite(sent), sent, requests.column("scheduled_at_s"))
    rank = np.empty(len(requests))
    rank[np.lexsort((requests.column("index"), at, requests.column("run")))] = np.arange(len(requests))
    return rank


def _bounded(notes: list[str]) -> list[str]:
    if len(notes) <= MOST_NOTES:
        return notes
    return [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more notes like these"]


def _refuse_twice(folders: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise BadInputError(f"{folder}: is given twice; each run folder counts once")
        seen.add(folder.resolve())


def _refuse_strangers(folders: Sequence[Path], infos: Sequence[RunInfo]) -> None:
    """Pool only runs of the same target, tiers and questions."""
    first = infos[0]
    for folder, info in zip(folders[1:], infos[1:], strict=True):
        for what, ours, theirs in (
            ("url", first.target.url, info.target.url),
            ("model", first.target.model, info.target.model),
            ("tiers", [tier.name for tier in first.plan.tiers], [tier.name for tier in info.plan.tiers]),
            ("tier settings", first.plan.tiers, info.plan.tiers),
            ("simulated", first.simulated, info.simulated),
        ):
            if ours != theirs:
                raise BadInputError(
                    f"{folder}: {what}: {_brief(theirs)} differs from {_brief(ours)} in {folders[0]}; "
                    f"runs are pooled only if they belong together"
                )


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
