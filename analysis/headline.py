"""The one line for a person in a hurry."""

from collections import Counter

from analysis import numbers
from analysis.arms import Arm
from analysis.model import TierSummary, Verdict


def write(verdict: Verdict, arms: list[Arm], tiers: list[TierSummary]) -> str:
    """Say the verdict with its numbers, or, where there is none, the most important thing that is known."""
    requests = sum(tier.requests for tier in tiers)
    good = sum(len(arm.good) for arm in arms)
    if requests == 0:
        return "No request was measured: only warm-up was recorded."
    if good == 0:
        return f"None of {numbers.counted(requests, 'request')} succeeded: {_commonest(tiers)}."
    if verdict.conclusion != "inconclusive":
        return verdict.sentence
    if verdict.compared_tier is None:
        return _alone(tiers[0])
    return f"Inconclusive. {verdict.sentence}"


def _alone(tier: TierSummary) -> str:
    ttft = next((row.p50 for row in tier.quantiles if row.metric == "ttft"), None)
    parts = []
    if tier.tokens_per_s.value is not None:
        parts.append(f"decodes {numbers.estimate(tier.tokens_per_s, numbers.TOKENS_PER_S)} per stream")
    if ttft is not None and ttft.value is not None:
        parts.append(f"answers after {numbers.time_estimate(ttft)} in the median")
    said = " and ".join(parts) or "brought no output whose speed could be measured"
    return f"{tier.tier} {said}; one tier alone, so nothing is compared."


def _commonest(tiers: list[TierSummary]) -> str:
    counts: Counter[str] = Counter()
    for tier in tiers:
        counts.update({str(name): count for name, count in tier.outcomes.items()})
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.most_common(3))
