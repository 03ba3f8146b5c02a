"""Writing a report: whole files or none, and one line where a file cannot be written."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from analysis.model import Report
from analysis.rendering import report_json
from analysis.rendering.printable import line, printable
from analysis.report import write
from tierscope.errors import BadInputError


def test_only_the_files_that_were_asked_for_are_written(single_report: Report, tmp_path: Path) -> None:
    write(single_report, html=None, json=tmp_path / "r.json", md=None)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert report_json.decode((tmp_path / "r.json").read_bytes()) == single_report


def test_all_three_say_the_same_headline(ab_report: Report, tmp_path: Path) -> None:
    page, data, text = (tmp_path / f"r.{kind}" for kind in ("html", "json", "md"))
    write(ab_report, html=page, json=data, md=text)
    assert json.loads(data.read_bytes())["headline"] == ab_report.headline
    assert f"# {ab_report.headline}" in text.read_text("utf-8")
    assert "fast decodes 2.51×" in page.read_text("utf-8")
    assert (tmp_path / "r-verdict.svg").is_file()


@pytest.mark.parametrize("kind", ["html", "json", "md"])
def test_a_file_that_cannot_be_written_is_named_with_the_reason(
    failed_report: Report, tmp_path: Path, kind: str
) -> None:
    paths: dict[str, Path | None] = {"html": None, "json": None, "md": None}
    for target, reason in ((tmp_path / "no" / "r", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(BadInputError) as caught:
            write(failed_report, **(paths | {kind: target}))
        assert str(caught.value).startswith(f"{target}: cannot be written: {reason}")
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_as_it_was(
    failed_report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")

    def disk_full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.raises(BadInputError, match=r"r\.json: cannot be written: No space left on device"):
        write(failed_report, html=None, json=path, md=None)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["r.json"]


def test_a_report_that_cannot_be_rendered_touches_no_file(ab_report: Report, tmp_path: Path) -> None:
    broken = structs.replace(
        ab_report,
        tiers=[structs.replace(ab_report.tiers[0], requests="many")],
    )
    with pytest.raises(ValueError, match="requests"):
        write(broken, html=None, json=tmp_path / "r.json", md=None)
    assert list(tmp_path.iterdir()) == []


def test_text_is_made_printable_and_otherwise_left_alone(any_report: Report) -> None:
    once = printable(any_report)
    assert printable(once) == once
    assert once.tiers[0].step_s == any_report.tiers[0].step_s


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – text × µ", "plain – text × µ"),
        ("two\r\n lines\tand", "two  lines and"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("a\u202eb\u2066c\ufeff", "a\ufffdb\ufffdc\ufffd"),
        ("\u2028x\x85y", " x y"),
        ("half \ud83d", "half \ufffd"),
    ],
)
def test_hidden_characters_are_made_visible(text: str, shown: str) -> None:
    assert line(text) == shown
