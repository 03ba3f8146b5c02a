"""The HTML page as a browser and a screen reader meet it, read by the standard library's parser."""

import base64
import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from analysis.model import Report
from analysis.rendering import html

VOID = {"meta", "link", "input", "br", "hr", "img", "wbr"}
LOADING = {"src", "srcset", "data", "poster", "background", "action", "formaction", "ping", "xlink:href"}


class Seen(HTMLParser):
    """Everything that the tests ask about."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.stack: list[str] = []
        self.text: list[str] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.styles: list[str] = []
        self.unclosed: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "script":
            self.scripts.append((self.tags[-1][1], ""))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        inside = self.stack[-1] if self.stack else ""
        if inside == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif inside == "style":
            self.styles.append(data)
        else:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]


@pytest.fixture(scope="session")
def seen(any_page: str) -> Seen:
    return Seen(any_page)


def test_every_element_is_closed_where_it_was_opened(seen: Seen) -> None:
    assert seen.unclosed == []
    assert seen.stack == []


def test_there_is_one_h1_and_no_heading_level_is_skipped(seen: Seen) -> None:
    levels = [int(tag[1]) for tag, _ in seen.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))


def test_ids_are_unique_and_every_reference_finds_its_id(seen: Seen) -> None:
    assert max(Counter(seen.ids).values()) == 1
    for _, attributes in seen.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert set(attributes.get(name, "").split()) <= set(seen.ids)
        if attributes.get("href", "").startswith("#"):
            assert attributes["href"][1:] in seen.ids
        for clip in re.findall(r"url\(#([^)]+)\)", " ".join(attributes.values())):
            assert clip in seen.ids


def test_the_page_has_landmarks(seen: Seen) -> None:
    for tag in ("header", "main", "nav", "footer"):
        assert len(seen.all(tag)) == 1
    assert seen.all("html")[0]["lang"] == "en"


def test_every_figure_is_there_without_script_and_described_in_words(any_page: str, seen: Seen) -> None:
    drawings = [attributes for _, attributes in seen.tags if attributes.get("role") == "img"]
    assert len(drawings) == len(seen.all("figure")) == len(seen.all("figcaption"))
    for drawing in drawings:
        words = re.search(rf'id="{drawing["aria-describedby"]}">([^<]+)<', any_page)
        assert words is not None
        assert len(words[1]) > 40
        still = re.search(rf'data-figure="{drawing["data-figure"]}">\s*<div class="still"><svg ', any_page)
        assert still is not None


def test_every_table_has_a_caption_and_scoped_headings(seen: Seen) -> None:
    assert len(seen.all("table")) == len(seen.all("caption")) > 0
    assert all(heading["scope"] in {"row", "col"} for heading in seen.all("th"))


def test_nothing_is_loaded_from_anywhere(any_page: str, seen: Seen) -> None:
    assert not seen.all("link")
    assert not seen.all("iframe")
    for _, attributes in seen.tags:
        assert not LOADING & attributes.keys()
        assert attributes.get("href", "#").startswith("#")
    for style in seen.styles:
        assert "@import" not in style
        assert "url(" not in style


def test_the_policy_lets_only_these_scripts_run_and_nothing_load(seen: Seen) -> None:
    (policy,) = (m["content"] for m in seen.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    running = [text for attributes, text in seen.scripts if "type" not in attributes]
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running}
    assert set(rules["script-src"].split()) == ({f"'sha256-{digest}'" for digest in hashes} or {"'none'"})
    assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]


def test_no_absent_number_is_printed_as_text(seen: Seen) -> None:
    words = re.findall(r"\b(?:nan|NaN|None|inf|Infinity|null|undefined)\b", " ".join(seen.text))
    assert words == []


def test_a_page_is_small_and_holds_the_bundle_once(any_page: str) -> None:
    assert len(any_page.encode()) < 3_000_000
    assert any_page.count("window.vegaEmbed=") <= 1


def test_a_report_read_back_from_json_gives_the_same_page(
    ab_report: Report, html_of_report: Callable[[Report], str]
) -> None:
    from analysis.rendering import report_json

    same = report_json.decode(report_json.encode(ab_report))
    assert html_of_report(same) == html_of_report(ab_report)


def test_a_page_without_figures_needs_no_script(
    failed_report: Report, html_of_report: Callable[[Report], str]
) -> None:
    page = Seen(html_of_report(failed_report))
    assert page.scripts == []
    assert any("40 of 40" in text for text in page.text)


def test_foreign_strings_are_text_and_nothing_else(
    nasty_report: Report, ab_report: Report, html_of_report: Callable[[Report], str]
) -> None:
    hostile, tame = Seen(html_of_report(nasty_report)), Seen(html_of_report(ab_report))
    assert len(hostile.scripts) == len(tame.scripts)
    assert not hostile.all("img")
    shown = "".join(hostile.text)
    for text in nasty_report.notes[:2]:
        assert text in shown
    assert "{{ 7 * 7 }}" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202e\u2028]", shown)


def test_the_specs_of_a_hostile_report_are_read_back_whole(
    nasty_report: Report, html_of_report: Callable[[Report], str]
) -> None:
    page = Seen(html_of_report(nasty_report))
    (specs,) = (text for attributes, text in page.scripts if attributes.get("type") == "application/json")
    assert "<" not in specs
    read = json.loads(specs)
    assert read.keys() == {drawing["data-figure"] for _, drawing in page.tags if "data-figure" in drawing}
    assert "</script><script>alert(1)</script>" in str(read["itl"])


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "a\u2028b", "]]>", "&lt;"])
def test_json_in_a_script_survives_the_parser(text: str) -> None:
    page = Seen(f'<script type="application/json">{html.script_json([text])}</script>')
    assert json.loads(page.scripts[0][1]) == [text]
    assert len(page.tags) == 1


def test_json_in_a_script_holds_no_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        html.script_json([float("nan")])


def test_numbers_stay_with_their_units_and_markup_stays_escaped() -> None:
    assert str(html.steady("22 ms <b> (2.47–2.55)")) == (
        '22\u00a0ms &lt;b&gt; <span class="steady">(2.47–2.55)</span>'
    )
