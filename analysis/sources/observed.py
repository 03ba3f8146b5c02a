"""What another tool says of its requests, as records of ours: the one way in for all importers. Pure."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import accumulate

from analysis.sources.source import Source
from loadtest.plan import Closed, Plan, Stage, Target, Tier, Workload
from loadtest.records import SCHEMA_VERSION, Outcome, RequestRecord, RunInfo
from tierscope.errors import BadInputError

_NS = 1e9
UNNAMED = "server"
"""What is measured, where a file does not name the model."""
LONGEST_S = 1e8
"""Longest time that is believed, three years: beyond it a file's unit is not the one it is read in."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One request as another tool reports it; None where it does not tell. Seconds on the tool's own clock.

    ``ttft_s``, ``last_s`` (last token) and ``ended_s`` are from sending on. ``gaps_s`` are those between what
    arrived after the first; without them ``last_s`` still gives the mean time per token.
    """

    ttft_s: float | None
    last_s: float | None = None
    ended_s: float | None = None
    gaps_s: Sequence[float] | None = None
    start_s: float | None = None
    scheduled_s: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    outcome: Outcome = "ok"
    status: int | None = None
    detail: str = ""
    warmup: bool = False
    model: str = ""
    counted_by_server: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """A result file read: where it is from, what it was a run of, and its requests.

    ``start_s`` is the instant, on the clock the file has, that the records' zero is; ``wall_clock`` says
    whether that clock is one that files share.
    """

    source: Source
    info: RunInfo
    records: list[RequestRecord]
    notes: list[str]
    start_s: float
    wall_clock: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """What a file says of the whole run; ``streams`` is None if it was no closed loop, or is not told."""

    model: str = ""
    url: str = ""
    streams: int | None = None
    wall_clock: bool = False


def imported(
    source: Source, setting: Setting, observed: Sequence[Observed], notes: list[str], data: bytes
) -> Imported:
    """Records of everything observed, in the file's order; ``data`` is the file, for the run's name.

    Raises BadInputError where there is no request at all or a time is none.
    """
    if not observed:
        raise BadInputError(f"{source.path}: {source.tool}: holds no request; there is nothing to analyse")
    starts = [one.start_s for one in observed if one.start_s is not None]
    starts += [one.scheduled_s for one in observed if one.scheduled_s is not None]
    zero_s = min(starts, default=0.0)
    stage = source.tool if setting.streams is None else f"{setting.streams} streams"
    model = setting.model or next((one.model for one in observed if one.model), "") or UNNAMED
    made = [
        _record(one, place, zero_s, stage=stage, tier=model, model=model, where=source.path)
        for place, one in enumerate(observed)
    ]
    count = sum(not one.warmup for one in observed)
    info = RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id=f"{source.tool}-{hashlib.sha256(data).hexdigest()[:12]}",
        tierscope_version=version("tierscope"),
        target=Target(url=setting.url, model=model),
        plan=Plan(
            name=source.tool,
            stages=(
                Stage(name=stage, arrivals=Closed(streams=setting.streams or 1), requests=max(count, 1)),
            ),
            workload=Workload(),
            tiers=(Tier(name=model),),
        ),
        started_unix_s=zero_s if setting.wall_clock else math.nan,
        status="complete",
        ended_ns=max(record.ended_ns for record in made),
        environment={"made by": source.name},
    )
    return Imported(source, info, made, notes, zero_s, setting.wall_clock)


def _record(
    one: Observed, place: int, zero_s: float, *, stage: str, tier: str, model: str, where: str
) -> RequestRecord:
    begin_s = one.start_s if one.start_s is not None else one.scheduled_s
    sent_ns = _ns(0.0 if begin_s is None else begin_s - zero_s, place, where)
    events = [sent_ns + _ns(at_s, place, where) for at_s in _arrivals_s(one)] if one.outcome == "ok" else []
    ended_s = next((at for at in (one.ended_s, one.last_s, one.ttft_s) if at is not None), 0.0)
    outcome: Outcome = "no_output" if one.outcome == "ok" and one.ttft_s is None else one.outcome
    if outcome == "ok" and not events:
        outcome = "no_output"
    return RequestRecord(
        index=place,
        stage=stage,
        requested_tier=tier,
        model=one.model or model,
        prompt_class_tokens=one.prompt_tokens or 0,
        max_tokens=one.output_tokens or 0,
        scheduled_ns=sent_ns if one.scheduled_s is None else _ns(one.scheduled_s - zero_s, place, where),
        outcome=outcome,
        stamp_source="user",
        ended_ns=max([sent_ns + _ns(ended_s, place, where), *events]),
        warmup=one.warmup,
        sent_ns=sent_ns,
        first_text_ns=None,
        event_ns=events,
        status=one.status,
        detail=" ".join(one.detail.split())[:300],
        prompt_tokens=one.prompt_tokens,
        cached_tokens=one.cached_tokens,
        output_tokens=one.output_tokens,
        tokens_source="usage" if one.counted_by_server else None,
    )


def _arrivals_s(one: Observed) -> list[float]:
    """When output arrived, since sending: each event, or the first and the last where no gap is told."""
    if one.ttft_s is None:
        return []
    if one.gaps_s is not None:
        return list(accumulate(one.gaps_s, initial=one.ttft_s))
    if one.last_s is None or not one.last_s > one.ttft_s or (one.output_tokens or 0) < 2:
        return [one.ttft_s]
    return [one.ttft_s, one.last_s]


def _ns(seconds: float, place: int, where: str) -> int:
    if not abs(seconds) <= LONGEST_S:
        raise BadInputError(
            f"{where}: request {place}: {seconds:g} s is no time; expected at most {LONGEST_S:g} s"
        )
    return round(seconds * _NS)


def failed(status: int | None, detail: str) -> Outcome:
    """The outcome of a request that another tool calls failed, by its HTTP status if one is told."""
    if status == 429:
        return "rate_limited"
    if status in (503, 529):
        return "overloaded"
    if status is not None and 100 <= status <= 599:
        return "http_error"
    return "timeout" if "timeout" in detail.lower() or "timed out" in detail.lower() else "stream_error"
