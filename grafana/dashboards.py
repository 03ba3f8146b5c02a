"""The dashboards as files: frame, variables and the list of them.

``python -m grafana.dashboards`` writes them to ``grafana/dashboards/*.json``, which are committed so that a
Grafana can read them without Python.
"""

import json
from pathlib import Path

from grafana import tier_comparison
from grafana.panels import DATASOURCE, Json, layout
from grafana.promql import MODEL, TARGET

FOLDER = Path(__file__).with_name("dashboards")
SCHEMA_VERSION = 41  # Grafana 12.0 (2025); older ones ignore what they do not know, newer ones migrate


def _tier_comparison() -> Json:
    return {
        "uid": "tierscope-tier-comparison",
        "title": "tierscope / Tier comparison",
        "description": "Two tiers of one LLM endpoint side by side, as the load generator saw them.",
        "tags": ["tierscope", "llm"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,  # one crosshair on all panels
        "time": {"from": "now-15m", "to": "now"},
        "refresh": "5s",
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": layout(tier_comparison.rows()),
    }


DASHBOARDS = {"tier-comparison": _tier_comparison}


def text(name: str) -> str:
    """The JSON file of a dashboard."""
    return json.dumps(DASHBOARDS[name](), indent=2, ensure_ascii=False) + "\n"


def _variables() -> list[Json]:
    source = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "refresh": 1,
    }
    scope = f"tierscope_requests_total{{{MODEL}}}"
    return [
        source,
        _many("job", "Job", "label_values(tierscope_run_info, job)"),
        _many("instance", "Instance", 'label_values(tierscope_run_info{job=~"$job"}, instance)'),
        _many("model", "Model", f"label_values(tierscope_requests_total{{{TARGET}}}, model)"),
        _many("stage", "Stage", f"label_values({scope}, stage)"),
        _many("tier", "Tiers", f"label_values({scope}, requested_tier)"),
        _one("baseline", "Baseline tier", f"label_values({scope}, requested_tier)", first="standard"),
        _one("compared", "Compared tier", f"label_values({scope}, requested_tier)", first="fast"),
    ]


def _one(name: str, label: str, query: str, *, first: str) -> Json:
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # when the time range changes: runs come and go
        "sort": 1,
        "multi": False,
        "includeAll": False,
        "current": {"text": first, "value": first},
    }


def _many(name: str, label: str, query: str) -> Json:
    everything = {"current": {"text": ["All"], "value": ["$__all"]}, "allValue": ".+"}
    return _one(name, label, query, first="") | {"multi": True, "includeAll": True} | everything


def main() -> None:
    """Write every dashboard to its committed file."""
    FOLDER.mkdir(exist_ok=True)
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(text(name), encoding="utf-8")


if __name__ == "__main__":
    main()
