"""What a reader sees first: the headline, why to trust it, the key numbers and three figures."""

from collections.abc import Mapping, Sequence

from analysis import numbers
from analysis.figures import FIRST_SCREEN, Figure, figures
from analysis.model import DecodeTest, PrefillTest, Report, TierSummary, Verdict
from analysis.page import Chip, KeyNumber, Page, Section
from analysis.sections import sections

_MOST_CAUTIONS = 4
_MOST_TIERS = 2
_FAVOURED = ("sweep", "sweep-ttft", "prefill", "itl", "timeline", "otps", "ttft")
"""Names of figures for the first screen, as far as there are any."""


def page(report: Report) -> Page:
    """Arrange a report: everything in it appears once, the most important first."""
    drawn = figures(report)
    ranked = sorted(
        (figure for figure in drawn if figure.name in _FAVOURED), key=lambda f: _FAVOURED.index(f.name)
    )
    first = ranked[:FIRST_SCREEN]
    rest = [figure for figure in drawn if figure not in first and figure.name != "verdict"]
    return Page(
        title=_title(report),
        subject=_subject(report),
        headline=report.headline,
        lead=_lead(report),
        cautions=_cautions(report),
        chips=[Chip(item.topic, item.level, item.sentence) for item in report.trust],
        key_numbers=_key_numbers(report),
        verdict_figure=next((figure for figure in drawn if figure.name == "verdict"), None),
        figures=first,
        sections=[
            placed for section in sections(report) if (placed := _with_figures(section, rest)) is not None
        ],
        footer=f"tierscope {report.tierscope_version}, report format {report.schema_version}",
    )


def _with_figures(section: Section, drawn: Sequence[Figure]) -> Section | None:
    mine = [figure for figure in drawn if figure.section == section.id]
    if not mine and not section.blocks:
        return None
    return Section(section.id, section.title, section.intro, section.blocks, mine)


def _title(report: Report) -> str:
    names = ", ".join(dict.fromkeys(run.model for run in report.runs))
    return f"{names} · tierscope report" if names else "tierscope report"


def _subject(report: Report) -> list[str]:
    runs = report.runs
    if not runs:
        return []
    measured = sum(run.measured_requests for run in runs)
    pieces = [
        ", ".join(dict.fromkeys(run.model for run in runs)),
        ", ".join(dict.fromkeys(run.url for run in runs)),
        "plan " + ", ".join(dict.fromkeys(run.plan for run in runs)),
        numbers.counted(measured, "measured request"),
    ]
    if len(runs) > 1:
        pieces.append(numbers.counted(len(runs), "run"))
    if any(run.simulated for run in runs):
        pieces.append("simulated")
    if any(run.status != "complete" for run in runs):
        pieces.append("partial")
    return pieces


def _lead(report: Report) -> str:
    sentence = report.verdict.sentence
    return "" if sentence == report.headline else sentence


def _cautions(report: Report) -> list[str]:
    """List what a reader must know before believing the headline, worst first."""
    order = {"bad": 0, "caution": 1}
    doubts = sorted((item for item in report.trust if item.level in order), key=lambda i: order[i.level])
    said = dict.fromkeys([*(item.sentence for item in doubts), *report.verdict.cautions])
    return list(said)[:_MOST_CAUTIONS]


def _key_numbers(report: Report) -> list[KeyNumber]:
    verdict = report.verdict
    found: list[KeyNumber] = []
    if verdict.decode is not None:
        steps = {tier.tier: numbers.duration(tier.step_s.value) for tier in report.tiers}
        found.append(_ratio("Decode speed", verdict.decode, _from_to(verdict, steps, "a token")))
    if verdict.prefill is not None:
        rates = {fit.tier: numbers.number(fit.rate_tokens_per_s.value) for fit in report.prefill}
        found.append(_ratio("Prefill speed", verdict.prefill, _from_to(verdict, rates, "prompt tokens/s")))
    if found:
        return found
    for tier in report.tiers[:_MOST_TIERS]:
        found += _tier_numbers(tier, alone=len(report.tiers) == 1)
    return found


def _ratio(name: str, test: DecodeTest | PrefillTest, note: str) -> KeyNumber:
    value, interval = numbers.split(test.speed_ratio, numbers.RATIO)
    return KeyNumber(name, test.answer, value, interval, note)


def _from_to(verdict: Verdict, values: Mapping[str, str], unit: str) -> str:
    """Write both tiers' values, baseline first: ``22.4 ms → 8.94 ms a token``."""
    baseline, compared = verdict.baseline_tier or "", verdict.compared_tier or ""
    return f"{values.get(baseline, numbers.ABSENT)} → {values.get(compared, numbers.ABSENT)} {unit}"


def _tier_numbers(tier: TierSummary, *, alone: bool) -> list[KeyNumber]:
    speed, speed_interval = numbers.split(tier.tokens_per_s, numbers.TOKENS_PER_S)
    step, step_interval = numbers.time_split(tier.step_s)
    found = []
    if tier.tokens_per_s.value is not None:
        found.append(KeyNumber("Decode speed", "", speed, speed_interval, f"one stream on {tier.tier}"))
    if tier.step_s.value is not None and alone:
        found.append(KeyNumber("Decode step", "", step, step_interval, f"one token on {tier.tier}"))
    return found
