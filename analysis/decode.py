"""Does the compared tier decode faster? A paired test in time, and a ratio of step times.

Requests of both tiers are paired in the order they were sent, so that a drift of the server hits both sides
of a pair. d_i = ln TPOT(baseline) − ln TPOT(compared), each without what its prompt's length makes of it
(``lengths.evened``); the test is mean(d) over its Newey–West error. The ratio reported is that of median
gaps, which other users' prefills do not move. Arms run one after the other would take such a drift for a
difference.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis import intervals, lengths, numbers, phrases
from analysis.intervals import Floats, Ints
from analysis.model import DecodeTest, Estimate
from analysis.table import Requests

Answer = Literal["changed", "unchanged", "inconclusive"]

FEWEST_PAIRS = 8
SIGNIFICANCE = 0.05


@dataclass(frozen=True, slots=True)
class Pairs:
    """Paired requests in time order: log ratio of their TPOT, lengths evened out, and both step times."""

    log_ratio: Floats
    baseline_step_s: Floats
    compared_step_s: Floats


def pair(baseline: Requests, compared: Requests) -> Pairs:
    """Pair the requests of two tiers in time, those that have a speed; both in order of sending.

    Pairs never cross a run or a stage. Where one side has fewer, each of its requests takes the nearest one
    of the other side, in order and without using any twice.
    """
    sides = [_with_speed(baseline), _with_speed(compared)]
    centred = lengths.evened(
        [np.log(side.column("tpot_s")) for side in sides],
        [side.column(lengths.COLUMN) for side in sides],
        [lengths.prompt_tokens(side) for side in sides],
    )
    strata = [side.text("stage") + side.column("run").astype(np.int64).astype(str) for side in sides]
    left: list[Ints] = []
    right: list[Ints] = []
    for stratum in dict.fromkeys([*strata[0], *strata[1]]):
        rows = [np.flatnonzero(names == stratum) for names in strata]
        at = [side.column("sent_at_s")[row] for side, row in zip(sides, rows, strict=True)]
        a, b = nearest_in_order(at[0], at[1])
        left.append(rows[0][a])
        right.append(rows[1][b])
    a, b = (np.concatenate([*part, np.empty(0, dtype=np.int64)]) for part in (left, right))
    return Pairs(
        log_ratio=centred[0][a] - centred[1][b],
        baseline_step_s=sides[0].column("step_s")[a],
        compared_step_s=sides[1].column("step_s")[b],
    )


def compare(
    pairs: Pairs,
    *,
    margin: float,
    names: tuple[str, str],
    refusal: str | None = None,
    significance: float = SIGNIFICANCE,
) -> DecodeTest:
    """Say whether decode changed: clearly and beyond the margin, or not beyond it, or neither is shown.

    ``names`` are those of the two tiers, baseline first; ``refusal`` says why step times cannot be read.
    ``significance`` is that of the test, and one less the level of the interval.
    """
    count = pairs.log_ratio.size
    mean, error, freedom = intervals.mean_error(pairs.log_ratio)
    z = mean / error if count >= FEWEST_PAIRS and error > 0 else math.nan
    # Without any spread (a noiseless simulation) a difference is certain, and so is its absence.
    p_value = intervals.two_sided_p(z, freedom) if math.isfinite(z) else float(abs(mean) < 1e-9)
    ratio = speed_ratio(pairs, level=1 - significance)
    answer, sentence = _decide(ratio, mean, p_value, count, margin, names, significance)
    if refusal is not None:
        answer, sentence = "inconclusive", f"Decode could not be compared: {refusal}."
    return DecodeTest(
        answer=answer,
        speed_ratio=ratio,
        z=intervals.finite(z),
        p_value=intervals.finite(p_value),
        pairs=count,
        margin_ratio=margin,
        sentence=sentence,
    )


def speed_ratio(pairs: Pairs, *, level: float = 1 - SIGNIFICANCE) -> Estimate:
    """Median step time of the baseline over that of the compared tier, block bootstrap over pairs."""
    known = np.isfinite(pairs.baseline_step_s) & np.isfinite(pairs.compared_step_s)
    slow, fast = pairs.baseline_step_s[known], pairs.compared_step_s[known]

    def ratio(rows: Ints) -> Floats:
        return np.asarray(np.median(slow[rows], axis=-1) / np.median(fast[rows], axis=-1))

    block = intervals.block_length(np.log(slow / fast))
    return intervals.bootstrap(slow.size, ratio, block=block, level=level)


def _decide(
    ratio: Estimate,
    mean: float,
    p_value: float,
    count: int,
    margin: float,
    names: tuple[str, str],
    significance: float,
) -> tuple[Answer, str]:
    baseline, compared = names
    shown = numbers.estimate(ratio, numbers.RATIO)
    facts = f"{count} pairs, {phrases.p_value(p_value)}"
    if count < FEWEST_PAIRS or ratio.low is None:
        return "inconclusive", (
            f"{numbers.counted(count, 'pair')} of requests with a measured speed are too few to compare "
            f"decode; it takes {FEWEST_PAIRS}."
        )
    significant = p_value < significance
    if intervals.outside(ratio, margin) and significant and (mean > 0) == ((ratio.value or 0) > 1):
        return "changed", f"{compared} decodes {shown} as fast as {baseline} ({facts})."
    if intervals.inside(ratio, margin):
        if significant and abs(mean) > math.log1p(margin):
            return "inconclusive", (
                f"Step times agree ({shown}), yet mean time per token differs by "
                f"{phrases.percent(abs(math.expm1(mean)))}: gaps are stalled unequally ({facts})."
            )
        return "unchanged", (
            f"{compared} and {baseline} decode equally fast within ±{phrases.percent(margin)}: {shown} "
            f"({facts})."
        )
    return "inconclusive", (
        f"The ratio of decode speeds, {shown}, neither lies inside ±{phrases.percent(margin)} nor clearly "
        f"outside of it ({facts})."
    )


def _with_speed(requests: Requests) -> Requests:
    return requests.where(np.isfinite(requests.column("tpot_s")))


def nearest_in_order(a: Floats, b: Floats) -> tuple[Ints, Ints]:
    """Places of the nearest partners of two ascending series, in order, none used twice."""
    if a.size > b.size:
        right, left = nearest_in_order(b, a)
        return left, right
    if a.size == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    after = np.clip(np.searchsorted(b, a), 1, max(b.size - 1, 1))
    nearest = np.where(b.size > 1, after - (a - b[after - 1] < b[np.minimum(after, b.size - 1)] - a), 0)
    own = np.arange(a.size)
    # Strictly ascending, and leaving enough of b for those still to come.
    ascending = np.maximum.accumulate(nearest - own) + own
    return own, np.minimum(ascending, b.size - a.size + own)
