"""What deliveries tell of how a tier decodes: several tokens a step, and how long a stalled step is."""

from dataclasses import dataclass

import numpy as np

from analysis import intervals, ragged
from analysis.arms import Arm
from analysis.model import Estimate
from analysis.ragged import Floats
from analysis.steps import STALL_RATIO

FEWEST_STALLS = 20


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Tokens of a tier's deliveries: mean (its error between requests), and how they vary."""

    mean_tokens: float
    mean_error: float
    three_or_more_ratio: float
    """Share of deliveries with at least three tokens."""
    variation_ratio: float
    """Standard deviation over mean: 0 where a server packs so many tokens into each event."""


def deliveries(arm: Arm) -> Deliveries | None:
    """Tokens per delivery of a tier, its first deliveries and last ones left out; None without any."""
    gaps = arm.step_gaps
    last = np.zeros(gaps.tokens.size, dtype=np.bool_)
    last[gaps.offsets[1:][np.diff(gaps.offsets) > 0] - 1] = True
    tokens, offsets = gaps.tokens[~last], ragged.filter_values(~last, gaps.offsets)
    counts = np.diff(offsets)
    if counts.sum() < FEWEST_STALLS:
        return None
    mean = float(tokens.mean())
    excess = (ragged.sums(tokens, offsets) - mean * counts)[counts > 0]
    _, error, _ = intervals.mean_error(excess)
    return Deliveries(
        mean_tokens=mean,
        mean_error=error * excess.size / tokens.size,
        three_or_more_ratio=float(np.mean(tokens >= 3)),
        variation_ratio=float(tokens.std()) / mean,
    )


def token_s(arm: Arm) -> Floats:
    """Seconds per token of each good request, stalls aside: its median gap over tokens per delivery."""
    good = arm.good
    tokens, count = good.column("output_tokens"), good.column("deliveries")
    with np.errstate(divide="ignore", invalid="ignore"):
        per_delivery = np.maximum((tokens - 1) / (count - 1), 1.0)
    return np.where(np.isfinite(per_delivery), good.column("step_s") / per_delivery, np.nan)


def stalled_step_s(arm: Arm) -> float | None:
    """Median gap of those that carry somebody's prefill; None where there are too few."""
    gaps = arm.step_gaps
    median_ns = np.repeat(arm.good.column("step_s") * 1e9, np.diff(gaps.offsets))
    stalled = gaps.gap_ns[gaps.gap_ns > STALL_RATIO * median_ns]
    return float(np.median(stalled)) / 1e9 if stalled.size >= FEWEST_STALLS else None


def median_step(arm: Arm) -> Estimate:
    """Median step of a tier with its interval."""
    step = arm.good.column("step_s")
    return intervals.median(step[np.isfinite(step)])
