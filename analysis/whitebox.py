"""From a step time to a batch, when chip and model are known: the roofline law inverted, with its doubt.

The batch B solves t(B, B·c) = t̂, c the mean context of the sequences in the batch. Three things are not
known exactly: t̂ (its interval), the law (``LAW_ERROR``), and c, which belongs to other users. The interval
comes from drawing all three; ε = ∂ln t / ∂ln B says what it must be like: an error of the law of 10 % is one
of 10 %/ε in B.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis import numbers
from analysis.intervals import Floats
from analysis.model import BatchAnswer, Estimate
from mockserver import roofline
from mockserver.hardware import Deployment
from mockserver.roofline import Law

LAW_ERROR = 0.20
"""Standard deviation of ln(measured step / law) with efficiencies that nobody fitted to the server: of 14
published points half are met within 20 %, all within 30 % (tests/mockserver/test_roofline.py)."""
CONTEXT_TOKENS, CONTEXT_SPREAD = 2000.0, 0.7
"""Mean context of other users' sequences where nobody says: between 500 and 8,000 tokens in 95 of 100 cases.
Azure's code trace of 2023 has a mean of 2,048 prompt tokens; DeepSeek reported a mean KV length of 4,989
(2025)."""
GIVEN_CONTEXT_SPREAD = 0.3
SMALLEST_SENSITIVITY, LARGEST_SPAN = 0.1, 4.0
"""Below that ε, or above that ratio of the interval's ends, the batch is not identified."""
_DRAWS = 400


@dataclass(frozen=True, slots=True)
class Inversion:
    """A batch read back from a step time."""

    batch: Estimate
    sensitivity: float
    too_fast: bool
    """The step is shorter than the law's floor by more than the law's error: the hardware is another one."""
    too_slow: bool
    """It is longer than any batch takes that fits the memory, by more than the law's error."""


def invert(
    law: Law,
    step_s: Estimate,
    *,
    context_tokens: float | None = None,
    law_error: float = LAW_ERROR,
    seed: int = 0,
) -> Inversion:
    """Batch whose step takes ``step_s``, its interval and ε. ``context_tokens``: mean context, if known."""
    assert step_s.value is not None
    rng = np.random.default_rng(seed)
    context = context_tokens or CONTEXT_TOKENS
    spread = CONTEXT_SPREAD if context_tokens is None else GIVEN_CONTEXT_SPREAD
    batches = np.geomspace(1.0, largest_batch(law, context * math.exp(-2 * spread)), 400)
    best = _solve(law, batches, step_s.value, context)
    step_error = 0.0
    if step_s.low is not None and step_s.high is not None:
        step_error = math.log(step_s.high / step_s.low) / (2 * 1.96)
    steps = step_s.value * np.exp(rng.normal(0, math.hypot(step_error, law_error), _DRAWS))
    contexts = context * np.exp(rng.normal(0, spread, _DRAWS))
    draws = [_solve(law, batches, step, mean) for step, mean in zip(steps, contexts, strict=True)]
    low, high = np.quantile(draws, [0.025, 0.975])
    shortest, longest = (
        float(roofline.step_s(law, float(end), float(end) * context)) for end in batches[[0, -1]]
    )
    return Inversion(
        batch=Estimate(value=best, low=min(float(low), best), high=max(float(high), best)),
        sensitivity=sensitivity(law, best, context),
        too_fast=step_s.value < shortest * math.exp(-2 * law_error),
        too_slow=step_s.value > longest * math.exp(2 * law_error),
    )


def largest_batch(law: Law, context_tokens: float) -> float:
    """Sequences of this mean context whose KV fits the memory, 2 at least."""
    return max(2.0, roofline.kv_capacity_tokens(law) / context_tokens)


def sensitivity(law: Law, batch: float, context_tokens: float) -> float:
    """ε = ∂ln t / ∂ln B at constant mean context."""
    step = 1.01
    above = roofline.step_s(law, batch * step, batch * step * context_tokens)
    below = roofline.step_s(law, batch / step, batch / step * context_tokens)
    return float(math.log(above / below) / (2 * math.log(step)))


def answer(
    tier: str,
    step_s: Estimate,
    deployment: Deployment,
    *,
    context_tokens: float | None = None,
    law_error: float = LAW_ERROR,
) -> BatchAnswer | None:
    """The white-box answer for one tier; None where no step time was measured."""
    if step_s.value is None:
        return None
    found = invert(roofline.law(deployment), step_s, context_tokens=context_tokens, law_error=law_error)
    low, high = found.batch.low or 1.0, found.batch.high or 1.0
    off = found.too_fast or found.too_slow
    identified = not off and found.sensitivity >= SMALLEST_SENSITIVITY and high / low <= LARGEST_SPAN
    estimate = Estimate(value=None) if off else Estimate(value=None, low=low, high=high)
    return BatchAnswer(
        tier=tier,
        method="white box",
        quantity="batch",
        estimate=found.batch if identified else estimate,
        identified=identified,
        sensitivity=found.sensitivity,
        sentence=_sentence(tier, found, identified, context_tokens),
    )


def _sentence(tier: str, found: Inversion, identified: bool, context_tokens: float | None) -> str:
    shown = numbers.estimate(found.batch, numbers.PLAIN)
    known = "as given" if context_tokens is not None else "not known, assumed"
    context = f"mean context {known} {numbers.tokens(context_tokens or CONTEXT_TOKENS)}"
    if found.too_fast:
        return (
            f"{tier}'s step is shorter than this hardware takes for a single sequence: it runs on something "
            f"else, or its efficiencies are underrated. No batch can be said."
        )
    if found.too_slow:
        return (
            f"{tier}'s step is longer than this hardware takes for any batch that fits its memory: it does "
            f"something else besides, or its efficiencies are overrated. No batch can be said."
        )
    if identified:
        return f"On this hardware {tier}'s step time means a batch of {shown} ({context})."
    low, high = (numbers.number(end, digits=2) for end in (found.batch.low, found.batch.high))
    return (
        f"On this hardware {tier}'s step time fits any batch from {low} to {high}: not identified "
        f"(ε = {found.sensitivity:.2f}, {context})."
    )


def _solve(law: Law, batches: Floats, step_s: float, context_tokens: float) -> float:
    """The batch on the curve t(B, B·c), which rises with B; its ends where the step lies outside."""
    curve = roofline.step_s(law, batches, batches * context_tokens)
    return float(np.exp(np.interp(math.log(step_s), np.log(curve), np.log(batches))))
