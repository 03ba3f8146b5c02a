"""The mean wait before prefill, per tier and between two tiers: what is left of TTFT above its law."""

import math
from dataclasses import dataclass

import numpy as np

from analysis import intervals
from analysis.arms import Arm
from analysis.ttft_law import TtftLaw

NEGLIGIBLE_RATIO = 0.02
"""A wait below this share of the median TTFT is none."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Mean wait over all requests of a tier, its standard error, and what counts as none, in seconds."""

    mean_s: float
    error_s: float
    none_s: float


def measure(arm: Arm, law: TtftLaw) -> Wait:
    """Mean of TTFT − f(n) over a tier's good requests; f is where TTFT would be without a queue."""
    ttft, tokens = arm.good.column("ttft_s"), arm.good.column("uncached_tokens")
    known = np.isfinite(ttft) & (ttft > 0) & (tokens >= 0)
    mean, error, _ = intervals.mean_error(ttft[known] - law.ttft_s(tokens[known]))
    return Wait(max(mean, 0.0), error, NEGLIGIBLE_RATIO * float(np.median(ttft[known])))


def ratio(slower: Wait, faster: Wait) -> tuple[float, float]:
    """How many times longer the first wait is, and errors by which they differ; at most over "none"."""
    floor = max(slower.none_s, faster.none_s)
    error = math.hypot(slower.error_s, faster.error_s)
    z = (slower.mean_s - faster.mean_s) / error if error > 0 else 0.0
    return max(slower.mean_s, floor) / max(faster.mean_s, floor), z
