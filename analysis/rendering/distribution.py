"""How distributions are drawn: steps on a logarithmic axis, one per tier, medians marked."""

import bisect
import itertools
import math
from collections.abc import Mapping, Sequence

import altair as alt

from analysis import numbers
from analysis.model import Distribution
from analysis.numbers import Unit
from analysis.rendering import encodings
from analysis.rendering.encodings import Looks, Rows
from analysis.rendering.theme import colour

_UNSEEN_SHARE = 0.001
"""Share of a distribution that may lie outside of the axis, on each side."""
_ROOM = 1.06
"""Factor by which the axis reaches beyond what is drawn."""
_LABEL_WIDTH = 0.28
"""Share of an axis that a median's label takes."""


def draw(
    found: Sequence[Distribution], medians: Mapping[str, float], looks: Looks, *, unit: Unit, title: str
) -> alt.LayerChart:
    """Draw shares per log-spaced bin as steps, with the median of each tier.

    The outermost 0.1 % of each distribution on each side is cut off.
    """
    shown = [_visible(one) for one in found]
    steps: Rows = []
    for one, (first, last) in zip(found, shown, strict=True):
        edges, shares = one.edges[first : last + 1], one.shares[first:last]
        corners = [(edges[0], 0.0), *zip(edges, shares, strict=False), (edges[-1], 0.0)]
        steps += [{"tier": one.tier, "edge": x * unit.scale, "share": y} for x, y in corners]
    lowest = min(one.edges[first] for one, (first, _) in zip(found, shown, strict=True))
    highest = max(one.edges[last] for one, (_, last) in zip(found, shown, strict=True))
    domain = [lowest * unit.scale / _ROOM, highest * unit.scale * _ROOM]
    x = alt.X(
        "edge:Q",
        scale=alt.Scale(type="log", domain=domain, nice=False),
        axis=alt.Axis(values=encodings.log_ticks(*domain), format=",~r", title=f"{title}, {unit.name}"),
    )
    highest_share = max(row["share"] for row in steps)
    y = alt.Y(
        "share:Q",
        scale=alt.Scale(domain=[0, highest_share * 1.15], nice=False),  # the medians' labels go on top
        stack=None,
        axis=alt.Axis(format="~%", tickCount=4, title="share"),
    )
    look = encodings.strokes(looks)
    base = alt.Chart(encodings.data(steps)).encode(
        x=x, y=y, color=encodings.colour(looks, look), opacity=encodings.chosen()
    )
    area = base.mark_area(interpolate="step-after", fillOpacity=0.22, line=False)
    line = base.mark_line(interpolate="step-after", strokeWidth=1.75)
    line = line.encode(strokeDash=encodings.dash(looks, look))
    columns = _bins(found, lowest, highest, unit)
    labels = {"range": title} | {f"share_{place}": one.tier for place, one in enumerate(found)}
    hover = encodings.hover(columns, x="start", x2="end", labels=labels)
    return encodings.layer(
        *encodings.selectable(area, line), *_medians(medians, unit, looks, x, domain), hover
    )


def _medians(
    medians: Mapping[str, float], unit: Unit, looks: Looks, x: alt.X, domain: Sequence[float]
) -> list[alt.Chart]:
    """Mark each tier's median; with one or two tiers also in figures, on the side where there is room.

    A median of 0 has no place on the axis: the answer was there before the request's ``send`` had returned.
    """
    short = unit if unit is not numbers.TOKENS_PER_S else Unit("", glue="")
    rows: Rows = [
        {"tier": tier, "edge": medians[tier] * unit.scale, "text": numbers.number(medians[tier], short)}
        for tier in sorted(medians, key=lambda tier: medians[tier])
        if medians[tier] > 0
    ]
    rule = alt.Chart(encodings.data(rows)).mark_rule(strokeWidth=1.25, strokeDash=[2, 3])
    marks = [
        rule.encode(x=x, color=encodings.colour(looks, encodings.strokes(looks)), opacity=encodings.chosen())
    ]
    if not 1 <= len(rows) <= 2:
        return marks
    width = math.log(domain[1] / domain[0])
    places = [math.log(row["edge"] / domain[0]) / width for row in rows]
    sides = ["right" if place > 1 - _LABEL_WIDTH else "left" for place in places]
    room = _LABEL_WIDTH * (2 if sides == ["left", "right"] else 1)
    crowded = len(rows) == 2 and places[1] - places[0] < room
    for k, row in enumerate(rows):
        left = sides[k] == "right"  # the label's right end is at the median
        text = alt.Chart(encodings.data([row])).mark_text(
            align="right" if left else "left",
            dx=-5 if left else 5,
            dy=15 * k if crowded else 0,
            baseline="top",
            color=colour("ink"),
            fontWeight=600,
        )
        marks.append(text.encode(x=x, y=alt.value(0), text="text:N"))
    return marks


def _visible(one: Distribution) -> tuple[int, int]:
    """Find the bins [first, last) that hold all but the outermost share of a distribution."""
    limit = _UNSEEN_SHARE * sum(one.shares)
    sums = list(itertools.accumulate(one.shares))
    first = next(place for place, below in enumerate(sums) if below > limit)
    last = next(place for place, below in enumerate(sums) if below >= sums[-1] - limit)
    return first, last + 1


def _bins(found: Sequence[Distribution], lowest: float, highest: float, unit: Unit) -> Rows:
    """List every stretch between two edges with each tier's share of it, for the hover columns."""
    edges = sorted({float(f"{edge:.9g}") for one in found for edge in one.edges})
    rows: Rows = []
    for start, end in itertools.pairwise(edges):
        middle = math.sqrt(start * end)
        if not lowest < middle < highest:
            continue
        ends = (numbers.number(start * unit.scale), numbers.number(end * unit.scale, Unit(unit.name)))
        shares = {f"share_{place}": numbers.share(_share_at(one, middle)) for place, one in enumerate(found)}
        rows.append({"start": start * unit.scale, "end": end * unit.scale, "range": "–".join(ends), **shares})
    return rows


def _share_at(one: Distribution, value: float) -> float:
    place = bisect.bisect_right(one.edges, value) - 1
    return one.shares[place] if 0 <= place < len(one.shares) else 0.0
