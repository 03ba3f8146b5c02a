"""Panels as data, and the one place that knows how Grafana writes them down (classic dashboard JSON).

Rules for whoever edits this file:

1. Every panel has a title, a unit, a description that names its metrics, and says "No traffic" when empty.
2. Queries over time use ``$__rate_interval``; single numbers use ``$__range``, the span the reader chose.
3. Nothing here knows a metric; ``grafana.tier_comparison`` and ``grafana.promql`` do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

GRID_COLUMNS = 24  # Grafana's dashboard grid
NO_TRAFFIC = "No traffic"
MIN_INTERVAL = "15s"  # the shortest window a quantile is asked over: a few seconds hold too few requests
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]
Kind = Literal["stat", "timeseries", "heatmap", "table"]


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; ``legend`` may hold label names in double braces."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. ``unit`` is a Grafana unit id; ``width`` counts columns of 24, ``height`` grid rows."""

    kind: Kind
    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    height: int = 8
    decimals: int | None = None
    stacked: bool = False
    repeat: str | None = None
    """Name of a variable; one copy of the panel is drawn for each of its values."""
    rows_by: str = ""
    columns_by: str = ""
    """Labels that a table spreads its values over."""
    bad_above: float | None = None
    """Values from here on are drawn red."""
    text: Literal["value", "value_and_name", "name"] = "value"
    """What a stat shows of each series."""


@dataclass(frozen=True, slots=True)
class Row:
    """A titled band of panels, laid out left to right and wrapped at the grid's edge."""

    title: str
    panels: tuple[Panel, ...]


def layout(rows: Sequence[Row]) -> list[Json]:
    """Place rows and their panels on the grid; ids count up from 1."""
    placed: list[Json] = []
    y = 0
    for row in rows:
        placed.append(_row_json(row, len(placed) + 1, y))
        x, y, tallest = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > GRID_COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            grid = {"x": x, "y": y, "w": panel.width, "h": panel.height}
            placed.append({"id": len(placed) + 1, "gridPos": grid, **panel_json(panel)})
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    return placed


def panel_json(panel: Panel) -> Json:
    """Write a panel in Grafana's words, without its place and id."""
    once = panel.kind in ("stat", "table")
    document: Json = {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": list(_targets(panel, once=once)),
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind](panel),
    }
    if not once:
        document["interval"] = MIN_INTERVAL
    if panel.repeat is not None:
        document |= {"repeat": panel.repeat, "repeatDirection": "h", "maxPerRow": 2}
    if panel.kind == "table":
        matrix = {"rowField": panel.rows_by, "columnField": panel.columns_by, "valueField": "Value"}
        document["transformations"] = [{"id": "groupingToMatrix", "options": matrix | {"emptyValue": "zero"}}]
    return document


def _targets(panel: Panel, *, once: bool) -> Iterable[Json]:
    shape = {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series")
    for place, query in enumerate(panel.queries):
        yield {
            "refId": chr(ord("A") + place),
            "datasource": DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
            "format": shape,
            "instant": once,
            "range": not once,
        }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "text" if panel.bad_above is None else "green", "value": None}]
    if panel.bad_above is not None:
        steps.append({"color": "red", "value": panel.bad_above})
    nothing = {"type": "special", "options": {"match": "null+nan", "result": {"text": NO_TRAFFIC}}}
    defaults: Json = {
        "unit": panel.unit,
        "min": 0,
        "noValue": NO_TRAFFIC,
        "mappings": [nothing],
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.decimals is not None:
        defaults["decimals"] = panel.decimals
    if panel.kind == "timeseries":
        defaults["color"] = {"mode": "palette-classic-by-name"}  # a tier keeps its colour on every panel
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 2,
            "fillOpacity": 25 if panel.stacked else 0,
            "showPoints": "auto",
            "spanNulls": 60_000,  # ms; a longer gap is a gap in traffic and stays open
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return defaults


def _stat_options(panel: Panel) -> Json:
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value" if panel.bad_above is not None else "none",
        "graphMode": "none",
        "textMode": panel.text,
    }


def _timeseries_options(_: Panel) -> Json:
    return {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
            "calcs": ["mean", "max"],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def _heatmap_options(panel: Panel) -> Json:
    return {
        "calculate": False,
        "cellGap": 0,
        "color": {"mode": "scheme", "scheme": "Viridis", "steps": 64, "reverse": False},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
    }


def _table_options(_: Panel) -> Json:
    return {"showHeader": True, "cellHeight": "sm"}


_OPTIONS = {
    "stat": _stat_options,
    "timeseries": _timeseries_options,
    "heatmap": _heatmap_options,
    "table": _table_options,
}


def _row_json(row: Row, number: int, y: int) -> Json:
    grid = {"x": 0, "y": y, "w": GRID_COLUMNS, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": grid,
        "panels": [],
    }
