"""What a reader sees first: the headline, why to trust it, the key numbers and three figures."""

from collections.abc import Sequence

from analysis import numbers
from analysis.figures import FIRST_SCREEN, figures
from analysis.key_numbers import cautions, key_numbers, lead
from analysis.model import Report
from analysis.page import Chip, Figure, Page, Section
from analysis.sections import sections

_FAVOURED = ("sweep", "sweep-ttft", "prefill", "itl", "timeline", "otps", "ttft")
"""Names of figures for the first screen, as far as there are any."""


def arrange(report: Report) -> Page:
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
        lead=lead(report),
        cautions=cautions(report),
        chips=[Chip(item.topic, item.level, item.sentence) for item in report.trust],
        key_numbers=key_numbers(report),
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
