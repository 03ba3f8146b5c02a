"""Result files of other tools as one table: what belongs together is pooled, what does not is refused."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from analysis import load, table
from analysis.load import Loaded
from analysis.sources.observed import Imported
from analysis.sources.source import lacking
from analysis.table import Requests
from loadtest.plan import Tier
from loadtest.records import RequestRecord, RunInfo
from tierscope.errors import BadInputError

SIDE_BY_SIDE_RATIO = 0.8
"""Share of each tier's requests that must have been sent while the other tier was measured as well: else a
drift of the server passes for a difference of tiers (36–40 % false alarms at nominal 5 %,
docs/inference.md)."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A file's requests and the tier that they are said to be of; "" if none was said."""

    tier: str
    file: Imported


def pool(files: Sequence[Labelled]) -> Loaded:
    """One table of all files.

    Files without a tier's name are one tier. With names each is an arm of a comparison; they lie on one axis
    of time if the tool tells wall-clock instants. Raises BadInputError for files that do not belong together.
    """
    _refuse_strangers(files)
    tiers = tuple(dict.fromkeys(one.tier for one in files if one.tier))
    if len(tiers) > 1:
        apart = _apart(files)
        imports = [_named(one, tiers) for one in files]
        together = apart is None or all(one.wall_clock for one in imports)
        return _table(_on_one_axis(imports) if together else imports, apart)
    imports = [_named(one, tiers) if tiers else one.file for one in files]
    return _table(_as_sweep(imports), None)


def _table(imports: Sequence[Imported], apart: str | None) -> Loaded:
    sources = tuple(one.source for one in imports)
    parts: list[Requests] = []
    infos: list[RunInfo] = []
    folders: list[Path] = []
    notes = [note for one in imports for note in one.notes]
    runs: dict[str, int] = {}
    for one in imports:
        number = runs.setdefault(one.info.run_id, len(runs))
        if number == len(infos):
            infos.append(one.info)
            folders.append(Path(one.source.path))
        part = table.from_records(one.records, number)
        parts.append(_without_schedule(part) if "schedule" in one.source.cannot else part)
    told = np.concatenate([np.full(len(one.records), "gaps" not in one.source.cannot) for one in imports])
    if len(infos) < len(imports):
        folders = [Path(", ".join(one.source.path for one in imports))]
    return load.from_requests(
        folders,
        infos,
        table.concatenate(parts),
        notes,
        gaps_told=told,
        sources=sources,
        apart=apart,
    )


def _without_schedule(requests: Requests) -> Requests:
    """No instant at which a request should have left: none is invented."""
    frame = requests.frame.assign(scheduled_at_s=np.nan)
    return Requests(frame, requests.event_ns, requests.event_tokens, requests.offsets)


def _named(one: Labelled, tiers: Sequence[str]) -> Imported:
    """A file's requests as those of its tier."""
    file = one.file
    made = [msgspec.structs.replace(record, requested_tier=one.tier) for record in file.records]
    arms = tuple(Tier(name=name) for name in tiers)
    plan = msgspec.structs.replace(file.info.plan, tiers=arms)
    return _changed(file, msgspec.structs.replace(file.info, plan=plan), made)


def _on_one_axis(imports: Sequence[Imported]) -> list[Imported]:
    """Files that were measured at the same time as one run: one zero, one stage, indices that are unique."""
    zero_s = min(one.start_s for one in imports)
    plan = imports[0].info.plan
    stage = msgspec.structs.replace(plan.stages[0], name="side by side")
    info = msgspec.structs.replace(
        imports[0].info,
        run_id="+".join(one.info.run_id for one in imports),
        plan=msgspec.structs.replace(plan, stages=(stage,)),
        started_unix_s=zero_s,
    )
    moved, first = [], 0
    for one in imports:
        shift_ns = round((one.start_s - zero_s) * 1e9)
        made = [_moved(record, shift_ns, first, stage.name) for record in one.records]
        moved.append(_changed(one, info, made))
        first += len(made)
    ended_ns = max(record.ended_ns for one in moved for record in one.records)
    info = msgspec.structs.replace(info, ended_ns=ended_ns)
    return [_changed(one, info, one.records) for one in moved]


def _as_sweep(imports: Sequence[Imported]) -> list[Imported]:
    """Closed loops of different streams are levels of one sweep, if every gap and start is known."""
    sources = [one.source for one in imports]
    stages = {one.info.plan.stages[0].name: one.info.plan.stages[0] for one in imports}
    known = lacking(sources, "gaps") is None and lacking(sources, "starts") is None
    if len(stages) < 2 or not known or not all(name.endswith(" streams") for name in stages):
        return list(imports)
    found = []
    for one in imports:
        plan = msgspec.structs.replace(one.info.plan, stages=tuple(stages.values()))
        found.append(_changed(one, msgspec.structs.replace(one.info, plan=plan), one.records))
    return found


def _moved(record: RequestRecord, shift_ns: int, first: int, stage: str) -> RequestRecord:
    return msgspec.structs.replace(
        record,
        index=record.index + first,
        stage=stage,
        scheduled_ns=record.scheduled_ns + shift_ns,
        sent_ns=None if record.sent_ns is None else record.sent_ns + shift_ns,
        event_ns=[at + shift_ns for at in record.event_ns],
        ended_ns=record.ended_ns + shift_ns,
    )


def _changed(one: Imported, info: RunInfo, made: list[RequestRecord]) -> Imported:
    return Imported(one.source, info, made, one.notes, one.start_s, one.wall_clock)


def _apart(files: Sequence[Labelled]) -> str | None:
    """Why tiers in files of their own cannot be compared; None if they were measured side by side."""
    sources = [one.file.source for one in files]
    starts = lacking(sources, "starts")
    if starts is not None:
        return f"{starts}, so that it cannot be told whether the tiers were measured side by side"
    if not all(one.file.wall_clock for one in files):
        return (
            f"{sources[0].tool} tells instants on a clock of its own, so that it cannot be told whether "
            "the tiers "
            "were measured side by side"
        )
    spans: dict[str, list[float]] = {}
    for one in files:
        spans.setdefault(one.tier, []).extend(_sent_s(one.file))
    for tier, mine in spans.items():
        for other, theirs in spans.items():
            inside = sum(min(theirs) <= at <= max(theirs) for at in mine) / len(mine)
            if tier != other and inside < SIDE_BY_SIDE_RATIO:
                return (
                    f"only {inside:.0%} of {tier}'s requests were sent while {other} was measured: a "
                    "drift of the "
                    "server would pass for a difference of the tiers"
                )
    return None


def _sent_s(file: Imported) -> list[float]:
    return [file.start_s + (record.sent_ns or 0) / 1e9 for record in file.records]


def _refuse_strangers(files: Sequence[Labelled]) -> None:
    first = files[0]
    named = bool(first.tier)
    seen: dict[str, str] = {}
    for one in files:
        path = one.file.source.path
        if bool(one.tier) != named:
            raise BadInputError(
                f"{path}: {'has no' if named else 'has a'} tier's name, and {first.file.source.path} "
                f"{'has one' if named else 'has none'}; write TIER=FILE for all files or for none"
            )
        if one.file.info.run_id in seen:
            raise BadInputError(
                f"{path}: has the same content as {seen[one.file.info.run_id]}; each file counts once"
            )
        seen[one.file.info.run_id] = path
        for what, ours, theirs in (
            ("tool", first.file.source.tool, one.file.source.tool),
            (
                "model",
                "" if named else first.file.info.target.model,
                "" if named else one.file.info.target.model,
            ),
            ("url", "" if named else first.file.info.target.url, "" if named else one.file.info.target.url),
        ):
            if ours != theirs:
                raise BadInputError(
                    f"{path}: {what}: {theirs!r} differs from {ours!r} in {first.file.source.path}; "
                    "files are pooled "
                    "only if they belong together"
                )
