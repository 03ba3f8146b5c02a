"""A report as Markdown (GitHub's dialect): the content of the HTML, figures as files beside it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from analysis.rendering import theme
from analysis.rendering.page import (
    INTERVALS,
    LEVEL_MARKS,
    Block,
    Cell,
    Code,
    Definitions,
    Figure,
    Page,
    Sentences,
    Table,
)

_ACTIVE = re.compile(r"[\\`*_{}\[\]#|~!$^]")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"})
_LIST_MARK = re.compile(r"^(\s*)([-+=:]|\d+(?=[.)](?:\s|$)))")


def render(page: Page, figure_files: Mapping[str, str]) -> str:
    """Render a page; ``figure_files`` names the file of each figure, relative to the Markdown file."""
    lines = [*_first(page, figure_files)]
    for section in page.sections:
        lines += [f"## {escape(section.title)}", escape(section.intro)]
        for block in section.blocks:
            lines += _block(block)
        for figure in section.figures:
            lines += _figure(figure, figure_files)
    lines.append(escape(f"{page.footer}. {INTERVALS}"))
    return "\n\n".join(line for line in lines if line) + "\n"


def figure_file(still: str) -> str:
    """Turn a figure's SVG into one that stands alone: white ground, fixed colours."""
    ground = f'<rect width="100%" height="100%" fill="{theme.LIGHT["card"]}"/>'
    return theme.concrete(still).replace(">", f">{ground}", 1)


def escape(text: str) -> str:
    """Write text so that Markdown shows it as it is: no markup, link, mention or HTML comes out of it."""
    quoted = _ACTIVE.sub(lambda match: "\\" + match[0], text.translate(_ENTITIES).replace("&#64;", "\0"))
    return _LIST_MARK.sub(_inactive_mark, quoted).replace("\0", "&#64;")


def _inactive_mark(match: re.Match[str]) -> str:
    """Keep a leading dash or ``1.`` from starting a list."""
    space, mark = match[1], match[2]
    return f"{space}{mark}\\" if mark.isdigit() else f"{space}\\{mark}"


def _first(page: Page, figure_files: Mapping[str, str]) -> Iterator[str]:
    yield f"# {escape(page.headline)}"
    yield escape(" · ".join(page.subject))
    yield escape(page.lead)
    yield _list(
        f"**{escape(key.label)}** {escape(' '.join(x for x in (key.word, key.value) if x))}"
        f"{escape(f' ({key.interval})') if key.interval else ''}: {escape(key.note)}"
        for key in (*page.key_numbers, *page.side_numbers)
    )
    yield " · ".join(f"{LEVEL_MARKS[c.level]} {escape(c.topic)}: **{c.level}**" for c in page.chips).replace(
        "! ", "\\! "
    )
    yield _list(escape(caution) for caution in page.cautions)
    for figure in [page.verdict_figure, *page.figures]:
        if figure is not None:
            yield from _figure(figure, figure_files)


def _figure(figure: Figure, figure_files: Mapping[str, str]) -> Iterator[str]:
    yield f"**{escape(figure.title)}**"
    if figure.name in figure_files:
        yield f"![{escape(figure.description)}]({quote(figure_files[figure.name])})"
        yield escape(figure.caption)
    else:
        yield escape(figure.description)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table():
            yield f"**{escape(block.caption)}**"
            yield _table(block)
        case Sentences(items=items):
            yield _list(
                f"**{escape(about)}** {escape(text)}" if about else escape(text) for about, text in items
            )
        case Definitions(items=items):
            yield _list(f"**{escape(word)}** {escape(meaning)}" for word, meaning in items)
        case Code():
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", block.text)), default=0))
            yield f"**{escape(block.label)}**"
            yield f"{fence}sh\n{block.text}\n{fence}"


def _table(table: Table) -> str:
    heads = _row([escape(column.label) for column in table.columns])
    rule = _row(["---:" if column.kind == "number" else "---" for column in table.columns])
    return "\n".join([heads, rule, *(_row([_cell(cell) for cell in row]) for row in table.rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    return escape(f"{cell.text} ({cell.detail})" if cell.detail else cell.text)


def _list(items: Iterator[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
