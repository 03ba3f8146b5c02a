"""Which of two tiers waits longer before its prompts are read: what is left of TTFT above a common floor.

Where nearly everybody queues no law of TTFT can tell wait from prefill on one tier alone. Two tiers whose
prefill is the same share their floor: the lower edge of TTFT, by prompt length, of whichever is lower.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis import intervals
from analysis.arms import Arm
from analysis.ragged import Floats, Ints

NEGLIGIBLE_RATIO = 0.02
"""A wait below this share of the median TTFT is none."""
FLOOR_QUANTILE = 0.1
MOST_GROUPS, FEWEST = 8, 8


@dataclass(frozen=True, slots=True)
class Wait:
    """Mean wait over all requests of a tier, its standard error, and what counts as none, in seconds."""

    mean_s: float
    error_s: float
    none_s: float


def measure(arms: tuple[Arm, Arm], *, common: bool) -> tuple[Wait, Wait] | None:
    """Mean of TTFT above the floor on both tiers; None with too few requests.

    ``common``: one floor for both, because nothing says that they prefill at different speeds; else each its
    own.
    """
    sides = [_known(arm) for arm in arms]
    if min(tokens.size for tokens, _ in sides) < FEWEST:
        return None
    edges = _edges(np.concatenate([tokens for tokens, _ in sides]))
    groups = [np.searchsorted(edges, tokens, side="right").astype(np.int64) for tokens, _ in sides]
    floors = [_floor(group, ttft, edges.size + 1) for group, (_, ttft) in zip(groups, sides, strict=True)]
    if common:
        lower = np.fmin(floors[0], floors[1])
        floors = [lower, lower]
    first, second = (
        _wait(ttft - floor[group], ttft)
        for group, floor, (_, ttft) in zip(groups, floors, sides, strict=True)
    )
    return first, second


def ratio(slower: Wait, faster: Wait) -> tuple[float, float]:
    """How many times longer the first wait is, and errors by which they differ; at most over "none"."""
    floor = max(slower.none_s, faster.none_s)
    error = math.hypot(slower.error_s, faster.error_s)
    z = (slower.mean_s - faster.mean_s) / error if error > 0 else 0.0
    return max(slower.mean_s, floor) / max(faster.mean_s, floor), z


def _known(arm: Arm) -> tuple[Floats, Floats]:
    ttft, tokens = arm.good.column("ttft_s"), arm.good.column("uncached_tokens")
    known = np.isfinite(ttft) & (ttft > 0) & (tokens >= 0)
    return tokens[known], ttft[known]


def _edges(tokens: Floats) -> Floats:
    """Between the lengths that were asked if they are few, else such that groups are of equal size."""
    lengths = np.unique(tokens)
    if lengths.size <= MOST_GROUPS:
        return np.asarray(lengths[1:])
    return np.unique(np.quantile(tokens, np.linspace(0, 1, MOST_GROUPS + 1)[1:-1]))


def _floor(group: Ints, ttft: Floats, groups: int) -> Floats:
    """Lower edge of TTFT in each group, NaN of an empty one."""
    return np.array([
        float(np.quantile(ttft[group == one], FLOOR_QUANTILE)) if (group == one).any() else math.nan
        for one in range(groups)
    ])  # fmt: skip


def _wait(above: Floats, ttft: Floats) -> Wait:
    mean, error, _ = intervals.mean_error(above)
    return Wait(max(mean, 0.0), error, NEGLIGIBLE_RATIO * float(np.median(ttft)))
