"""What a reader sees first: the headline, why to trust it, the key numbers and three figures."""

from collections.abc import Sequence

from analysis import numbers
from analysis.model import Report
from analysis.rendering.figures import FIRST_SCREEN, figures
from analysis.rendering.key_numbers import batch_numbers, cautions, key_numbers, lead
from analysis.rendering.page import Chip, Figure, Page, Section
from analysis.rendering.sections import sections

_FAVOURED = ("sweep", "sweep-ttft", "prefill", "itl", "timeline", "otps", "ttft")
"""Names of figures for the first screen, as far as there are any."""
_FAVOURED_ONE_LENGTH = ("sweep", "sweep-ttft", "itl", "timeline", "otps", "ttft", "prefill")
"""Without a second prompt length the figure of prefill has a single point."""


def arrange(report: Report) -> Page:
    """Arrange a report: everything in it appears once, the most important first."""
    drawn = figures(report)
    favoured = _FAVOURED if _prompt_lengths(report) > 1 else _FAVOURED_ONE_LENGTH
    ranked = sorted((f for f in drawn if f.name in favoured), key=lambda f: favoured.index(f.name))
    first = ranked[:FIRST_SCREEN]
    rest = [figure for figure in drawn if figure not in first and figure.name != "verdict"]
    verdict_figure = next((figure for figure in drawn if figure.name == "verdict"), None)
    batch = batch_numbers(report)
    return Page(
        title=_title(report),
        subject=_subject(report),
        headline=report.headline,
        lead=lead(report),
        cautions=cautions(report),
        chips=[Chip(item.topic, item.level, item.sentence) for item in report.trust],
        key_numbers=[*key_numbers(report), *([] if verdict_figure else batch)],
        side_numbers=batch if verdict_figure else [],
        verdict_figure=verdict_figure,
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


def _prompt_lengths(report: Report) -> int:
    return len({point.prompt_tokens for point in report.figures.prefill_points})


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
        ", ".join(dict.fromkeys(run.plan if run.seed is None else f"plan {run.plan}" for run in runs)),
        numbers.counted(measured, "measured request"),
    ]
    if len(runs) > 1:
        pieces.append(numbers.counted(len(runs), "run"))
    if any(run.simulated for run in runs):
        pieces.append("simulated")
    if any(run.status != "complete" for run in runs):
        pieces.append("partial")
    return [piece for piece in pieces if piece]
