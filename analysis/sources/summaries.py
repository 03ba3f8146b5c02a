"""Summaries that tools print of their own requests: a mean and some quantiles a metric.

Kept: vLLM bench serve without details, AIPerf's aggregate JSON, inference-perf's summary, evalscope's
summary and percentiles. Each is a ``Points`` per metric: no intervals, no single requests.
"""

from collections.abc import Mapping
from typing import Any

from analysis.model import Metric
from analysis.sources.aggregate import Aggregate, Counts, Points, Series
from analysis.sources.observed import UNNAMED
from analysis.sources.source import Need, Source

_SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_CANNOT: dict[Need, str] = {
    "requests": "it is a summary: means and quantiles as the tool printed them",
    "gaps": "a summary keeps no single gap",
    "starts": "a summary keeps no instant",
    "schedule": "a summary keeps no schedule",
    "order": "a summary keeps no order",
}
_UNITS_S = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "tokens/sec/user": 1.0, "tokens/sec": 1.0}


def read(value: Any, *, where: str) -> Aggregate | None:
    """Read a decoded document as a summary; None if it is none that is known."""
    for kind in (_vllm, _aiperf, _inference_perf, _evalscope_percentiles, _evalscope_summary):
        found = kind(value, where)
        if found is not None:
            return found
    return None


def _aggregate(
    where: str,
    tool: str,
    points: Mapping[Metric, Points],
    *,
    model: str = "",
    good: int = 0,
    failed: int = 0,
    version: str | None = None,
    remark: str = "",
) -> Aggregate | None:
    """One tier's summary; None if it tells of no metric at all."""
    kept = {metric: one for metric, one in points.items() if one.mean is not None or one.at}
    if not kept:
        return None
    tier = model or UNNAMED
    outcomes = {"ok": good} | ({"http_error": failed} if failed else {})
    return Aggregate(
        source=Source(where, tool, version, dict(_CANNOT), (remark,) if remark else ()),
        series=[Series(metric, tier, one) for metric, one in kept.items()],
        counts=[Counts(tier, outcomes)],
        model=model,
    )


def _points(
    found: Mapping[Any, Any], names: Mapping[str, float], mean: str, scale: float, count: int
) -> Points:
    at = {
        share: one * scale for name, share in names.items() if (one := _number(found.get(name))) is not None
    }
    middle = _number(found.get(mean))
    return Points(at, None if middle is None else middle * scale, count)


def _vllm(value: Any, where: str) -> Aggregate | None:
    if not isinstance(value, dict) or "mean_ttft_ms" not in value:
        return None
    good = _count(value.get("completed"))
    names: dict[Metric, str] = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2e": "e2el"}
    points = {
        metric: _points(
            value,
            {f"{p}_{name}_ms": share for p, share in _SHARES.items()} | {f"median_{name}_ms": 0.5},
            f"mean_{name}_ms",
            1e-3,
            good,
        )
        for metric, name in names.items()
    }
    return _aggregate(
        where,
        "vLLM bench serve",
        points,
        model=_text(value.get("model_id")),
        good=good,
        failed=_count(value.get("failed")),
        remark="With --save-detailed the tool keeps every gap, and far more can be said.",
    )


def _aiperf(value: Any, where: str) -> Aggregate | None:
    if not isinstance(value, dict) or "aiperf_version" not in value:
        return None
    names: dict[Metric, str] = {
        "ttft": "time_to_first_token",
        "tpot": "inter_token_latency",  # AIPerf's is a mean over each request
        "itl": "inter_chunk_latency",
        "otps": "output_token_throughput_per_user",
        "e2e": "request_latency",
    }
    points: dict[Metric, Points] = {}
    for metric, name in names.items():
        found = value.get(name)
        if isinstance(found, dict):
            scale = _UNITS_S.get(_text(found.get("unit")), 1e-3)
            points[metric] = _points(found, _SHARES, "avg", scale, _count(found.get("count")))
    items = value.get("input_config")
    models = items.get("models", {}).get("items", [{}]) if isinstance(items, dict) else [{}]
    good = _count((value.get("request_count") or {}).get("avg"))
    return _aggregate(
        where,
        "AIPerf",
        points,
        model=_text(models[0].get("name")) if models else "",
        good=good,
        failed=_count((value.get("error_request_count") or {}).get("avg")),
        version=_text(value.get("aiperf_version")) or None,
        remark="profile_export.jsonl of the same run keeps every gap, and far more can be said from it.",
    )


def _inference_perf(value: Any, where: str) -> Aggregate | None:
    if not isinstance(value, dict) or "successes" not in value or "load_summary" not in value:
        return None
    good = value["successes"] or {}
    latency = good.get("latency") or {}
    names: dict[Metric, str] = {
        "ttft": "time_to_first_token",
        "tpot": "time_per_output_token",
        "itl": "inter_token_latency",
        "e2e": "request_latency",
    }
    shares = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    count = _count(good.get("count"))
    points = {
        metric: _points(latency.get(name) or {}, shares, "mean", 1.0, count) for metric, name in names.items()
    }
    return _aggregate(
        where,
        "inference-perf",
        points,
        good=count,
        failed=_count((value.get("failures") or {}).get("count")),
        remark="per_request_lifecycle_metrics.json of the same run keeps every gap.",
    )


_EVALSCOPE: dict[Metric, tuple[str, str, float]] = {
    "ttft": ("TTFT (ms)", "Avg TTFT (ms)", 1e-3),
    "tpot": ("TPOT (ms)", "Avg TPOT (ms)", 1e-3),
    "itl": ("ITL (ms)", "Avg ITL (ms)", 1e-3),
    "e2e": ("Latency (s)", "Avg Latency (s)", 1.0),
    "otps": ("Decode (tok/s)", "", 1.0),
}


def _evalscope_percentiles(value: Any, where: str) -> Aggregate | None:
    if (
        not isinstance(value, list)
        or not value
        or not isinstance(value[0], dict)
        or "Percentiles" not in value[0]
    ):
        return None
    rows = {_text(row.get("Percentiles")): row for row in value if isinstance(row, dict)}
    points: dict[Metric, Points] = {}
    for metric, (name, _, scale) in _EVALSCOPE.items():
        told = {p: _number(rows.get(f"{p[1:]}%", {}).get(name)) for p in _SHARES}
        points[metric] = Points({_SHARES[p]: one * scale for p, one in told.items() if one is not None})
    remark = "benchmark_data.db of the same folder keeps every gap, and far more can be said from it."
    return _aggregate(where, "evalscope", points, remark=remark)


def _evalscope_summary(value: Any, where: str) -> Aggregate | None:
    if not isinstance(value, dict) or "Avg TTFT (ms)" not in value:
        return None
    good = _count(value.get("Success Requests"))
    points: dict[Metric, Points] = {
        metric: _points(value, {}, mean, scale, good)
        for metric, (_, mean, scale) in _EVALSCOPE.items()
        if mean
    }
    remark = "benchmark_data.db of the same folder keeps every gap, and far more can be said from it."
    return _aggregate(
        where, "evalscope", points, good=good, failed=_count(value.get("Failed Requests")), remark=remark
    )


def _number(value: Any) -> float | None:
    """A number that is one: neither text nor NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return float(value)


def _count(value: Any) -> int:
    number = _number(value)
    return 0 if number is None else round(number)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
