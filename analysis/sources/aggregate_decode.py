"""Decode from distributions: step time per tier, and whether two tiers differ. Pure.

The step time is the median of the inter-token gaps, sure to within its bucket. Whether decode changed is
tested on mean times per token, which a histogram's sum knows exactly: z = ln(mean_a / mean_b) over its
error. Requests share a server's moods; where slices of time are known (a Prometheus server), the error is
that of the slices' log ratios, else the variance of independent requests is taken ``CLUSTER`` times.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analysis import intervals, numbers, phrases, steps
from analysis.model import DecodeTest, Estimate
from analysis.sources.aggregate import CLUSTER, Aggregate, Binned, Points
from analysis.sources.source import lacking

Answer = Literal["changed", "unchanged", "inconclusive"]
SEVERAL = 1.05
"""Tokens per event from which an inter-token gap is a share of a step and no step."""
FEWEST_REQUESTS, FEWEST_SLICES = 8, 8
SIGNIFICANCE = 0.05


@dataclass(frozen=True, slots=True)
class Step:
    """A tier's step time, or the clause that says why there is none."""

    estimate: Estimate
    refusal: str | None
    loaded_ratio: float | None
    """Share of gaps above 1.45 × their 10 % quantile: how much of the decode carried prefill."""


def step(told: Aggregate, tier: str) -> Step:
    """The median gap, where gaps were counted and are those of single steps."""
    gaps = told.pooled("itl", tier)
    missing = lacking([told.source], "gaps")
    if isinstance(gaps, Points):
        return Step(intervals.NOTHING, missing or "a summary keeps no single gap", None)
    if gaps is None or not gaps.count:
        return Step(intervals.NOTHING, missing or "no gap between tokens was counted", None)
    packed = told.tokens_per_event.get(tier, 1.0)
    if packed > SEVERAL:
        return Step(
            intervals.NOTHING,
            f"an event carries {packed:.2f} tokens in the mean, so that a gap per token is no step",
            None,
        )
    loaded = _loaded(gaps)
    if loaded is not None and loaded >= steps.REFUSE_LOADED:
        return Step(
            intervals.NOTHING,
            f"{phrases.percent(round(loaded, 2))} of gaps carry somebody's prefill, so that the step "
            "time cannot be "
            "read",
            loaded,
        )
    requests = told.pooled("ttft", tier)
    units = requests.count if isinstance(requests, Binned) else None
    return Step(gaps.quantile(0.5, independent=units), None, loaded)


def compare(told: Aggregate, names: tuple[str, str], *, margin: float) -> DecodeTest:
    """Say whether decode changed from the first tier to the second; baseline first."""
    found = [step(told, name) for name in names]
    refusal = next(
        (f"on {name}, {one.refusal}" for name, one in zip(names, found, strict=True) if one.refusal), None
    )
    ratio = _ratio(found[0].estimate, found[1].estimate)
    mean, error, pairs = _means(told, names)
    z = mean / error if math.isfinite(mean) and error > 0 else math.nan
    p_value = math.erfc(abs(z) / math.sqrt(2)) if math.isfinite(z) else math.nan
    half = 1.96 * error
    within = math.isfinite(z) and abs(mean) + half < math.log1p(margin)
    answer, sentence = _decide(ratio, mean, p_value, within=within, pairs=pairs, margin=margin, names=names)
    if refusal is not None:
        answer, sentence = "inconclusive", f"Decode could not be compared: {refusal}."
    return DecodeTest(
        answer=answer,
        speed_ratio=ratio,
        z=intervals.finite(z),
        p_value=intervals.finite(p_value),
        pairs=pairs,
        margin_ratio=margin,
        sentence=sentence,
    )


def _decide(
    ratio: Estimate,
    mean: float,
    p_value: float,
    *,
    within: bool,
    pairs: int,
    margin: float,
    names: tuple[str, str],
) -> tuple[Answer, str]:
    baseline, compared = names
    shown, means = numbers.estimate(ratio, numbers.RATIO), numbers.number(math.exp(mean), numbers.RATIO)
    facts = f"ratio of mean times per token {means}, {phrases.p_value(p_value)}, from counts per bucket"
    if pairs < FEWEST_REQUESTS or not math.isfinite(p_value):
        return "inconclusive", (
            f"{numbers.counted(pairs, 'request')} with a speed on the smaller side are too few to "
            "compare decode; it "
            f"takes {FEWEST_REQUESTS}."
        )
    same_way = ratio.value is not None and (mean > 0) == (ratio.value > 1)
    if intervals.outside(ratio, margin) and p_value < SIGNIFICANCE and same_way:
        return "changed", f"{compared} decodes {shown} as fast as {baseline} ({facts})."
    holds_one = ratio.low is not None and ratio.high is not None and ratio.low <= 1 <= ratio.high
    if within and holds_one:
        return "unchanged", (
            f"{compared} and {baseline} decode equally fast within ±{phrases.percent(margin)}: step "
            "times agree to "
            f"within a bucket, {shown} ({facts})."
        )
    return "inconclusive", (
        f"The ratio of decode speeds, {shown}, neither lies inside ±{phrases.percent(margin)} nor "
        "clearly outside of "
        f"it ({facts})."
    )


def _ratio(slow: Estimate, fast: Estimate) -> Estimate:
    """Ratio of two step times; each end takes the worst of both intervals, so it is never too narrow."""
    if slow.value is None or fast.value is None:
        return intervals.NOTHING
    low = slow.low / fast.high if slow.low is not None and fast.high is not None else math.nan
    high = slow.high / fast.low if slow.high is not None and fast.low is not None else math.nan
    return intervals.estimate(slow.value / fast.value, low, high)


def _means(told: Aggregate, names: tuple[str, str]) -> tuple[float, float, int]:
    """Log ratio of mean times per token, its standard error, and the requests of the smaller side."""
    shapes = [told.pooled("tpot", name) for name in names]
    binned = [one for one in shapes if isinstance(one, Binned) and one.count and one.mean]
    if len(binned) < 2:
        return math.nan, math.nan, 0
    pairs = min(one.count for one in binned)
    slices = told.slices.get(names)
    if slices is not None and slices.size >= FEWEST_SLICES:
        mean, error, _ = intervals.mean_error(slices)
        return mean, error, pairs
    mean = math.log((binned[0].mean or 1.0) / (binned[1].mean or 1.0))
    return mean, math.sqrt(CLUSTER * sum(_variance(one) for one in binned)), pairs


def _variance(shape: Binned) -> float:
    """Variance of ln of the mean: that of the logarithms, a bucket's own width included, over the count."""
    edges = shape.edges
    middles = np.log(np.concatenate(([edges[0]], np.sqrt(edges[:-1] * edges[1:]), [edges[-1]])))
    weights = shape.counts / shape.count
    centre = float(weights @ middles)
    spread = float(weights @ (middles - centre) ** 2)
    width = float(np.median(np.diff(np.log(edges)))) if edges.size > 1 else 1.0
    return (spread + width**2 / 12) / shape.count


def _loaded(gaps: Binned) -> float | None:
    clean = gaps.quantile(0.1).value
    if clean is None:
        return None
    return 1 - share_below(gaps, steps.STALL_RATIO * clean)


def share_below(shape: Binned, value: float) -> float:
    """Share of values up to one, log-linear inside its bucket."""
    edges = np.concatenate(([shape.edges[0] / 2], shape.edges))
    running = np.concatenate(([0.0], shape.counts[:-1].cumsum())) / shape.count
    return float(np.interp(math.log(value), np.log(edges), running, left=0.0, right=running[-1]))
