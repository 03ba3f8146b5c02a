"""Dashboards: what the committed files say, and the rules of grafana/dashboard-linter."""

import json
import re
from typing import Any

import pytest

from grafana.dashboards import DASHBOARDS, FOLDER, text
from loadtest.metrics import RunMetrics
from loadtest.page import render
from loadtest.plan import Target, load

# Units that grafana/dashboard-linter knows and we use. Left out of its rule: units "suffix: …", which Grafana
# draws and the linter's list cannot hold; Grafana has no unit for tokens per second.
LINTER_UNITS = {"s", "none", "short", "percentunit", "reqps"}
PAGE = render(RunMetrics(load("ab"), Target(url="http://127.0.0.1", model="m"), "run", "kernel")).decode()
FAMILIES = dict(re.findall(r"^# TYPE (\S+) (\S+)$", PAGE, re.MULTILINE))
HISTOGRAMS = {name for name, kind in FAMILIES.items() if kind == "histogram"}
METRICS = set(FAMILIES)

Json = dict[str, Any]
FILES = {name: json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in DASHBOARDS}
PANELS = [
    pytest.param(panel, id=f"{name}: {panel['title']}")
    for name, dashboard in FILES.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
]
every_dashboard = pytest.mark.parametrize("name", sorted(FILES))
every_panel = pytest.mark.parametrize("panel", PANELS)


def _metric(name: str) -> str:
    """The metric that a series belongs to."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return base if base in HISTOGRAMS else name


def _metrics(expr: str) -> set[str]:
    return {_metric(name) for name in re.findall(r"\btierscope_\w+", expr)}


@every_dashboard
def test_the_committed_file_is_what_the_generator_writes(name: str) -> None:
    written = (FOLDER / f"{name}.json").read_text("utf-8")
    assert written == text(name), "run: python -m grafana.dashboards"
    assert {path.stem for path in FOLDER.glob("*.json")} == set(DASHBOARDS)


@every_dashboard
def test_a_dashboard_is_a_classic_one_that_file_provisioning_can_load(name: str) -> None:
    dashboard = FILES[name]
    assert 39 <= dashboard["schemaVersion"] <= 42
    assert re.fullmatch(r"[a-z0-9-]{8,40}", dashboard["uid"])
    assert dashboard["editable"] is False
    assert "__inputs" not in dashboard
    assert "id" not in dashboard  # the database's, not ours


@every_dashboard
def test_variables_follow_the_linter(name: str) -> None:
    variables: dict[str, Json] = {one["name"]: one for one in FILES[name]["templating"]["list"]}
    assert {"datasource", "job", "instance", "model", "tier"} <= set(variables)
    source = variables.pop("datasource")
    assert (source["type"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")
    for variable in variables.values():
        assert variable["datasource"]["uid"] == "${datasource}"
        assert variable["refresh"] == 2
        query = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["query"]["query"])
        assert query is not None, variable["query"]
        assert query[1] in METRICS
    for label in ("job", "instance"):
        assert (variables[label]["label"], variables[label]["multi"]) == (label.title(), True)
        assert variables[label]["allValue"] == ".+"


@every_dashboard
def test_panels_lie_on_the_grid_without_overlap(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in FILES[name]["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in FILES[name]["panels"]]
    assert len(set(ids)) == len(ids)


@every_panel
def test_a_panel_says_what_it_shows_and_in_which_unit(panel: Json) -> None:
    assert panel["title"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    assert unit in LINTER_UNITS or unit.startswith("suffix:")
    named = set(re.findall(r"tierscope_\w+", panel["description"]))
    asked = set().union(*(_metrics(target["expr"]) for target in panel["targets"]))
    assert asked
    assert named == asked
    assert named <= METRICS


@every_panel
def test_a_panel_without_data_says_so(panel: Json) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["noValue"] == "No traffic"
    special = [one["options"] for one in defaults["mappings"] if one["type"] == "special"]
    assert {"match": "null+nan", "result": {"text": "No traffic"}} in special


@every_panel
def test_a_panel_reads_the_chosen_source_job_and_instance(panel: Json) -> None:
    assert panel["targets"]
    for target in (panel, *panel["targets"]):
        assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for target in panel["targets"]:
        selectors = re.findall(r"tierscope_\w+(\{[^}]*\})?", target["expr"])
        assert all('job=~"$job"' in one and 'instance=~"$instance"' in one for one in selectors)


@every_panel
def test_counters_are_read_as_rates_over_an_interval_that_grafana_chooses(panel: Json) -> None:
    for target in panel["targets"]:
        expr = target["expr"]
        ranges = re.findall(r"(\w+)\((tierscope_\w+)\{[^}]*\}\[([^\]]+)\]\)", expr)
        assert len(ranges) == expr.count("[")
        for function, _, window in ranges:
            allowed = {"rate": {"$__rate_interval"}, "increase": {"$__rate_interval", "$__range"}}
            assert window in allowed.get(function, {"$__range"})
        through = [name for function, name, _ in ranges if function in ("rate", "increase")]
        counting = re.findall(r"tierscope_\w+(?:_total|_bucket|_sum|_count)\b", expr)
        assert sorted(counting) == sorted(through)


@every_panel
def test_a_heatmap_is_made_of_increases_by_bucket(panel: Json) -> None:
    if panel["type"] != "heatmap":
        assert all(target["format"] != "heatmap" for target in panel["targets"])
        return
    (target,) = panel["targets"]
    assert re.fullmatch(
        r"sum by \(le\) \(increase\(\w+_bucket\{.*\}\[\$__rate_interval\]\)\)", target["expr"]
    )
    assert (target["format"], target["legendFormat"]) == ("heatmap", "{{le}}")
