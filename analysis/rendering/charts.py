"""How each figure is drawn: plain values in, an Altair chart out.

Nothing is computed here that the report does not say already; only units are chosen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from analysis import numbers
from analysis.model import Curve, DecodeTest, Estimate, PrefillPoint, PrefillTest, SweepPoint
from analysis.numbers import Unit
from analysis.rendering import encodings
from analysis.rendering.encodings import Looks, Rows
from analysis.rendering.theme import colour

_ROOM = 1.06
"""Factor by which a logarithmic axis reaches beyond what is drawn."""
_DOT, _SMALL_DOT = 22, 5
_FEW_BINS = 45
"""Slices per tier up to which dots do not run together."""


def ratios(tests: Mapping[str, DecodeTest | PrefillTest], *, faster: str) -> alt.LayerChart:
    """Draw speed ratios with their intervals against the zone that counts as no change.

    ``tests`` by row label; a test without a value gets its zone only. The axis is logarithmic, so that twice
    as fast and half as fast lie equally far from 1.
    """
    rows: Rows = [
        {
            "row": label,
            "value": test.speed_ratio.value,
            "low": test.speed_ratio.low,
            "high": test.speed_ratio.high,
            "zone_low": 1 / (1 + test.margin_ratio),
            "zone_high": 1 + test.margin_ratio,
            "text": numbers.estimate(test.speed_ratio, numbers.RATIO),
            "answer": test.answer,
        }
        for label, test in tests.items()
    ]
    ends = [row[key] for row in rows for key in ("value", "low", "high") if row[key]]
    domain = [min([*ends, 0.8]) / _ROOM, max([*ends, 1.25]) * _ROOM]
    x = alt.X(
        "value:Q",
        scale=alt.Scale(type="log", domain=domain, nice=False),
        axis=alt.Axis(
            values=encodings.log_ticks(*domain),
            format="~r",
            labelExpr="datum.label + '×'",
            title=faster,
            grid=True,
        ),
    )
    y = alt.Y("row:N", sort=None, title=None, axis=alt.Axis(labelColor=colour("ink"), labelFontSize=13))
    tooltip = [alt.Tooltip("text:N", title="speed ratio"), alt.Tooltip("answer:N", title="answer")]
    base = alt.Chart(encodings.data(rows))
    zone = base.mark_bar(height=26, color=colour("zone"), cornerRadius=3).encode(
        x=alt.X("zone_low:Q"), x2="zone_high:Q", y=y
    )
    one = (
        alt.Chart(encodings.data([{"one": 1}]))
        .mark_rule(color=colour("muted"), strokeWidth=1)
        .encode(x="one:Q")
    )
    interval = base.mark_rule(strokeWidth=5, strokeCap="round", color=colour("tier-1"), opacity=0.45).encode(
        x=alt.X("low:Q"), x2="high:Q", y=y, tooltip=tooltip
    )
    point = base.mark_point(filled=True, size=80, opacity=1, color=colour("tier-1")).encode(
        x=x, y=y, tooltip=tooltip
    )
    return encodings.layer(zone, one, interval, point)


def prefill(points: Sequence[PrefillPoint], curves: Sequence[Curve], looks: Looks) -> alt.LayerChart:
    """Draw TTFT against prompt length: medians with 10–90 % bars, and the fitted law of each tier."""
    longest = max([p.p90_s or p.p50_s or 0 for p in points] + [max(c.y, default=0) for c in curves])
    unit = numbers.time_unit(longest)
    widest = max([p.prompt_tokens for p in points] + [max(c.x, default=0) for c in curves])
    dodge = _dodges(looks, widest)
    rows: Rows = [
        {
            "tier": p.tier,
            "tokens": p.prompt_tokens + dodge[p.tier],
            "p10": encodings.scaled(p.p10_s, unit),
            "p50": encodings.scaled(p.p50_s, unit),
            "p90": encodings.scaled(p.p90_s, unit),
            "prompt": numbers.tokens(p.prompt_tokens),
            "median": numbers.number(p.p50_s, unit),
            "middle": f"{numbers.number(p.p10_s, unit)} – {numbers.number(p.p90_s, unit)}",
            "requests": f"{p.count:,}",
        }
        for p in points
    ]
    x = alt.X(
        "tokens:Q",
        scale=alt.Scale(domain=[-0.02 * widest, 1.04 * widest], nice=False),
        axis=alt.Axis(
            format="~s", labelExpr="datum.value ? datum.label : '0'", tickCount=6, title="prompt tokens"
        ),
    )
    title = f"time to first token, {unit.name}"
    tooltip = [
        alt.Tooltip("tier:N"),
        alt.Tooltip("prompt:N"),
        alt.Tooltip("median:N"),
        alt.Tooltip("middle:N", title="10–90 %"),
        alt.Tooltip("requests:N"),
    ]
    base = alt.Chart(encodings.data(rows)).encode(
        x=x,
        color=encodings.colour(looks, encodings.marks(looks)),
        opacity=encodings.chosen(),
        tooltip=tooltip,
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("p10:Q", title=title), y2="p90:Q")
    dots = base.mark_point(filled=True, size=64).encode(
        y=alt.Y("p50:Q", title=title), shape=encodings.shape(looks, encodings.marks(looks)), tooltip=tooltip
    )
    lines = _lines(curves, looks, unit, x, title)
    return encodings.layer(*encodings.selectable(*lines, bars, dots))


def timeline(
    bins: Rows, looks: Looks, *, x_title: str, y_title: str, stages: Rows, columns: Rows
) -> alt.LayerChart:
    """Draw one value per tier over the run, with failures and stage boundaries.

    ``bins``: tier, at, value, failed. ``stages``: at, stage. ``columns``: start, end, when, a text per tier.
    """
    highest = max((row["value"] for row in bins if row["value"] is not None), default=0) or 1
    x = alt.X("at:Q", title=x_title, axis=alt.Axis(tickCount=6))
    scale = alt.Scale(domain=[0, highest * 1.18], nice=False)  # names of stages go on top
    y = alt.Y("value:Q", scale=scale, title=y_title, axis=alt.Axis(tickCount=5))
    legend = encodings.marks(looks)
    base = alt.Chart(encodings.data(bins)).encode(
        x=x, y=y, color=encodings.colour(looks, legend), opacity=encodings.chosen()
    )
    line = base.mark_line(strokeWidth=1.75).encode(strokeDash=encodings.dash(looks, legend))
    known = sum(row["value"] is not None for row in bins)
    size = _DOT if known <= _FEW_BINS * len(looks) else _SMALL_DOT
    dots = base.mark_point(filled=True, size=size).encode(shape=encodings.shape(looks, legend))
    layers = [*_stages(stages, x), *encodings.selectable(line, dots)]
    failed = [row | {"value": row["value"] or 0} for row in bins if row["failed"]]
    if failed:
        cross = alt.Chart(encodings.data(failed)).mark_point(
            shape="M-1,-1L1,1M-1,1L1,-1", size=56, strokeWidth=2, stroke=colour("bad"), opacity=1
        )
        layers.append(cross.encode(x=x, y=y))
    labels = {"when": "time"} | dict(zip(_text_keys(columns), looks, strict=True))
    return encodings.layer(*layers, encodings.hover(columns, x="start", x2="end", labels=labels))


def _stages(stages: Rows, x: alt.X) -> list[alt.Chart]:
    """Mark where each stage starts, if there are several."""
    if len(stages) < 2:
        return []
    base = alt.Chart(encodings.data(stages))
    rule = base.mark_rule(color=colour("rule"), strokeDash=[3, 3]).encode(x=x)
    name = base.mark_text(align="left", baseline="top", dx=5, color=colour("muted"), limit=110)
    return [rule, name.encode(x=x, y=alt.value(0), text="stage:N")]


def sweep(points: Sequence[SweepPoint], curves: Sequence[Curve], looks: Looks) -> alt.LayerChart:
    """Draw step time with its interval against streams that decoded at once, and the fitted step law."""
    unit = numbers.time_unit(max(p.step_s.value or 0 for p in points))
    rows = [_sweep_row(p, p.active_streams, p.step_s, unit) for p in points]
    x = _streams_axis("streams decoding at once", max(p.active_streams for p in points))
    title = f"step time, {unit.name}"
    lines = _lines(curves, looks, unit, x, title, field="streams")
    return encodings.layer(*encodings.selectable(*lines, *_dots_with_bars(rows, looks, x, title)))


def sweep_ttft(points: Sequence[SweepPoint], looks: Looks) -> alt.LayerChart:
    """Draw median TTFT against streams asked for: it jumps where requests begin to queue."""
    unit = numbers.time_unit(max(p.ttft_p50_s or 0 for p in points))
    rows = [_sweep_row(p, p.streams, Estimate(value=p.ttft_p50_s), unit) for p in points]
    x = _streams_axis("streams asked for", max(p.streams for p in points))
    title = f"median time to first token, {unit.name}"
    line = alt.Chart(encodings.data(rows)).mark_line(strokeWidth=1.5, opacity=0.6)
    line = line.encode(
        x=x,
        y=alt.Y("value:Q", title=title),
        color=encodings.colour(looks, encodings.marks(looks)),
        strokeDash=encodings.dash(looks, encodings.marks(looks)),
    )
    return encodings.layer(*encodings.selectable(line, *_dots_with_bars(rows, looks, x, title)))


def _streams_axis(title: str, most: int) -> alt.X:
    scale = alt.Scale(domain=[0, most * 1.05], nice=False)
    return alt.X("streams:Q", scale=scale, title=title, axis=alt.Axis(tickMinStep=1, tickCount=8))


def _sweep_row(point: SweepPoint, streams: int, found: Estimate, unit: Unit) -> dict[str, Any]:
    return {
        "tier": point.tier,
        "streams": streams,
        "value": encodings.scaled(found.value, unit),
        "low": encodings.scaled(found.low, unit),
        "high": encodings.scaled(found.high, unit),
        "text": numbers.estimate(found, unit),
        "asked": f"{point.streams:,}",
        "active": f"{point.active_streams:,}",
    }


def _dots_with_bars(rows: Rows, looks: Looks, x: alt.X, title: str) -> list[alt.Chart]:
    tooltip = [
        alt.Tooltip("tier:N"),
        alt.Tooltip("asked:N", title="streams asked for"),
        alt.Tooltip("active:N", title="decoding at once"),
        alt.Tooltip("text:N", title=title.partition(",")[0]),
    ]
    base = alt.Chart(encodings.data(rows)).encode(
        x=x,
        color=encodings.colour(looks, encodings.marks(looks)),
        opacity=encodings.chosen(),
        tooltip=tooltip,
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    known = any(row["low"] is not None for row in rows)
    dots = base.mark_point(filled=True, size=64).encode(
        y=alt.Y("value:Q", title=title), shape=encodings.shape(looks, encodings.marks(looks))
    )
    return [*([bars] if known else []), dots]


def _lines(
    curves: Sequence[Curve], looks: Looks, unit: Unit, x: alt.X, title: str, *, field: str = "tokens"
) -> list[alt.Chart]:
    rows: Rows = [
        {"tier": c.name, field: at, "law": y * unit.scale}
        for c in curves
        for at, y in zip(c.x, c.y, strict=True)
    ]
    line: alt.Chart = alt.Chart(encodings.data(rows)).mark_line(strokeWidth=1.75)
    law: alt.Chart = line.encode(
        x=x,
        y=alt.Y("law:Q", title=title, axis=alt.Axis(tickCount=5)),
        color=encodings.colour(looks, encodings.marks(looks)),
        strokeDash=encodings.dash(looks, encodings.marks(looks)),
        opacity=encodings.chosen(),
    )
    return [law] if rows else []


def _text_keys(columns: Rows) -> list[str]:
    return [key for key in columns[0] if key.startswith("text_")] if columns else []


def _dodges(looks: Looks, width: float) -> dict[str, float]:
    """Shift tiers apart by about a mark's width, so that equal values do not hide each other."""
    middle = (len(looks) - 1) / 2
    return {tier: (place - middle) * 0.012 * width for place, tier in enumerate(looks)}
