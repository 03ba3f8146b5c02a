"""The few plain lines that a terminal shows."""

import re

from msgspec import structs

from analysis.model import Report
from analysis.report import summary_lines


def test_the_first_line_is_the_headline(any_report: Report) -> None:
    first = summary_lines(any_report)[0]
    assert first.split()[0] == any_report.headline.split()[0]


def test_a_comparison_says_both_ratios_the_batch_and_the_trust(ab_report: Report) -> None:
    text = "\n".join(summary_lines(ab_report))
    assert re.search(r"Decode speed +2\.51× \(2\.47–2\.55\) +changed +22\.4 ms → 8\.94 ms a token", text)
    assert re.search(r"Prefill speed +1\.00× \(0\.97–1\.03\) +unchanged", text)
    assert re.search(r"Batch +118 \(97–141\) +standard, white box", text)
    assert re.search(r"Batch +9 \(1–31\) +fast, white box, not identified", text)
    assert re.search(r"Trust +4 good, 1 caution", text)
    assert "! 2 of 160 responses to fast say that default had served them" in text


def test_an_open_comparison_says_how_many_more_requests_it_takes(ab_report: Report) -> None:
    open_verdict = structs.replace(
        ab_report.verdict, conclusion="inconclusive", more_requests_per_tier=120, cautions=[]
    )
    lines = summary_lines(structs.replace(ab_report, verdict=open_verdict))
    assert lines[-1] == "  ! About 120 more requests per tier would settle it."


def test_a_run_without_an_answer_says_why_it_has_none(failed_report: Report) -> None:
    text = "\n".join(summary_lines(failed_report))
    assert "40 of 40" in text
    assert "connect_error: [Errno 111] Connection refused" in text


def test_nothing_from_a_server_moves_the_cursor(any_report: Report) -> None:
    for line in summary_lines(any_report):
        assert line.isprintable()


def test_no_absent_number_is_printed(any_report: Report) -> None:
    assert not re.search(r"\b(nan|None|inf)\b", "\n".join(summary_lines(any_report)))
