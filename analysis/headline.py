"""The one line for a person in a hurry."""

from analysis import numbers
from analysis.model import ErrorGroup, TierSummary, Verdict


def write(verdict: Verdict, tiers: list[TierSummary], errors: list[ErrorGroup]) -> str:
    """Say the verdict with its numbers, or, where there is none, the most important thing that is known."""
    requests = sum(tier.requests for tier in tiers)
    good = sum(tier.outcomes.get("ok", 0) for tier in tiers)
    if requests == 0:
        return "No request was measured: only warm-up was recorded."
    if good == 0:
        return f"None of {numbers.counted(requests, 'request')} succeeded{_commonest(errors)}."
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
    e2e = next((row.p50 for row in tier.quantiles if row.metric == "e2e"), None)
    if not parts and e2e is not None and e2e.value is not None:
        parts.append(f"ends its answers after {numbers.time_estimate(e2e)} in the median")
    said = " and ".join(parts) or "brought no output whose speed could be measured"
    return f"{tier.tier} {said}; one tier alone, so nothing is compared."


def _commonest(errors: list[ErrorGroup]) -> str:
    if not errors:
        return ""
    first = errors[0]
    what = " ".join(str(part) for part in (first.outcome.replace("_", " "), first.status) if part is not None)
    return f"; most often {what}{f' ({first.detail})' if first.detail else ''}"
