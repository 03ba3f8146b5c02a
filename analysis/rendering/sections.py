"""A report's chapters in the order a reader asks, and those that need no thought: trust, words, notes."""

from collections.abc import Iterator, Sequence

from analysis.model import Report
from analysis.rendering import (
    glossary,
    sections_answers,
    sections_mechanism,
    sections_run,
    sections_tiers,
)
from analysis.rendering.page import LEVEL_MARKS, Block, Cell, Column, Definitions, Section, Sentences, Table


def sections(report: Report) -> list[Section]:
    """Build every chapter; one without blocks has nothing to say in this report."""
    return [
        sections_answers.verdict(report),
        sections_mechanism.mechanism(report),
        sections_mechanism.fallback(report),
        _trust(report),
        sections_tiers.tiers(report),
        sections_tiers.prefill(report),
        sections_tiers.decode(report),
        sections_tiers.latency(report),
        sections_answers.batch(report),
        sections_run.errors(report),
        sections_run.run(report),
        _definitions(),
        _notes(report),
    ]


def _trust(report: Report) -> Section:
    rows = [
        [Cell(item.topic), Cell(f"{LEVEL_MARKS[item.level]} {item.level}"), Cell(item.sentence)]
        for item in report.trust
    ]
    columns = [Column("Topic", "text"), Column("Verdict", "text"), Column("Why", "prose")]
    blocks: list[Block] = [Table("Reasons to believe the numbers, or not to", columns, rows)] if rows else []
    return Section("trust", "Can this be trusted?", "What was checked about the measurement itself.", blocks)


def _definitions() -> Section:
    metrics = [(glossary.METRIC_NAMES[name], text) for name, text in glossary.METRICS.items()]
    outcomes = [(name, text) for name, text in glossary.OUTCOMES.items()]
    blocks: list[Block] = [
        Definitions([*metrics, *glossary.TERMS.items()]),
        Table(
            "How a request can end",
            [Column("Outcome", "text"), Column("Meaning", "prose")],
            [[Cell(name), Cell(text)] for name, text in outcomes],
        ),
    ]
    return Section("definitions", "What the words mean", "Every number here, in plain words.", blocks)


def _notes(report: Report) -> Section:
    blocks: list[Block] = [Sentences([("", note) for note in report.notes])] if report.notes else []
    return Section("notes", "Notes", "What could not be read or was left out.", blocks)


def tables(found: Sequence[Section]) -> Iterator[Table]:
    """Walk through all tables."""
    return (block for section in found for block in section.blocks if isinstance(block, Table))
