"""The chapters about the run itself: how requests ended, what was run where, and how to repeat it."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from analysis import numbers
from analysis.model import Report, RunSummary
from analysis.rendering.page import Block, Cell, Code, Column, Section, Table, columns
from loadtest.records import OUTCOMES


def errors(report: Report) -> Section:
    """Show how requests ended, and why the failed ones failed."""
    seen = [name for name in OUTCOMES if any(tier.outcomes.get(name) for tier in report.tiers)]
    if not any(name != "ok" for name in seen):
        seen = []
    blocks: list[Block] = []
    if seen:
        rows = [
            [Cell(t.tier), *(Cell(f"{t.outcomes.get(name, 0):,}") for name in seen)] for t in report.tiers
        ]
        blocks.append(Table("How requests ended", columns(["Tier", *seen]), rows))
    if report.errors:
        heads = [Column("Tier", "text"), Column("Outcome", "text"), Column("Status"), Column("Requests")]
        details = [
            [
                Cell(group.tier),
                Cell(group.outcome),
                Cell(numbers.ABSENT if group.status is None else str(group.status)),
                Cell(f"{group.count:,}"),
                Cell(group.detail or numbers.ABSENT),
            ]
            for group in report.errors
        ]
        blocks.append(Table("Failures by cause", [*heads, Column("First message", "prose")], details))
    return Section("errors", "Failures", "A failed request is data: counted here, in no latency.", blocks)


def run(report: Report) -> Section:
    """Show what was run, and the commands to run it again."""
    blocks: list[Block] = []
    if report.runs:
        labels = ["Run", *(run.run_id for run in report.runs)]
        heads = [Column(label, "text") for label in labels]
        blocks.append(Table("What was run", heads, _facts(report.runs)))
        keys = list(dict.fromkeys(key for run in report.runs for key in run.environment))
        if keys:
            rows = [
                [Cell(key), *(Cell(run.environment.get(key, numbers.ABSENT)) for run in report.runs)]
                for key in keys
            ]
            blocks.append(Table("Where the load generator ran", heads, rows))
        commands = dict.fromkeys(run.repeat_command for run in report.runs if run.repeat_command)
        if commands:
            title = "To repeat it" if len(commands) == 1 else "To repeat them"
            blocks.append(Code(title, "\n".join(commands)))
    return Section("run", "Run", "What was asked of whom, and how to do it again.", blocks)


def _facts(runs: Sequence[RunSummary]) -> list[list[Cell]]:
    facts: tuple[tuple[str, Callable[[RunSummary], str]], ...] = (
        ("Model", lambda run: run.model),
        ("Server", lambda run: f"{run.url} ({run.api})" if run.url and run.api else run.url or "–"),
        ("Plan and seed", lambda run: run.plan if run.seed is None else f"{run.plan}, seed {run.seed}"),
        ("Kind", lambda run: "simulated in virtual time" if run.simulated else "measured over the network"),
        ("Started", started),
        ("Took", lambda run: numbers.duration(run.duration_s)),
        ("Status", lambda run: f"{run.status}: {run.status_detail}" if run.status_detail else run.status),
        ("Requests", lambda run: f"{run.requests:,}, {run.measured_requests:,} of them measured"),
        ("Folder", lambda run: run.folder),
    )
    return [[Cell(label), *(Cell(say(run)) for run in runs)] for label, say in facts]


def started(run: RunSummary) -> str:
    """Write when a run started, in UTC; a dash where it did in virtual time, or the number is no time."""
    if run.simulated or run.started_unix_s is None:
        return numbers.ABSENT
    try:
        return datetime.fromtimestamp(run.started_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return numbers.ABSENT
