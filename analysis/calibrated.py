"""From a step time to a batch, by a law that a sweep of the same tier has taught.

A sweep at an hour without others gives t(B, c) (``step_law``). Later, with others there, the batch B solves
t(B, c) = t̂, c the mean context of those that share the step. The interval comes from drawing the step (its
own interval), the law's parameters and its misfit, 1 % of drift between the two hours, and c.
"""

import math

import numpy as np

from analysis import numbers
from analysis.intervals import Floats
from analysis.model import BatchAnswer, Estimate
from analysis.step_law import StepLaw
from analysis.whitebox import CONTEXT_SPREAD, CONTEXT_TOKENS, GIVEN_CONTEXT_SPREAD, LARGEST_SPAN

DRIFT = 0.01
BEYOND = 1.25
"""A batch is not claimed further above the largest one of the sweep."""
_SMALLEST, _LARGEST = 0.1, 4.0
"""Batches are sought from a tenth of a sequence to so many times the largest, so that an interval which ends
at either limit is not narrow for that."""
_DRAWS, _GRID = 200, 300


def answer(
    tier: str, step_s: Estimate, law: StepLaw | str, *, context_tokens: float | None = None, seed: int = 0
) -> BatchAnswer | None:
    """The batch of a tier whose step was measured; None where it was not. A law may be why there is none."""
    if step_s.value is None:
        return None
    if isinstance(law, str):
        return _no_curve(tier, law)
    context = context_tokens or CONTEXT_TOKENS
    best, drawn, sensitivity = invert(law, step_s, context, known=context_tokens is not None, seed=seed)
    low, high = (float(end) for end in np.quantile(drawn, [0.025, 0.975]))
    outside = best > law.largest * BEYOND
    identified = not outside and high / low <= LARGEST_SPAN
    best, low, high = (max(1.0, batch) for batch in (best, low, high))
    found = Estimate(value=best, low=min(low, best), high=max(high, best))
    return BatchAnswer(
        tier=tier,
        method="calibrated sweep",
        quantity="batch",
        estimate=found if identified else Estimate(value=None, low=found.low, high=found.high),
        identified=identified,
        sensitivity=sensitivity,
        sentence=_sentence(tier, found, law, identified=identified, outside=outside),
    )


def _no_curve(tier: str, why: str) -> BatchAnswer:
    return BatchAnswer(
        tier=tier,
        method="calibrated sweep",
        quantity="batch",
        estimate=Estimate(value=None),
        identified=False,
        sensitivity=None,
        sentence=f"The sweep gives no curve for {tier}: {why}.",
    )


def invert(
    law: StepLaw, step_s: Estimate, context_tokens: float, *, known: bool, seed: int = 0
) -> tuple[float, Floats, float]:
    """The batch, what draws make of it, and ε = ∂ln t/∂ln B there."""
    assert step_s.value is not None
    rng = np.random.default_rng(seed)
    grid = np.geomspace(_SMALLEST, law.largest * _LARGEST, _GRID)
    error = math.hypot(DRIFT, law.misfit)
    if step_s.low is not None and step_s.high is not None:
        error = math.hypot(error, math.log(step_s.high / step_s.low) / (2 * 1.96))
    steps = step_s.value * np.exp(rng.normal(0, error, _DRAWS))
    contexts = context_tokens * np.exp(
        rng.normal(0, GIVEN_CONTEXT_SPREAD if known else CONTEXT_SPREAD, _DRAWS)
    )
    curves = law.drawn_steps_s(grid, contexts, rng)
    drawn = np.array([_solve(grid, curve, step) for curve, step in zip(curves, steps, strict=True)])
    curve = law.step_s(grid, context_tokens)
    best = _solve(grid, curve, step_s.value)
    ends = law.step_s(np.array([best / 1.01, best * 1.01]), context_tokens)
    return best, drawn, float(math.log(ends[1] / ends[0]) / (2 * math.log(1.01)))


def _solve(grid: Floats, curve: Floats, step_s: float) -> float:
    """Where a rising curve takes this value; its ends where it never does."""
    rising = np.maximum.accumulate(curve)
    return float(np.exp(np.interp(math.log(step_s), np.log(rising), np.log(grid))))


def _sentence(tier: str, found: Estimate, law: StepLaw, *, identified: bool, outside: bool) -> str:
    shown = numbers.estimate(found, numbers.PLAIN)
    if identified:
        return f"{tier}'s step is that of {shown} sequences, by the curve of its own sweep."
    if outside:
        return (
            f"{tier}'s step is longer than that of the largest batch of the sweep, {law.largest:g}: more "
            f"share it than were swept, or it is another server by now."
        )
    low, high = (numbers.number(end, digits=2) for end in (found.low, found.high))
    return (
        f"By the curve of its own sweep {tier}'s step fits any batch from {low} to {high}: not identified. "
        f"Levels with long prompts in the sweep, or a known mean context, would help."
    )
