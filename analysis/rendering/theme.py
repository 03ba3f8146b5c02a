"""Colours, marks and the Vega-Lite configuration that every figure shares. Pure.

Figures name colours by role, as CSS variables (``var(--tier-1)``), so that one drawing serves light, dark and
print; ``concrete`` fills in a palette's values where no style sheet is at hand. Every pair of text and
ground has a contrast of at least 4.5 and every mark of at least 3 (WCAG 2.2, 1.4.3 and 1.4.11); tiers also
differ in mark and dash, never in colour alone.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', Arial, sans-serif"

# Tier colours start from Okabe and Ito's set (2008), darkened or lightened until they stand out from the
# ground; yellow and sky blue, which cannot on white, are left out.
LIGHT: Mapping[str, str] = {
    "page": "#fbfaf8", "card": "#ffffff", "sunken": "#f3f1ec", "ink": "#1c2024", "muted": "#5b626b",
    "rule": "#dcd8d0", "grid": "#ece9e3", "link": "#005a94",
    "good": "#14683c", "good-ground": "#e3f3e9", "caution": "#7a4d00", "caution-ground": "#fbefd5",
    "bad": "#a3231c", "bad-ground": "#fbe6e4", "zone": "#e4ebe6",
    "tier-1": "#0072b2", "tier-2": "#d55e00", "tier-3": "#008f68",
    "tier-4": "#a5508c", "tier-5": "#8f6a00", "tier-6": "#555c63",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "page": "#121518", "card": "#191d21", "sunken": "#20252a", "ink": "#e9e7e2", "muted": "#a4abb3",
    "rule": "#343a41", "grid": "#282d33", "link": "#7cc0f5",
    "good": "#7fd8a4", "good-ground": "#163325", "caution": "#f0c063", "caution-ground": "#3a2d10",
    "bad": "#ff9d94", "bad-ground": "#43201d", "zone": "#25332c",
    "tier-1": "#58b4f0", "tier-2": "#ff8a3c", "tier-3": "#2fc79b",
    "tier-4": "#e08cc5", "tier-5": "#dcb042", "tier-6": "#b4bbc2",
}  # fmt: skip

_COLOURS = tuple(name for name in LIGHT if name.startswith("tier-"))
_SHAPES = ("circle", "diamond", "triangle-up", "square", "triangle-down", "cross")
_DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
_VARIABLE = re.compile(r"var\(--([a-z0-9-]+)\)")


@dataclass(frozen=True, slots=True)
class Look:
    """How one tier is drawn wherever it appears."""

    colour: str
    shape: str
    dash: tuple[int, ...]


def colour(role: str) -> str:
    """Name a role's colour the way figures and style sheets do."""
    return f"var(--{role})"


def looks(tiers: Sequence[str]) -> dict[str, Look]:
    """Give each tier its look, by its place; after the last colour, mark and dash go on changing."""
    return {
        tier: Look(
            colour(_COLOURS[place % len(_COLOURS)]),
            _SHAPES[(place + place // len(_COLOURS)) % len(_SHAPES)],
            _DASHES[(place + place // len(_COLOURS)) % len(_DASHES)],
        )
        for place, tier in enumerate(tiers)
    }


def declarations(palette: Mapping[str, str]) -> str:
    """Write a palette as CSS custom properties."""
    return " ".join(f"--{role}: {value};" for role, value in palette.items())


def concrete(svg: str, palette: Mapping[str, str] = LIGHT) -> str:
    """Put a palette's colours where an SVG names roles."""
    return _VARIABLE.sub(lambda match: palette[match[1]], svg)


def vega_config() -> dict[str, Any]:
    """Build the Vega-Lite ``config`` of every figure."""
    quiet = {"labelColor": colour("muted"), "titleColor": colour("muted")}
    return {
        "background": None,
        "font": FONT,
        "aria": False,  # each figure carries one description of its own, in words
        "padding": {"left": 2, "right": 6, "top": 2, "bottom": 2},
        "view": {"stroke": None},
        "axis": {
            **quiet,
            "labelFontSize": 11.5,
            "titleFontSize": 11.5,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "labelPadding": 6,
            "domainColor": colour("rule"),
            "gridColor": colour("grid"),
            "tickColor": colour("rule"),
            "tickSize": 4,
            "labelOverlap": "greedy",
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "orient": "top",
            "title": None,
            "labelColor": colour("ink"),
            "labelFontSize": 12,
            "labelLimit": 118,
            "columns": 2,
            "symbolSize": 70,
            "symbolStrokeWidth": 2,
            "offset": 6,
        },
        "text": {"font": FONT, "fontSize": 11.5},
    }
