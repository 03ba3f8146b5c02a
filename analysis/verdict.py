"""Does the compared tier change decode, prefill, or both? Two tests joined into one of five answers.

"Unchanged" is a claim like any other and has to be shown: the ratio must be known well enough to lie inside
the margin. A difference that was not found is no equality; then the answer is "inconclusive", with how many
more requests it would take.
"""

import math
from typing import Literal

from scipy import special

from analysis import cautions, decode, numbers, phrases, prefill, steps
from analysis.arms import Arm
from analysis.model import Conclusion, DecodeTest, Estimate, PrefillTest, Verdict
from analysis.ttft_law import MODEL_FLOOR, TtftLaw

ENOUGH_PER_TIER = 80
"""Requests at which both tests have a power of about 0.9 on ordinary servers (docs/inference.md)."""
MOST_FACTOR = 50
SIGNIFICANCE = 0.05
"""Of each test; one that is made several times while a run lasts is stricter (``sequential``)."""

Answer = Literal["changed", "unchanged", "inconclusive"]
_CONCLUSIONS: dict[tuple[Answer, Answer], Conclusion] = {
    ("changed", "unchanged"): "decode changed, prefill unchanged",
    ("changed", "changed"): "both changed",
    ("unchanged", "changed"): "only prefill changed",
    ("unchanged", "unchanged"): "neither changed",
}


def compare(
    arms: tuple[Arm, Arm],
    laws: tuple[TtftLaw | str, TtftLaw | str],
    *,
    decode_margin: float,
    prefill_margin: float,
    significance: float = SIGNIFICANCE,
) -> Verdict:
    """Verdict on the second arm against the first, the baseline; ``significance`` is that of each test."""
    names = (arms[0].tier, arms[1].tier)
    pairs, refusal = decode.pair(arms[0].good, arms[1].good), _refusal(arms)
    decode_test = decode.compare(
        pairs, margin=decode_margin, names=names, refusal=refusal, significance=significance
    )
    prefill_test = _prefill_test(laws, prefill_margin, names, significance)
    per_tier = min(len(arm.good) for arm in arms)
    conclusion = conclude(decode_test, prefill_test)
    more = None
    if conclusion != "inconclusive" or not _hopeless(refusal, laws):
        more = more_requests(
            decode_test,
            prefill_test,
            per_tier,
            significance=significance,
            unqueued_growth=_unqueued_growth(laws),
        )
    return Verdict(
        conclusion=conclusion,
        sentence=sentence(conclusion, decode_test, prefill_test, names, more),
        baseline_tier=names[0],
        compared_tier=names[1],
        decode=decode_test,
        prefill=prefill_test,
        more_requests_per_tier=more,
        cautions=cautions.of_verdict(arms, laws, decode_test, prefill_test),
    )


def only_one_tier(tier: str) -> Verdict:
    """The verdict on a run that has nothing to compare."""
    return Verdict(
        conclusion="inconclusive",
        sentence=f"Only one tier, {tier}, was run: there is nothing to compare it with.",
        baseline_tier=tier,
        compared_tier=None,
        decode=None,
        prefill=None,
        more_requests_per_tier=None,
        cautions=[],
    )


def more_requests(
    decode_test: DecodeTest,
    prefill_test: PrefillTest,
    per_tier: int,
    *,
    significance: float = SIGNIFICANCE,
    unqueued_growth: float = math.nan,
) -> int | None:
    """Roughly how many more requests per tier would settle what is open; 0 if nothing is, None if none would.

    Intervals, whose level is 1 − ``significance``, shrink as 1/√n around the ratios as they are now. Where
    there is no ratio of prefill, ``unqueued_growth`` says by how much the requests must grow for one.
    """
    factors: list[float] = []
    score = -float(special.ndtri(significance / 2))
    if decode_test.answer == "inconclusive":
        factors.append(_growth(decode_test.speed_ratio, decode_test.margin_ratio, reach=1.0, fixed=0.0))
    if prefill_test.answer == "inconclusive":
        # "Unchanged" is shown on one side (by 95 % the 90 % interval has to lie inside the margin), and the
        # model's own error never shrinks.
        reach = -float(special.ndtri(significance)) / score
        ratio, margin = prefill_test.speed_ratio, prefill_test.margin_ratio
        if ratio.value is None and prefill_test.standard_error is not None:
            factors.append((prefill_test.standard_error / prefill.LARGEST_ERROR) ** 2)
        elif ratio.value is None:
            factors.append(unqueued_growth)
        else:
            factors.append(_growth(ratio, margin, reach=reach, fixed=score * MODEL_FLOOR))
    if not factors:
        return 0
    if any(math.isnan(factor) for factor in factors):
        return ENOUGH_PER_TIER - per_tier if per_tier < ENOUGH_PER_TIER else None
    if max(factors) > MOST_FACTOR:
        return None
    return _two_digits(max(1, math.ceil(per_tier * (max(factors) - 1) - 1e-6)))


def _growth(ratio: Estimate, margin: float, *, reach: float, fixed: float) -> float:
    """By how much n must grow; NaN without an interval, infinity where no n is enough.

    ``reach`` is the share of the interval's half that has to fit into the margin, ``fixed`` what of it never
    shrinks.
    """
    if ratio.value is None or ratio.low is None or ratio.high is None:
        return math.nan
    distance = abs(math.log(ratio.value))
    half = math.log(ratio.high / ratio.low) / 2
    room = (math.log1p(margin) - distance) / reach if distance < math.log1p(margin) else distance
    return max(1.0, (half**2 - fixed**2) / (room**2 - fixed**2)) if room > fixed else math.inf


def _two_digits(count: int) -> int:
    scale: int = 10 ** max(0, len(str(count)) - 2)
    return -(-count // scale) * scale


def _hopeless(refusal: str | None, laws: tuple[TtftLaw | str, TtftLaw | str]) -> bool:
    """Whether more requests of the same kind would leave open what is open now."""
    return refusal is not None or any(isinstance(law, TtftLaw) and prefill.swamped(law) for law in laws)


def _unqueued_growth(laws: tuple[TtftLaw | str, TtftLaw | str]) -> float:
    """By how much requests must grow for enough of both tiers to escape the queue; NaN if that is not it."""
    growths = [prefill.growth(law) for law in laws if isinstance(law, TtftLaw)]
    return max(growths) if len(growths) == len(laws) and max(growths) > 1 else math.nan


def _refusal(arms: tuple[Arm, Arm]) -> str | None:
    """Why decode cannot be compared although there are gaps, or None."""
    for arm in arms:
        if len(arm.good) and not arm.streamed:
            return f"{arm.tier}'s answers were not streamed, so that no token has an instant"
        share = steps.loaded_share(arm.good)
        if share >= steps.REFUSE_LOADED:
            return (
                f"{phrases.percent(round(share, 2))} of {arm.tier}'s gaps carry somebody's prefill, so that "
                "its step time cannot be read"
            )
    return None


def _prefill_test(
    laws: tuple[TtftLaw | str, TtftLaw | str], margin: float, names: tuple[str, str], significance: float
) -> PrefillTest:
    baseline, compared = laws
    if isinstance(baseline, str):
        return prefill.untested(f"on {names[0]}, {baseline}", margin=margin)
    if isinstance(compared, str):
        return prefill.untested(f"on {names[1]}, {compared}", margin=margin)
    return prefill.compare(baseline, compared, margin=margin, names=names, significance=significance)


def conclude(decode_test: DecodeTest, prefill_test: PrefillTest) -> Conclusion:
    """Join the answers of both tests into one of five."""
    return _CONCLUSIONS.get((decode_test.answer, prefill_test.answer), "inconclusive")


def sentence(
    conclusion: Conclusion,
    decode_test: DecodeTest,
    prefill_test: PrefillTest,
    names: tuple[str, str],
    more: int | None,
) -> str:
    """Say a conclusion with its ratios; ``more`` is how many more requests per tier would settle it."""
    baseline, compared = names
    decodes = numbers.estimate(decode_test.speed_ratio, numbers.RATIO)
    prefills = numbers.estimate(prefill_test.speed_ratio, numbers.RATIO)
    if conclusion == "decode changed, prefill unchanged":
        return f"{compared} decodes {decodes} as fast as {baseline}; prefill is unchanged, {prefills}."
    if conclusion == "both changed":
        return f"{compared} decodes {decodes} and prefills {prefills} as fast as {baseline}."
    if conclusion == "only prefill changed":
        return f"{compared} prefills {prefills} as fast as {baseline}; decode is unchanged, {decodes}."
    if conclusion == "neither changed":
        return f"{compared} and {baseline} are equally fast: decode {decodes}, prefill {prefills}."
    # What is known comes first, and what is open says why.
    tests: list[DecodeTest | PrefillTest] = [decode_test, prefill_test]
    known_first = sorted(tests, key=lambda test: test.answer == "inconclusive")
    return " ".join([*(test.sentence for test in known_first), _more_text(more)])


def _more_text(more: int | None) -> str:
    if more is None:
        return "More requests of the same kind would not settle it."
    return f"About {more} more requests per tier would settle it."
