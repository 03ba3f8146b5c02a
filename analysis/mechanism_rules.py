"""The rules on the mechanism of a fast tier, each with the evidence it rests on. Pure of any decision.

Each takes what was measured on the slower and on the faster tier and says whether its mark is there: yes, no,
or that this run cannot say. All ratios are slower over faster: above 1 is what a fast tier buys.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis import numbers, own_context, speeds, steps, waits
from analysis.arms import Arm
from analysis.model import DecodeTest, Estimate, Mechanism, PrefillTest, RuleEvidence
from analysis.own_context import ContextSlope
from analysis.prefill import CERTAIN
from analysis.speeds import Deliveries
from analysis.waits import Wait

MORE_TOKENS, MORE_TRIPLES, LEAST_VARIATION = 0.25, 0.02, 0.1
"""By how much tokens per delivery and the share of three or more must rise, and how much they vary: drafts
are accepted at random, while a server that packs tokens packs as many into each event."""
PREFILL_RATIO, SLOPE_RATIO, STEP_RATIO, WAIT_RATIO = 1.15, 1.5, 1.08, 2.0
SLOPE_CERTAIN = 5.0
MOST_REQUESTS = 10_000
_HALF = float(special.ndtri(0.975))


@dataclass(frozen=True, slots=True)
class Seen:
    """What was measured on the two tiers; pairs are (slower, faster). None: not to be had from this run."""

    names: tuple[str, str]
    step_ratio: Estimate
    refusal: str | None
    """Why steps cannot be compared, or None."""
    prefill_ratio: Estimate
    prefill_error: float | None
    deliveries: tuple[Deliveries | None, Deliveries | None]
    steps_s: tuple[float | None, float | None]
    stalled_s: tuple[float | None, float | None]
    slopes: tuple[ContextSlope | None, ContextSlope | None]
    waits: tuple[Wait | None, Wait | None]


def look(arms: tuple[Arm, Arm], decode: DecodeTest, prefill: PrefillTest) -> Seen:
    """Measure all that the rules need, in the order of the arms (which may not be slower, faster)."""
    a, b = (_bounded(arm) for arm in arms)
    loaded = any(steps.loaded_share(arm.good) >= steps.REFUSE_LOADED for arm in arms)
    return Seen(
        names=(a.tier, b.tier),
        step_ratio=decode.speed_ratio,
        refusal=decode.sentence if loaded else None,
        prefill_ratio=prefill.speed_ratio,
        prefill_error=prefill.standard_error,
        deliveries=(speeds.deliveries(a), speeds.deliveries(b)),
        steps_s=(speeds.median_step(a).value, speeds.median_step(b).value),
        stalled_s=(speeds.stalled_step_s(a), speeds.stalled_step_s(b)),
        slopes=(own_context.measure(a.good, a.step_gaps), own_context.measure(b.good, b.step_gaps)),
        waits=waits.measure((a, b), common=not _clearly_apart(prefill)) or (None, None),
    )


def _bounded(arm: Arm) -> Arm:
    """The arm without what comes after its first ``MOST_REQUESTS`` good requests: they tell enough."""
    if len(arm.good) <= MOST_REQUESTS:
        return arm
    kept = np.arange(len(arm.good)) < MOST_REQUESTS
    return Arm(
        tier=arm.tier,
        requests=arm.requests,
        good=arm.good.where(kept),
        step_gaps=arm.step_gaps.where(kept),
        token_gaps=arm.token_gaps.where(kept),
    )


def flipped(seen: Seen) -> Seen:
    """The same with the tiers exchanged."""
    return Seen(
        names=seen.names[::-1],
        step_ratio=_inverse(seen.step_ratio),
        refusal=seen.refusal,
        prefill_ratio=_inverse(seen.prefill_ratio),
        prefill_error=seen.prefill_error,
        deliveries=seen.deliveries[::-1],
        steps_s=seen.steps_s[::-1],
        stalled_s=seen.stalled_s[::-1],
        slopes=seen.slopes[::-1],
        waits=seen.waits[::-1],
    )


def evidence(seen: Seen) -> list[RuleEvidence]:
    """All rules, in the order in which they decide."""
    return [speculative(seen), hardware(seen), kv_bits(seen), batch(seen), priority(seen)]


def speculative(seen: Seen) -> RuleEvidence:
    """Several tokens leave at once, and not always as many."""
    slow, fast = seen.deliveries
    quantity = "more tokens per delivery"
    if slow is None or fast is None:
        return _unknown("speculative decoding", quantity, MORE_TOKENS, "Too few deliveries to count tokens.")
    more = fast.mean_tokens - slow.mean_tokens
    triples = fast.three_or_more_ratio - slow.three_or_more_ratio
    holds = more > MORE_TOKENS and triples > MORE_TRIPLES and fast.variation_ratio > LEAST_VARIATION
    half = _HALF * math.hypot(slow.mean_error, fast.mean_error)
    return _evidence(
        "speculative decoding",
        quantity,
        Estimate(value=more, low=more - half, high=more + half),
        MORE_TOKENS,
        holds,
        f"{slow.mean_tokens:.2f} tokens per delivery on {seen.names[0]} and {fast.mean_tokens:.2f} on "
        f"{seen.names[1]}; three or more in {numbers.share(slow.three_or_more_ratio)} and "
        f"{numbers.share(fast.three_or_more_ratio)} of the deliveries.",
    )


def hardware(seen: Seen) -> RuleEvidence:
    """Prompts are read faster, and not only because fewer decoding sequences share their chunks."""
    rule: Mechanism = "faster hardware or smaller model"
    ratio, error = seen.prefill_ratio, seen.prefill_error
    if ratio.value is None or error is None:
        return _unknown(rule, "prefill ratio", PREFILL_RATIO, "The prefill of the two tiers has no ratio.")
    z = math.log(ratio.value) / error
    shown = f"Prefill ratio {numbers.estimate(ratio, numbers.RATIO)}, {z:.1f} errors from 1"
    faster = ratio.value > PREFILL_RATIO and z > CERTAIN
    if faster and (alone := without_decoding(seen)) is not None and alone <= PREFILL_RATIO:
        said = (
            f"{shown}; but prompts are read in chunks that share their steps with decoding, and without "
            f"those steps the ratio is {alone:.2f}: a smaller batch explains it as well."
        )
        return _evidence(rule, "prefill ratio", ratio, PREFILL_RATIO, None, said)
    open_ = not faster and (ratio.high is None or ratio.high > PREFILL_RATIO)
    return _evidence(rule, "prefill ratio", ratio, PREFILL_RATIO, None if open_ else faster, f"{shown}.")


def without_decoding(seen: Seen) -> float | None:
    """The prefill ratio if every chunk had paid its decode step in full; None where chunks are not seen.

    A chunk's step takes between its own work and the sum of its work and a decode step, so that the truth
    lies between the ratio as measured and this one.
    """
    slow, fast = (
        None if step is None or stalled is None or stalled <= step else 1 - step / stalled
        for step, stalled in zip(seen.steps_s, seen.stalled_s, strict=True)
    )
    if slow is None or fast is None or seen.prefill_ratio.value is None:
        return None
    return seen.prefill_ratio.value * slow / fast


def kv_bits(seen: Seen) -> RuleEvidence:
    """A token of own context costs less."""
    slow, fast = seen.slopes
    quantity = "ratio of context slopes"
    if slow is None or fast is None:
        return _unknown("KV quantisation", quantity, SLOPE_RATIO, "Contexts varied too little for a slope.")
    shown = (
        f"1,000 tokens of own context cost {_per_thousand(slow)} a step on {seen.names[0]} and "
        f"{_per_thousand(fast)} on {seen.names[1]}"
    )
    if slow.z <= SLOPE_CERTAIN:
        said = f"{shown}: too uncertain; it takes {SLOPE_CERTAIN:g} errors on the slower tier."
        return _unknown("KV quantisation", quantity, SLOPE_RATIO, said)
    z = (slow.slope_s - fast.slope_s) / math.hypot(slow.error_s, fast.error_s)
    holds = slow.slope_s > SLOPE_RATIO * fast.slope_s and z > CERTAIN
    ratio = _slope_ratio(slow, fast)
    known = holds or (ratio.high is not None and ratio.high < SLOPE_RATIO + 0.5)
    said = f"{shown}, {z:.1f} errors apart."
    return _evidence("KV quantisation", quantity, ratio, SLOPE_RATIO, holds if known else None, said)


def batch(seen: Seen) -> RuleEvidence:
    """Steps are shorter."""
    ratio = seen.step_ratio
    if seen.refusal is not None or ratio.value is None or ratio.low is None or ratio.high is None:
        why = seen.refusal or "Too few pairs of requests with a step time."
        return _unknown("smaller batch", "step ratio", STEP_RATIO, why)
    holds = ratio.value > STEP_RATIO and ratio.low > 1
    open_ = not holds and ratio.high > STEP_RATIO
    said = f"Step ratio {numbers.estimate(ratio, numbers.RATIO)}."
    return _evidence("smaller batch", "step ratio", ratio, STEP_RATIO, None if open_ else holds, said)


def priority(seen: Seen) -> RuleEvidence:
    """Requests wait less, while steps are the same."""
    slow, fast = seen.waits
    if slow is None or fast is None:
        return _unknown("priority only", "queue wait ratio", WAIT_RATIO, "Too few requests have a TTFT.")
    ratio, z = waits.ratio(slow, fast)
    said = (
        f"Requests waited {numbers.duration(slow.mean_s)} on {seen.names[0]} and "
        f"{numbers.duration(fast.mean_s)} on {seen.names[1]}, {z:.1f} errors apart."
    )
    if max(slow.mean_s - slow.none_s, fast.mean_s - fast.none_s) <= 0:
        said = f"{said} Nobody queued, so that a place further ahead could not show."
        return _evidence("priority only", "queue wait ratio", Estimate(value=ratio), WAIT_RATIO, None, said)
    holds = ratio > WAIT_RATIO and z > CERTAIN
    return _evidence("priority only", "queue wait ratio", Estimate(value=ratio), WAIT_RATIO, holds, said)


def _clearly_apart(prefill: PrefillTest) -> bool:
    ratio, error = prefill.speed_ratio.value, prefill.standard_error
    return ratio is not None and error is not None and abs(math.log(ratio)) > max(0.1, CERTAIN * error)


def _slope_ratio(slow: ContextSlope, fast: ContextSlope) -> Estimate:
    """Ratio with its interval on the logarithm; only a bound from below where the second may be 0."""
    low = max(slow.slope_s - _HALF * slow.error_s, 0.0) / max(fast.slope_s + _HALF * fast.error_s, 1e-15)
    if fast.z <= _HALF:
        return Estimate(value=None, low=low)
    value = slow.slope_s / fast.slope_s
    spread = math.exp(_HALF * math.hypot(1 / slow.z, 1 / fast.z))
    return Estimate(value=value, low=value / spread, high=value * spread)


def _per_thousand(slope: ContextSlope) -> str:
    value, error = 1e3 * slope.slope_s, 1e3 * slope.error_s
    return f"{numbers.duration(value)} ± {numbers.duration(error)}"


def _inverse(ratio: Estimate) -> Estimate:
    def over(x: float | None) -> float | None:
        return None if x is None or x <= 0 else 1 / x

    return Estimate(value=over(ratio.value), low=over(ratio.high), high=over(ratio.low), level=ratio.level)


def _unknown(rule: Mechanism, quantity: str, threshold: float, sentence: str) -> RuleEvidence:
    return _evidence(rule, quantity, Estimate(value=None), threshold, None, sentence)


def _evidence(
    rule: Mechanism, quantity: str, estimate: Estimate, threshold: float, holds: bool | None, sentence: str
) -> RuleEvidence:
    return RuleEvidence(
        rule=rule, quantity=quantity, estimate=estimate, threshold=threshold, holds=holds, sentence=sentence
    )
