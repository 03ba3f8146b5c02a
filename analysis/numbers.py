"""How numbers are written for people: units, significant digits, intervals. Pure.

Rules for whoever edits this file:

1. A number and its interval share unit and decimals, as in ``2.51× (2.47–2.55)``.
2. Three significant digits, two where the interval is wide, more where it is too narrow to show otherwise.
3. What is null reads ``–`` in a table and ``not identified`` in a sentence; nothing prints nan or None.
"""

import math
from dataclasses import dataclass
from typing import TypeGuard

from analysis.model import Estimate

ABSENT = "–"
_WIDE = 0.3
"""Half-width relative to the value from which a third digit says nothing."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How base units are scaled and named; ``glue`` stands between number and name."""

    name: str
    scale: float = 1.0
    glue: str = " "
    whole: bool = False
    """Counts: no decimals from ten on, nor where value and interval are whole numbers."""


RATIO = Unit("×", glue="")
PERCENT = Unit("%", scale=100.0)
COUNT = Unit("", glue="", whole=True)
PLAIN = Unit("", glue="")
TOKENS_PER_S = Unit("tokens/s")
MICROSECONDS = Unit("µs", scale=1e6)
MILLISECONDS = Unit("ms", scale=1e3)
SECONDS = Unit("s")
MINUTES = Unit("min", scale=1 / 60)


def time_unit(seconds: float | None) -> Unit:
    """Choose the unit in which a duration reads best: 1 µs to 999 µs, to 999 ms, to 599 s, then minutes."""
    size = abs(seconds or 0.0)
    if 0 < size < 0.9995e-3:
        return MICROSECONDS
    if 0 < size < 0.9995:
        return MILLISECONDS
    return SECONDS if size < 599.5 else MINUTES


def number(value: float | None, unit: Unit = PLAIN, *, digits: int = 3) -> str:
    """Write one number with ``digits`` significant digits, e.g. ``8.12 ms`` or ``12,345 tokens``."""
    if not _finite(value):
        return ABSENT
    scaled = value * unit.scale
    return f"{_fixed(scaled, _decimals(scaled, digits))}{unit.glue}{unit.name}"


def duration(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    return number(seconds, time_unit(seconds))


def tokens(count: float | None) -> str:
    """Write a number of tokens that may be a mean: ``16,384 tokens``, ``511.5 tokens``."""
    if not _finite(count):
        return ABSENT
    return f"{count:,.0f} tokens" if count == round(count) else f"{count:,.1f} tokens"


def share(ratio: float | None) -> str:
    """Write a 0–1 ratio in percent; what is there but rounds to nothing is ``< 0.1 %``."""
    if not _finite(ratio):
        return ABSENT
    if ratio in (0.0, 1.0):
        return f"{ratio:.0%}".replace("%", " %")
    return "< 0.1 %" if 0 < ratio < 0.001 else f"{100 * ratio:.1f} %"


def probability(value: float | None) -> str:
    """Write a p-value; below 0.001 only that it is below."""
    if not _finite(value):
        return ABSENT
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def estimate(found: Estimate, unit: Unit) -> str:
    """Write an estimate with its interval: ``2.51× (2.47–2.55)``, ``≥ 2.5×``, ``not identified``."""
    value, interval = split(found, unit)
    return f"{value} ({interval})" if interval else value


def split(found: Estimate, unit: Unit) -> tuple[str, str]:
    """Write an estimate as its value and its interval, the second empty where there is none."""
    value, low, high = (x if _finite(x) else None for x in (found.value, found.low, found.high))
    if value is None:
        return _bounds(low, high, unit), ""
    bounds = [x * unit.scale for x in (low, high) if x is not None]
    decimals = _shared_decimals(unit, value * unit.scale, *bounds)
    shown = f"{_fixed(value * unit.scale, decimals)}{unit.glue}{unit.name}"
    ends = [ABSENT if x is None else _fixed(x * unit.scale, decimals) for x in (low, high)]
    if low is None and high is None:
        return shown, ""
    if low is None or high is None:
        return shown, f"≤ {ends[1]}" if low is None else f"≥ {ends[0]}"
    at = "" if found.level == 0.95 else f" at {level_of(found.level)}"
    dash = " to " if low < 0 else "–"
    return shown, f"{ends[0]}{dash}{ends[1]}{at}"


def level_of(level: float) -> str:
    """Write an interval's level with two digits of what is missing to certainty: 99.81 %, never 100 %."""
    missing = 100 * (1 - level)
    return f"{100 - missing:.{max(0, _decimals(missing, 2))}f} %"


def time_estimate(found: Estimate) -> str:
    """Write an estimated duration in the unit that suits its value."""
    return estimate(found, time_unit(found.value))


def time_split(found: Estimate) -> tuple[str, str]:
    """Write an estimated duration as value and interval."""
    return split(found, time_unit(found.value))


def counted(count: int, one: str, many: str | None = None) -> str:
    """Write a count with its noun: ``1 request``, ``12,345 requests``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _bounds(low: float | None, high: float | None, unit: Unit) -> str:
    if low is None and high is None:
        return "not identified"
    known = [x * unit.scale for x in (low, high) if x is not None]
    decimals = _shared_decimals(unit, *reversed(known))
    ends = [_fixed(x, decimals) for x in known]
    if low is None or high is None:
        return f"{'≤' if low is None else '≥'} {ends[0]}{unit.glue}{unit.name}"
    return f"{ends[0]}–{ends[1]}{unit.glue}{unit.name}, not identified"


def _shared_decimals(unit: Unit, value: float, *ends: float) -> int:
    """Decimals that a value and its interval share."""
    if unit.whole:
        return 0 if abs(value) >= 9.5 or all(x.is_integer() for x in (value, *ends)) else 1
    half = max((abs(end - value) for end in ends), default=0.0)
    if half > _WIDE * abs(value):
        return _decimals(value, 2)
    decimals = _decimals(max((value, *ends), key=abs), 3)  # 0.999 (0.976–1.023) is written 1.00 (0.98–1.02)
    if half > 0:  # enough to see the interval, but never more than five digits of the value
        decimals = min(max(decimals, _decimals(half, 1)), decimals + 2)
    return decimals


def _decimals(value: float, digits: int) -> int:
    """Decimals at which a value shows ``digits`` digits; negative where some before the point are zeros."""
    if value == 0:
        return 0
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return decimals - 1 if round(abs(value), decimals) >= 10.0 ** (digits - decimals) else decimals


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals):,.{max(0, decimals)}f}".replace("-", "−")


def _finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
