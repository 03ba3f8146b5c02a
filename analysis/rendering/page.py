"""The shape of a report page: sections of tables, prose, code and figures, the same for HTML and Markdown.

Pure data, all of it text that is still to be escaped by whoever writes it out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from analysis.model import Level

INTERVALS = "Ranges in parentheses are 95 % intervals unless they say otherwise."
LEVEL_MARKS: dict[Level, str] = {"good": "✓", "caution": "!", "bad": "✕"}


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing: ``spec`` is Vega-Lite with the width of its container."""

    name: str
    section: str
    """Id of the section it belongs to, ``verdict`` for the one beside the headline."""
    title: str
    caption: str
    description: str
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Chip:
    """One reason to trust the numbers, or not, in a word; its sentence is for the section on trust."""

    topic: str
    level: Level
    sentence: str


@dataclass(frozen=True, slots=True)
class KeyNumber:
    """A number large enough to be seen from afar, with its interval and what it means."""

    label: str
    word: str
    """The answer in one word, or nothing."""
    value: str
    interval: str
    note: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: ``text``, and what belongs to it in smaller print (an interval)."""

    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and how its cells are set: numbers to the right, prose to the left and wide."""

    label: str
    kind: Literal["number", "text", "prose"] = "number"


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column names the row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    grouped: bool = False
    """Rows with the same first cell belong together."""
    kind: Literal["table"] = field(default="table", init=False)


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences of equal standing, each with what it is about or nothing."""

    items: Sequence[tuple[str, str]]
    kind: Literal["sentences"] = field(default="sentences", init=False)


@dataclass(frozen=True, slots=True)
class Code:
    """Something to copy into a terminal."""

    label: str
    text: str
    kind: Literal["code"] = field(default="code", init=False)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Words and what they mean here."""

    items: Sequence[tuple[str, str]]
    kind: Literal["definitions"] = field(default="definitions", init=False)


Block = Table | Sentences | Code | Definitions


@dataclass(frozen=True, slots=True)
class Section:
    """One chapter. A section without blocks and figures is left out."""

    id: str
    title: str
    intro: str
    blocks: Sequence[Block]
    figures: Sequence[Figure] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report; ``verdict_figure`` and ``figures`` stand on the first screen, others in sections."""

    title: str
    subject: Sequence[str]
    """What was measured, in a few short pieces."""
    headline: str
    lead: str
    cautions: Sequence[str]
    chips: Sequence[Chip]
    key_numbers: Sequence[KeyNumber]
    side_numbers: Sequence[KeyNumber]
    """What is best known of the batch, where the verdict's figure takes the place beside the headline."""
    verdict_figure: Figure | None
    figures: Sequence[Figure]
    sections: Sequence[Section]
    footer: str

    def drawn(self) -> list[Figure]:
        """List all figures, in the order of the page."""
        first = [] if self.verdict_figure is None else [self.verdict_figure]
        return [*first, *self.figures, *(figure for section in self.sections for figure in section.figures)]


def columns(labels: Sequence[str]) -> list[Column]:
    """Make a first column that names rows, and numbers after it."""
    return [Column(label, "number" if place else "text") for place, label in enumerate(labels)]
