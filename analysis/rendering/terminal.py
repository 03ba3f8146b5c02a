"""A report in a few plain lines, for a terminal. Pure."""

from collections import Counter

from analysis import numbers
from analysis.model import BatchAnswer, Report
from analysis.rendering.key_numbers import cautions, key_numbers, lead, quantity_unit
from analysis.rendering.printable import printable
from analysis.rendering.sections_answers import more_requests

_MOST_BATCH_LINES = 4


def summary_lines(report: Report) -> list[str]:
    """Say the verdict, its numbers, the batch and what to mind; plain text without control characters."""
    shown = printable(report)
    said = [shown.headline, lead(shown)]
    rows = [
        (key.label, key.word, f"{key.value} ({key.interval})" if key.interval else key.value, key.note)
        for key in key_numbers(shown)
    ]
    rows += [_batch_row(answer) for answer in shown.batch if _has_value(answer)][:_MOST_BATCH_LINES]
    if shown.mechanism is not None:
        rows.append(("Mechanism", "", shown.mechanism.answer, ""))
    if shown.fallback is not None and shown.fallback.share.value:
        share = numbers.estimate(shown.fallback.share, numbers.PERCENT)
        rows.append(("Fallback", "", share, f"of {shown.fallback.fast_tier} at standard speed"))
    if shown.trust:
        rows.append(("Trust", "", _trust(shown), ""))
    widths = [max((len(row[place]) for row in rows), default=0) for place in range(3)]
    said += ["  " + _padded(row, widths).rstrip() for row in rows]
    said += [f"  ! {text}" for text in (*cautions(shown), more_requests(shown)) if text]
    return [line for line in said if line]


def _batch_row(answer: BatchAnswer) -> tuple[str, str, str, str]:
    doubt = "" if answer.identified else ", not identified" if answer.estimate.value is not None else ""
    label = answer.quantity.capitalize().partition(" baseline")[0].partition(",")[0]
    value = numbers.estimate(answer.estimate, quantity_unit(answer))
    return label, "", value, f"{answer.tier}, {answer.method}{doubt}"


def _has_value(answer: BatchAnswer) -> bool:
    return any(x is not None for x in (answer.estimate.value, answer.estimate.low, answer.estimate.high))


def _trust(report: Report) -> str:
    counts = Counter(item.level for item in report.trust)
    return ", ".join(f"{counts[level]} {level}" for level in ("good", "caution", "bad") if counts[level])


def _padded(row: tuple[str, str, str, str], widths: list[int]) -> str:
    label, word, value, note = row
    parts = [label.ljust(widths[0]), value.ljust(widths[2]), word.ljust(widths[1]), note]
    return "  ".join(part for part, width in zip(parts, [1, 1, widths[1], 1], strict=True) if width)
