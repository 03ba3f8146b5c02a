"""Small pieces of sentences that several answers share. Pure."""

import math

from analysis import numbers


def percent(ratio: float) -> str:
    """A ratio as a percentage with up to three digits: ``10 %``, ``0.5 %``, ``−20 %``."""
    return f"{100 * ratio:.3g} %".replace("-", "−")


def p_value(value: float) -> str:
    """A p-value with its sign: ``p = 0.034``, ``p < 0.001``."""
    if not math.isfinite(value):
        return "p unknown"
    return f"p < {0.001}" if value < 0.001 else f"p = {numbers.probability(value)}"
