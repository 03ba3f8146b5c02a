"""The few numbers that a page and a terminal show large, and what to mind about them. Pure."""

from collections.abc import Mapping

from analysis import numbers
from analysis.model import BatchAnswer, DecodeTest, Estimate, PrefillTest, Report, TierSummary, Verdict
from analysis.rendering.page import KeyNumber

_MOST_CAUTIONS = 4
_MOST_TIERS = 2
_MOST_BATCH_NUMBERS = 2


def key_numbers(report: Report) -> list[KeyNumber]:
    """Choose them: speed ratios of a comparison, else speeds of the tiers, else what went wrong."""
    verdict = report.verdict
    found: list[KeyNumber] = []
    if verdict.decode is not None:
        steps = {tier.tier: numbers.duration(tier.step_s.value) for tier in report.tiers}
        found.append(_ratio("Decode speed", verdict.decode, _from_to(verdict, steps, "a token")))
    if verdict.prefill is not None:
        known = [fit for fit in report.prefill if verdict.prefill.speed_ratio.value is not None]
        rates = {fit.tier: numbers.number(fit.rate_tokens_per_s.value) for fit in known}
        found.append(_ratio("Prefill speed", verdict.prefill, _from_to(verdict, rates, "prompt tokens/s")))
    if not found:
        for tier in report.tiers[:_MOST_TIERS]:
            found += _tier_numbers(tier, alone=len(report.tiers) == 1)
    return found or _failures(report)


def batch_numbers(report: Report) -> list[KeyNumber]:
    """Choose what is best known of the batch: identified answers first, then bounds."""
    bounds = [
        a for a in report.batch if not a.identified and a.estimate.value is None and _one_sided(a.estimate)
    ]
    best = [answer for answer in report.batch if answer.identified] + bounds
    return [_batch_number(answer, report.verdict) for answer in best[:_MOST_BATCH_NUMBERS]]


def quantity_unit(answer: BatchAnswer) -> numbers.Unit:
    """Return the unit that an answer's estimate is written in."""
    if answer.quantity == "batch ratio baseline/compared":
        return numbers.RATIO
    return numbers.PERCENT if answer.quantity == "batch share of step, compared" else numbers.COUNT


def cautions(report: Report) -> list[str]:
    """List what a reader must know before believing the headline, worst first, a few at most."""
    order = {"bad": 0, "caution": 1}
    doubts = sorted((item for item in report.trust if item.level in order), key=lambda i: order[i.level])
    said = dict.fromkeys([*(item.sentence for item in doubts), *report.verdict.cautions])
    return list(said)[:_MOST_CAUTIONS]


def lead(report: Report) -> str:
    """Return the verdict's sentence, or nothing where the headline has it already or nothing was compared."""
    verdict = report.verdict
    return (
        ""
        if verdict.compared_tier is None or report.headline.endswith(verdict.sentence)
        else verdict.sentence
    )


def _ratio(name: str, test: DecodeTest | PrefillTest, note: str) -> KeyNumber:
    value, interval = numbers.split(test.speed_ratio, numbers.RATIO)
    return KeyNumber(name, test.answer, value, interval, note)


def _from_to(verdict: Verdict, values: Mapping[str, str], unit: str) -> str:
    """Write both tiers' values, baseline first: ``22.4 ms → 8.94 ms``; nothing if neither is known."""
    baseline, compared = verdict.baseline_tier or "", verdict.compared_tier or ""
    if all(values.get(tier, numbers.ABSENT) == numbers.ABSENT for tier in (baseline, compared)):
        return ""
    return f"{values.get(baseline, numbers.ABSENT)} → {values.get(compared, numbers.ABSENT)} {unit}"


def _tier_numbers(tier: TierSummary, *, alone: bool) -> list[KeyNumber]:
    speed, speed_interval = numbers.split(tier.tokens_per_s, numbers.TOKENS_PER_S)
    step, step_interval = numbers.time_split(tier.step_s)
    found = []
    if tier.tokens_per_s.value is not None:
        found.append(KeyNumber("Decode speed", "", speed, speed_interval, f"one stream on {tier.tier}"))
    if tier.step_s.value is not None and alone:
        found.append(KeyNumber("Decode step", "", step, step_interval, f"one token on {tier.tier}"))
    ttft = next((row.p50 for row in tier.quantiles if row.metric == "ttft"), Estimate(value=None))
    if ttft.value is not None and alone:
        found.append(KeyNumber("First token after", "", *numbers.time_split(ttft), f"median on {tier.tier}"))
    return found


def _failures(report: Report) -> list[KeyNumber]:
    asked = sum(tier.requests for tier in report.tiers)
    failed = sum(count for tier in report.tiers for name, count in tier.outcomes.items() if name != "ok")
    if not failed:
        return []
    causes = [f"{group.outcome}: {group.detail}" for group in report.errors]
    return [KeyNumber("Failed", "", f"{failed:,} of {asked:,}", "", causes[0] if causes else "requests")]


def _batch_number(answer: BatchAnswer, verdict: Verdict) -> KeyNumber:
    value, interval = numbers.split(answer.estimate, quantity_unit(answer))
    if answer.quantity == "batch ratio baseline/compared":
        return KeyNumber(
            "Batch ratio",
            "",
            value,
            interval,
            f"{verdict.baseline_tier} / {verdict.compared_tier}, {answer.method}",
        )
    label = answer.quantity.partition(",")[0].capitalize()
    return KeyNumber(label, "", value, interval, f"{answer.tier}, {answer.method}")


def _one_sided(found: Estimate) -> bool:
    return (found.low is None) != (found.high is None)
