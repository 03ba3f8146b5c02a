"""A closed-loop sweep: step time at each number of own decoding streams, and the largest number there is.

A clean window is a stretch in which the number of decoding streams stands still at its largest: every gap
inside it is a pure decode step of a known batch (if nobody else uses the server), because no own prompt is
being prefilled. The independent unit is the window, not the gap.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis import intervals, numbers
from analysis.deliveries import Gaps
from analysis.intervals import Floats, Ints
from analysis.lengths import prompt_tokens
from analysis.model import BatchAnswer, Estimate, SweepPoint
from analysis.steps import FEWEST_GAPS
from analysis.table import Requests
from loadtest.plan import Closed, Plan

FEWEST_LEVELS = 2
JUMP_RATIO, JUMP_STEPS = 1.5, 3.0
"""Median TTFT has jumped if it grew by half of itself and by three steps: then requests wait for a place."""
WAIT_RATIO = 0.5
"""If few more are asked for than fit, few wait: then the 95 % quantile has grown by half of a decode."""


@dataclass(frozen=True, slots=True)
class Level:
    """One stage of a sweep on one tier, as it was seen."""

    stage: str
    streams: int
    active: int
    step_s: Estimate
    ttft_p50_s: float | None
    ttft_p95_s: float | None = None
    decode_s: float | None = None
    """Median time from first to last token."""
    context_tokens: float | None = None
    """Mean context of a stream: its prompt and half of its output."""


def levels(plan: Plan) -> list[tuple[str, int]]:
    """Stages of a sweep and their streams: closed loops with different numbers of streams; else empty."""
    found = [
        (stage.name, stage.arrivals.streams)
        for stage in plan.stages
        if isinstance(stage.arrivals, Closed) and not stage.warmup
    ]
    return found if len({streams for _, streams in found}) >= FEWEST_LEVELS else []


def measure(requests: Requests, gaps: Gaps, plan: Plan) -> list[Level]:
    """All levels of a sweep on one tier of one run; ``gaps`` belong to the rows of good ``requests``."""
    found: list[Level] = []
    for stage, streams in levels(plan):
        mine = requests.text_is("stage", stage) & (np.diff(requests.offsets) > 0)  # what came in pieces
        if mine.any():
            found.append(_level(stage, streams, requests.where(mine), gaps.where(mine)))
    return found


def _level(stage: str, streams: int, requests: Requests, gaps: Gaps) -> Level:
    first = np.rint(requests.column("first_at_s") * 1e9).astype(np.int64)
    last = np.rint(requests.column("last_at_s") * 1e9).astype(np.int64)
    active, begins, ends = windows(first, last, shortest_ns=_typical_gap_ns(gaps))
    ttft = requests.column("ttft_s")
    return Level(
        stage=stage,
        streams=streams,
        active=active,
        step_s=_clean_step(gaps, begins, ends),
        ttft_p50_s=intervals.finite(float(np.median(ttft))),
        ttft_p95_s=intervals.finite(float(np.quantile(ttft, 0.95))),
        context_tokens=intervals.finite(_mean_context(requests)),
        decode_s=intervals.finite(float(np.median(last - first)) / 1e9),
    )


def _mean_context(requests: Requests) -> float:
    return float(np.mean(prompt_tokens(requests) + requests.column("output_tokens") / 2))


def windows(first_ns: Ints, last_ns: Ints, *, shortest_ns: int) -> tuple[int, Ints, Ints]:
    """Largest number of streams that decoded together, and the windows in which they did.

    A stream decodes from its first to its last token. A level counts if it stood for at least ``shortest_ns``
    at once: a shorter overlap is one stream's last token and its successor's first.
    """
    instants = np.concatenate((first_ns, last_ns))
    change = np.concatenate((np.ones(first_ns.size), -np.ones(last_ns.size)))
    order = np.lexsort((change, instants))  # ends before begins at the same instant
    active = np.cumsum(change[order]).astype(np.int64)[:-1]
    at = instants[order]
    lasting = np.diff(at) >= shortest_ns
    if not lasting.any():
        return 0, at[:0], at[:0]
    most = int(active[lasting].max())
    chosen = lasting & (active == most)
    return most, at[:-1][chosen], at[1:][chosen]


def _typical_gap_ns(gaps: Gaps) -> int:
    return int(np.median(gaps.gap_ns)) if gaps.gap_ns.size else 1


def _clean_step(gaps: Gaps, begins: Ints, ends: Ints) -> Estimate:
    """Mean gap inside the windows; the interval from the spread between windows."""
    if begins.size == 0:
        return intervals.NOTHING
    place = np.searchsorted(begins, gaps.begin_ns, side="right") - 1
    inside = (place >= 0) & (gaps.begin_ns + gaps.gap_ns <= ends[place])
    if inside.sum() < FEWEST_GAPS:
        return intervals.NOTHING
    counts = np.bincount(place[inside], minlength=begins.size)
    totals = np.bincount(place[inside], gaps.gap_ns[inside] / 1e9, minlength=begins.size)
    return _between(totals[counts > 0].astype(np.float64), counts[counts > 0].astype(np.float64))


def _between(totals: Floats, counts: Floats) -> Estimate:
    """Ratio estimate of the mean over windows, with the windows' scatter as its error (t distribution)."""
    mean = float(totals.sum() / counts.sum())
    if totals.size < 3:
        return intervals.estimate(mean)
    residual = totals - mean * counts
    error = float(np.sqrt(totals.size / (totals.size - 1) * residual @ residual)) / float(counts.sum())
    half = float(special.stdtrit(totals.size - 1, 0.975)) * error
    return intervals.estimate(mean, mean - half, mean + half)


def points(tier: str, found: list[Level]) -> list[SweepPoint]:
    """The levels as the report draws them."""
    return [
        SweepPoint(
            tier=tier,
            stage=level.stage,
            streams=level.streams,
            active_streams=level.active,
            step_s=level.step_s,
            ttft_p50_s=level.ttft_p50_s,
        )
        for level in found
    ]


def largest_batch(tier: str, found: list[Level], *, alone: bool) -> BatchAnswer | None:
    """The most streams that ever decoded together, and whether that is the server's limit or ours.

    It is the server's if some level asked for more than it got and its TTFT jumped over that of the levels
    which got all they asked for; otherwise only "at least". ``alone``: the run had this tier only, so that a
    level's streams were all its own.
    """
    if not found:
        return None
    most = max(level.active for level in found)
    saturated = [one for one in found if alone and one.streams > most and _jumped(one, found, most)]
    estimate = Estimate(value=float(most), low=float(most), high=float(most))
    sentence = (
        f"{tier} decoded at most {numbers.counted(most, 'stream')} at once and made others wait when "
        f"{saturated[0].streams} were asked for: that is its largest batch, if nobody else used it."
        if saturated
        else f"{tier} decoded {numbers.counted(most, 'stream')} at once, and may well be able to do more."
    )
    return BatchAnswer(
        tier=tier,
        method="sweep",
        quantity="max batch",
        estimate=estimate if saturated else Estimate(value=None, low=float(most)),
        identified=bool(saturated),
        sensitivity=None,
        sentence=sentence,
    )


def _jumped(level: Level, found: list[Level], most: int) -> bool:
    fitting = [other for other in found if other.streams <= most and other.ttft_p50_s is not None]
    if not fitting or level.ttft_p50_s is None:
        return False
    before = max(fitting, key=lambda other: other.streams)
    grown = level.ttft_p50_s - (before.ttft_p50_s or 0.0)
    steps = JUMP_STEPS * (before.step_s.value or 0.0)
    most_wait = grown > max(steps, (JUMP_RATIO - 1) * (before.ttft_p50_s or 0.0))
    return most_wait or _some_wait(level, before)


def _some_wait(level: Level, before: Level) -> bool:
    """Whether the last to be answered waited for somebody's end, which a burst of prompts is far from."""
    if None in (level.ttft_p95_s, before.ttft_p95_s, level.decode_s):
        return False
    return (level.ttft_p95_s or 0.0) - (before.ttft_p95_s or 0.0) > WAIT_RATIO * (level.decode_s or math.inf)
