"""The Markdown report, read by another program's parser (markdown-it-py, which rich brings along)."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from analysis.model import Report
from analysis.rendering import markdown
from analysis.report import write

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.fixture(scope="session")
def folder(any_report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("md")
    write(any_report, html=None, json=None, md=out / "a report.md")
    return out


@pytest.fixture(scope="session")
def tokens(folder: Path) -> list[Token]:
    found: list[Token] = []
    for token in PARSER.parse((folder / "a report.md").read_text(encoding="utf-8")):
        found += [token, *(token.children or [])]
    return found


def test_only_our_own_markup_comes_out(tokens: list[Token]) -> None:
    kinds = {token.type for token in tokens}
    assert not kinds & {"html_block", "html_inline", "link_open", "code_inline", "blockquote_open", "em_open"}
    assert sum(token.type == "heading_open" and token.tag == "h1" for token in tokens) == 1


def test_every_table_row_has_as_many_cells_as_its_head(folder: Path) -> None:
    rendered = PARSER.render((folder / "a report.md").read_text(encoding="utf-8"))
    tables = re.findall(r"<table>.*?</table>", rendered, re.DOTALL)
    assert tables
    for table in tables:
        counts = {
            len(re.findall(r"<t[hd][ >]", row)) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
        }
        assert len(counts) == 1


def test_every_figure_lies_beside_it_as_a_whole_svg_with_text_for_the_blind(
    folder: Path, tokens: list[Token]
) -> None:
    images = [token for token in tokens if token.type == "image"]
    assert {str(image.attrs["src"]).replace("%20", " ") for image in images} == {
        path.name for path in folder.glob("*.svg")
    }
    assert all(len(image.content) > 40 for image in images)
    for path in folder.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in text


def test_the_command_to_repeat_a_run_comes_out_as_it_is(folder: Path, any_report: Report) -> None:
    blocks = [t for t in PARSER.parse((folder / "a report.md").read_text("utf-8")) if t.type == "fence"]
    assert len(blocks) == 1
    for run in any_report.runs:
        assert re.sub(r"\s+", " ", run.repeat_command) in blocks[0].content


def test_no_absent_number_is_printed(folder: Path) -> None:
    text = (folder / "a report.md").read_text(encoding="utf-8")
    assert not re.search(r"\b(nan|None|inf)\b", text)


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), min_size=1))
def test_escaped_text_shows_as_it_was(text: str) -> None:
    (block,) = [t for t in PARSER.parse(f"x {markdown.escape(text)} y") if t.type == "inline"]
    assert {child.type for child in block.children or []} <= {"text"}
    assert "".join(child.content for child in block.children or []) == f"x {text} y"


@pytest.mark.parametrize(
    "text", ["- item", "1. item", "+ x", "# head", "> quote", "---", "===", "2) x", "| a |"]
)
def test_a_line_of_text_never_becomes_a_block_of_another_kind(text: str) -> None:
    blocks = [token.type for token in PARSER.parse(markdown.escape(text))]
    assert blocks == ["paragraph_open", "inline", "paragraph_close"]
