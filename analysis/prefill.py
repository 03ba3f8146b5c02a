"""Prefill per tier, as the TTFT law sees it, and whether two tiers prefill equally fast."""

import math
from typing import Literal

import numpy as np
from scipy import special

from analysis import intervals, numbers, phrases, ttft_fit
from analysis.arms import Arm
from analysis.model import Estimate, PrefillFit, PrefillTest
from analysis.ttft_law import MODEL_FLOOR, TtftLaw

Answer = Literal["changed", "unchanged", "inconclusive"]

SIGNIFICANCE = 0.05
LARGEST_ERROR = 0.06
"""Of the log ratio of increments; beyond it nothing is called unchanged."""
CERTAIN = 3.0
"""Errors by which a ratio must differ from 1 to be called changed where its error is larger than that."""
COMMON_LENGTHS = 0.8
MOST_QUEUED, LONGEST_WAIT_RATIO = 0.75, 0.5
"""Share of requests that queue, and their mean wait over the increment: beyond both, the lower edge of TTFT,
which the law lives on, is hardly occupied, and of simulated servers one in twenty got a wrong ratio."""
UNKNOWN_ERROR = 0.5
"""Of the log increment: an interval wider than a factor of seven says nothing, and no ratio is printed."""
FEWEST_FREE = 3
"""Requests of the shortest, and of the longest, that did not queue: below, a queue passes for prefill."""
FEWEST_QUEUED = 5
BUSY_QUEUE = 0.5


def fit(arm: Arm) -> TtftLaw | str:
    """Fit the TTFT law to a tier's good requests, or say in a sentence why it cannot be."""
    if len(arm.good) and not arm.streamed:
        return "answers were not streamed, so that there is no TTFT"
    ttft, tokens = arm.good.column("ttft_s"), arm.good.column("uncached_tokens")
    known = np.isfinite(ttft) & (ttft > 0) & (tokens >= 0)
    return ttft_fit.fit(tokens[known], ttft[known])


def describe(arm: Arm, law: TtftLaw | str) -> PrefillFit:
    """The fit as the report holds it; all null, with the reason, where there is none."""
    return describe_law(arm.tier, len(arm.good), law)


def describe_law(tier: str, count: int, law: TtftLaw | str) -> PrefillFit:
    """The same of a law that was fitted on ``count`` requests of a tier, wherever they were kept."""
    if isinstance(law, str):
        return PrefillFit(
            tier=tier,
            requests=count,
            n_low_tokens=None,
            n_high_tokens=None,
            increment_s=intervals.NOTHING,
            rate_tokens_per_s=intervals.NOTHING,
            fixed_s=None,
            per_token_s=None,
            per_token_squared_s=None,
            queued_ratio=None,
            queue_mean_s=None,
            noise_s=None,
            identified=dict.fromkeys(("increment", "quadratic", "queue"), False),
            cautions=[_capital(law) + "."],
        )
    fixed, linear, quadratic = law.coefficients()
    increment = _around(law.increment_s, law.log_increment_error)
    curved = math.isfinite(law.bend_error_s)
    queue_seen = law.queued_ratio * count >= FEWEST_QUEUED
    return PrefillFit(
        tier=tier,
        requests=count,
        n_low_tokens=law.n_low,
        n_high_tokens=law.n_high,
        increment_s=increment,
        rate_tokens_per_s=_around((law.n_high - law.n_low) / law.increment_s, law.log_increment_error),
        fixed_s=fixed,
        per_token_s=linear,
        per_token_squared_s=quadratic if curved else None,
        queued_ratio=law.queued_ratio,
        queue_mean_s=law.queue_mean_s if queue_seen else None,
        noise_s=law.noise_s,
        identified={
            "increment": law.log_increment_error <= LARGEST_ERROR,
            "quadratic": curved and abs(quadratic) > 2 * law.bend_error_s,
            "queue": queue_seen,
        },
        cautions=_cautions(law, curved=curved),
    )


def compare(
    baseline: TtftLaw,
    compared: TtftLaw,
    *,
    margin: float,
    names: tuple[str, str],
    significance: float = SIGNIFICANCE,
) -> PrefillTest:
    """Equivalence of the two increments: two one-sided tests on the difference of their logarithms.

    ``p_value`` is that of the equivalence test: small means shown to be equal within the margin. ``names``
    are those of the two tiers, ``significance`` is that of both tests, and one less the interval's level.
    """
    for name, law in zip(names, (baseline, compared), strict=True):
        refusal = _refusal(law)
        if refusal is not None:
            return untested(f"on {name}, {refusal}", margin=margin)
        if law.log_increment_error > UNKNOWN_ERROR:
            return untested(f"on {name}, {_lost(law)}", margin=margin, error=_error(baseline, compared))
    low, high = max(baseline.n_low, compared.n_low), min(baseline.n_high, compared.n_high)
    if high - low < COMMON_LENGTHS * max(law.n_high - law.n_low for law in (baseline, compared)):
        return untested("the prompt lengths answered by the two tiers hardly overlap", margin=margin)
    ends = np.array([low, high])
    log_ratio = float(np.log(np.diff(baseline.ttft_s(ends)) / np.diff(compared.ttft_s(ends)))[0])
    error = _error(baseline, compared)
    ratio = _around(math.exp(log_ratio), error, level=1 - significance)
    p_value = float(special.ndtr((abs(log_ratio) - math.log1p(margin)) / error))
    answer = _decide(ratio, log_ratio / error, error, p_value, margin, significance)
    return PrefillTest(
        answer=answer,
        speed_ratio=ratio,
        standard_error=error,
        p_value=p_value,
        margin_ratio=margin,
        sentence=_sentence(answer, ratio, p_value, margin, names),
    )


def _error(baseline: TtftLaw, compared: TtftLaw) -> float:
    """Standard error of the log ratio of two increments."""
    return math.hypot(baseline.curvature_error, compared.curvature_error, MODEL_FLOOR)


def untested(why: str, *, margin: float, error: float | None = None) -> PrefillTest:
    """The answer where there is no ratio: no law could be fitted, or its increment is lost in the noise."""
    return PrefillTest(
        answer="inconclusive",
        speed_ratio=intervals.NOTHING,
        standard_error=error,
        p_value=None,
        margin_ratio=margin,
        sentence=f"Prefill could not be compared: {why}.",
    )


def swamped(law: TtftLaw) -> bool:
    """Whether nearly all requests queued, and for long: more of the same then tell no more of prefill."""
    return law.queued_ratio > MOST_QUEUED and law.mean_wait_s > LONGEST_WAIT_RATIO * law.increment_s


def growth(law: TtftLaw) -> float:
    """By how much the requests must grow for enough of them to escape the queue; 1 where enough do."""
    return max(1.0, FEWEST_FREE / max((1 - law.queued_ratio) * law.fewest, 1e-3))


def _refusal(law: TtftLaw) -> str | None:
    """Why a law is not to be compared although it was fitted, or None."""
    if swamped(law):
        return "nearly all requests queued, and for long; a lower load would help"
    if growth(law) > 1:
        return "too few requests of the shortest or longest prompts did not queue"
    return None


def _lost(law: TtftLaw) -> str:
    return (
        f"prompts of {law.n_high:,.0f} tokens are hardly answered later than those of {law.n_low:,.0f}; "
        "longer prompts would help"
    )


def _decide(
    ratio: Estimate, z: float, error: float, p_value: float, margin: float, significance: float
) -> Answer:
    if error <= LARGEST_ERROR and p_value < significance:
        return "unchanged"
    if intervals.outside(ratio, margin) and (error <= LARGEST_ERROR or abs(z) > CERTAIN):
        return "changed"
    return "inconclusive"


def _around(value: float, log_error: float, *, level: float = 1 - SIGNIFICANCE) -> Estimate:
    """An estimate with a lognormal interval."""
    half = float(special.ndtri((1 + level) / 2)) * min(log_error, 100.0)  # beyond, it is endless anyway
    return intervals.estimate(value, value * math.exp(-half), value * math.exp(half), level)


def _cautions(law: TtftLaw, *, curved: bool) -> list[str]:
    said = []
    if not curved:
        said.append("With two prompt lengths the law is a straight line between them.")
    if law.queued_ratio > BUSY_QUEUE:
        said.append(
            f"About {phrases.percent(round(law.queued_ratio, 2))} of requests queued, so hardly any TTFT "
            "is free of it; the increment is, if the queue is the same for all prompt lengths."
        )
    if law.log_increment_error > LARGEST_ERROR:
        said.append("The increment is too uncertain to show that prefill is unchanged.")
    return said


def _sentence(answer: Answer, ratio: Estimate, p_value: float, margin: float, names: tuple[str, str]) -> str:
    baseline, compared = names
    shown = numbers.estimate(ratio, numbers.RATIO)
    within = f"±{phrases.percent(margin)}"
    facts = f"equivalence {phrases.p_value(p_value)}"
    if answer == "unchanged":
        return f"{compared} and {baseline} prefill equally fast within {within}: {shown} ({facts})."
    if answer == "changed":
        return f"{compared} prefills {shown} as fast as {baseline}."
    return (
        f"The ratio of prefill speeds, {shown}, is neither shown to lie within {within} nor clearly beyond "
        f"it ({facts})."
    )


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
