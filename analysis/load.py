"""Run folders into one table: what belongs together is pooled, what does not is refused in one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis import deliveries, table
from analysis.deliveries import Gaps
from analysis.latency import with_latencies
from analysis.lengths import with_classes
from analysis.ragged import Bools, Ints
from analysis.sources.source import Source
from analysis.steps import with_steps
from analysis.table import Requests
from loadtest import parquet, records
from loadtest.records import PARQUET_FILE, RunInfo
from tierscope.errors import BadInputError

MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """Run folders read back: one table of all requests, in order of sending within each run.

    ``step_gaps`` are the gaps between deliveries as steps made them, ``token_gaps`` as inter-token latency
    counts them; row i of both is the same request. ``notes`` says what could not be read. ``sources`` are
    those of files that other tools made, none for run folders; ``apart`` says why tiers cannot be compared.
    """

    folders: tuple[Path, ...]
    infos: tuple[RunInfo, ...]
    requests: Requests
    step_gaps: Gaps
    token_gaps: Gaps
    notes: list[str]
    sources: tuple[Source, ...] = ()
    apart: str | None = None


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
    _refuse_copies(folders, infos)
    if not any(len(part) for part in parts):
        names = ", ".join(str(folder) for folder in folders)
        raise BadInputError(f"{names}: no request was recorded; there is nothing to analyse")
    return from_requests(folders, infos, table.concatenate(parts), _bounded(notes))


def from_requests(
    folders: Sequence[Path],
    infos: Sequence[RunInfo],
    requests: Requests,
    notes: list[str],
    *,
    gaps_told: Bools | None = None,
    sources: tuple[Source, ...] = (),
    apart: str | None = None,
) -> Loaded:
    """Put requests in order and derive what all answers need.

    ``gaps_told`` is false for requests of which only the first and the last token are known: they have a mean
    time per token and no gap.
    """
    order = _order(requests)
    requests, jumped = requests.in_order(order).with_ordered_events()
    if jumped:
        notes = [*notes, f"the clock jumped back within {jumped} requests; their gaps there are taken as 0"]
    requests = with_classes(with_latencies(requests), infos)
    step_gaps = deliveries.gaps(requests, together_ns=deliveries.STEP_NS)
    token_gaps = deliveries.gaps(requests)
    if gaps_told is not None:
        step_gaps, token_gaps = (gaps.of_only(gaps_told[order]) for gaps in (step_gaps, token_gaps))
    return Loaded(
        tuple(folders),
        tuple(infos),
        with_steps(requests, step_gaps),
        step_gaps,
        token_gaps,
        notes,
        sources,
        apart,
    )


def _read(folder: Path, number: int) -> tuple[RunInfo, Requests, list[str]]:
    """One folder: its columns if they are whole and as new as its JSON lines, else the lines."""
    info = records.read_info(folder)
    notes: list[str] = []
    if _packed(folder, info):
        try:
            return info, table.from_arrow(parquet.read_table(folder, table.COLUMNS), number), notes
        except BadInputError as error:
            if not _lines(folder):
                raise
            notes.append(f"{error}; the JSON lines were read instead")
    run = records.read_run(folder)
    return run.info, table.from_records(run.records, number), [*notes, *run.notes]


def _packed(folder: Path, info: RunInfo) -> bool:
    path, lines = folder / PARQUET_FILE, _lines(folder)
    if not path.is_file():
        return False
    newest_ns = max((line.stat().st_mtime_ns for line in lines), default=0)
    return not lines or (info.status != "running" and path.stat().st_mtime_ns >= newest_ns)


def _lines(folder: Path) -> list[Path]:
    return list(folder.glob("requests-*.jsonl"))


def _order(requests: Requests) -> Ints:
    """Rows by run, then by the instant of sending (or of when it should have been sent)."""
    sent = requests.column("sent_at_s")
    at = np.where(np.isfinite(sent), sent, requests.column("scheduled_at_s"))
    return np.lexsort((requests.column("index"), at, requests.column("run"))).astype(np.int64)


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


def _refuse_copies(folders: Sequence[Path], infos: Sequence[RunInfo]) -> None:
    first: dict[str, Path] = {}
    for folder, info in zip(folders, infos, strict=True):
        if info.run_id in first:
            raise BadInputError(f"{folder}: is the same run as {first[info.run_id]} ({info.run_id})")
        first[info.run_id] = folder


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
