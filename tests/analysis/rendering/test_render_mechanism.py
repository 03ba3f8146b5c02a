"""Chapters on the mechanism and on fallback: what the JSON holds is on the page, what is unknown says so."""

from pathlib import Path

from msgspec import structs

from analysis.model import (
    Estimate,
    Fallback,
    FallbackEpisode,
    Inseparable,
    MechanismAnswer,
    Report,
    RuleEvidence,
    ServedCount,
)
from analysis.rendering.terminal import summary_lines
from analysis.report import write


def explained(report: Report) -> Report:
    return structs.replace(
        report,
        mechanism=MechanismAnswer(
            answer="smaller batch",
            slower_tier="standard",
            faster_tier="fast",
            sentence="fast shares its steps with fewer sequences.",
            evidence=[
                RuleEvidence(
                    rule="smaller batch",
                    quantity="step ratio",
                    estimate=Estimate(value=2.51, low=2.47, high=2.55),
                    threshold=1.08,
                    holds=True,
                    sentence="Steps <are> shorter.",
                ),
                RuleEvidence(
                    rule="KV quantisation",
                    quantity="ratio of context slopes",
                    estimate=Estimate(value=None),
                    threshold=1.5,
                    holds=None,
                    sentence="Contexts varied too little.",
                ),
            ],
            inseparable=[
                Inseparable(first="smaller batch", second="KV bits", why="Alike.", extra_run="Long contexts.")
            ],
        ),
        fallback=Fallback(
            standard_tier="standard",
            fast_tier="fast",
            share=Estimate(value=0.125, low=0.12, high=0.13),
            identified=True,
            speed_ratio=2.5,
            episodes=[FallbackEpisode(run_id="r", begin_s=12.0, end_s=19.5, requests=20)],
            served=[ServedCount(requested="fast", echoed="priority", measured="standard", count=20)],
            sentence="12.5 % of 160 requests of fast ran at standard's speed.",
        ),
    )


def test_the_page_shows_each_rule_and_what_cannot_be_told(ab_report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    write(explained(ab_report), html=None, json=None, md=path)
    text = path.read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert any(row[:2] == ["smaller batch", "step ratio"] and row[4] == "yes" for row in rows)
    unknown = next(row for row in rows if row[0] == "KV quantisation")
    assert unknown[4] == "cannot be said"
    assert "not identified" in unknown[2]
    assert any(row[:2] == ["smaller batch", "KV bits"] for row in rows)
    assert ["fast", "priority", "standard", "20"] in rows
    assert any(row[0] == "r" and row[-1] == "20" for row in rows)


def test_the_terminal_names_mechanism_and_share(ab_report: Report) -> None:
    lines = summary_lines(explained(ab_report))
    assert any("Mechanism" in line and "smaller batch" in line for line in lines)
    assert any("Fallback" in line and "12.5" in line for line in lines)
    plain = summary_lines(ab_report)
    assert not any("Mechanism" in line or "Fallback" in line for line in plain)


def test_a_page_without_an_answer_has_no_such_chapter(ab_report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    write(ab_report, html=None, json=None, md=path)
    assert "By which means" not in path.read_text(encoding="utf-8")
