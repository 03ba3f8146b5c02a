"""What all charts share: how tiers look, what the legend and the pointer do, and ticks that fit.

Values are strings and numbers that came from a foreign server, so none is ever used as a field name or inside
an expression.
"""

import math
from collections.abc import Mapping
from typing import Any

import altair as alt

from analysis.numbers import Unit
from analysis.rendering.theme import Look
from analysis.rendering.theme import colour as role

Looks = Mapping[str, Look]
Rows = list[dict[str, Any]]

_TICK_MARKS = (
    (1,),
    (1, 3),
    (1, 2, 5),
    (1, 2, 3, 5),
    (1, 1.5, 2, 3, 4, 5, 6, 8),
    (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9),
)
_FEWEST_TICKS = 4


def data(rows: Rows) -> alt.InlineData:
    """Hold rows inline."""
    return alt.InlineData(values=rows)


def layer(*layers: alt.Chart) -> alt.LayerChart:
    """Lay charts over each other."""
    return alt.LayerChart(layer=list(layers))


def selectable(*layers: alt.Chart) -> list[alt.Chart]:
    """Let a click on the legend choose tiers; Vega-Lite wants that said by the first layer with a legend."""
    chosen_by_legend = alt.selection_point(name="chosen", fields=["tier"], bind="legend")
    first: alt.Chart = layers[0].properties(name="tiers").add_params(chosen_by_legend)
    return [first, *layers[1:]]


def colour(looks: Looks, legend: alt.Legend | None) -> alt.Color:
    """Give each tier its colour."""
    scale = alt.Scale(domain=list(looks), range=[look.colour for look in looks.values()])
    return alt.Color("tier:N", scale=scale, legend=legend)


def shape(looks: Looks, legend: alt.Legend | None) -> alt.Shape:
    """Give each tier its mark."""
    scale = alt.Scale(domain=list(looks), range=[look.shape for look in looks.values()])
    return alt.Shape("tier:N", scale=scale, legend=legend)


def dash(looks: Looks, legend: alt.Legend | None) -> alt.StrokeDash:
    """Give each tier its dash."""
    scale = alt.Scale(domain=list(looks), range=[list(look.dash) for look in looks.values()])
    return alt.StrokeDash("tier:N", scale=scale, legend=legend)


def marks(looks: Looks) -> alt.Legend | None:
    """Make a legend that shows marks; one tier needs none."""
    return alt.Legend(symbolStrokeWidth=0) if len(looks) > 1 else None


def strokes(looks: Looks) -> alt.Legend | None:
    """Make a legend that shows lines and dashes; one tier needs none."""
    return alt.Legend(symbolType="stroke", symbolSize=260) if len(looks) > 1 else None


def chosen() -> alt.OpacityValue:
    """Fade what the legend has not chosen."""
    return alt.OpacityValue(0.12, condition={"param": "chosen", "value": 1})


def hover(columns: Rows, *, x: str, x2: str, labels: Mapping[str, str]) -> alt.Chart:
    """Lay a column over each bin that shows what all tiers have there."""
    over = alt.selection_point(name="over", on="pointerover", clear="pointerout", empty=False)
    shade = alt.when(over).then(alt.value(0.08)).otherwise(alt.value(0))
    tooltip = [alt.Tooltip(f"{key}:N", title=label) for key, label in labels.items()]
    column = alt.Chart(data(columns), name="columns").mark_rect(fill=role("ink")).add_params(over)
    sensitive: alt.Chart = column.encode(x=alt.X(f"{x}:Q"), x2=x2, fillOpacity=shade, tooltip=tooltip)
    return sensitive


def log_ticks(low: float, high: float) -> list[float]:
    """List round ticks of a logarithmic axis within its domain: the sparsest choice with at least four."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for marks in _TICK_MARKS:
        every = [float(f"{mark * 10.0**decade:.6g}") for decade in decades for mark in marks]
        ticks = [tick for tick in every if low <= tick <= high]
        if len(ticks) >= _FEWEST_TICKS:
            break
    return ticks


def scaled(value: float | None, unit: Unit) -> float | None:
    """Scale a value that may be absent."""
    return None if value is None else value * unit.scale
