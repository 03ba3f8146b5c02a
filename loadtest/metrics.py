"""What a run shows to Prometheus: histograms and counters, filled when a request ends.

Rules for whoever edits this file:

1. Units are in the names, labels are exact classes of low cardinality, never ranges.
2. Only good requests outside of warm-up feed the histograms; the counters count everything.
3. Nothing is computed per token in Python: one vectorised call a request.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from loadtest import derive
from loadtest.histogram import E2E_EDGES_S, GAP_EDGES_S, SPEED_EDGES_PER_S, TTFT_EDGES_S, Histogram
from loadtest.plan import Plan, Target, Tier
from loadtest.records import OUTCOMES, Outcome, RequestRecord

UNREPORTED = "unreported"
_OTHER = "other"
_MOST_SERVED_TIERS = 32


class Labels(NamedTuple):
    """The labels of every histogram and counter."""

    model: str
    requested_tier: str
    served_tier: str
    stage: str
    prompt_class: str


_HISTOGRAMS = {
    "ttft_seconds": (TTFT_EDGES_S, "Time from sending a request to its first output token."),
    "ttft_from_scheduled_seconds": (
        TTFT_EDGES_S,
        "Time from when a request should have left to its first output token.",
    ),
    "tpot_seconds": (GAP_EDGES_S, "Time per output token after the first delivery, one value a request."),
    "itl_seconds": (
        GAP_EDGES_S,
        "Time between output tokens; a gap that brought k tokens counts k times gap/k.",
    ),
    "otps_tokens_per_second": (
        SPEED_EDGES_PER_S,
        "Output tokens per second of one stream, one value a request.",
    ),
    "e2e_seconds": (E2E_EDGES_S, "Time from sending a request to the end of its response."),
}
_COUNTERS = {
    "prompt_tokens": "Prompt tokens as the server counted them.",
    "output_tokens": "Output tokens as the server counted them.",
    "coalesced_events": "Output events that came in one read with an earlier one.",
}


@dataclass(slots=True)
class Series:
    """All histograms and counters of one label set; a warm-up stage has no histograms."""

    histograms: dict[str, Histogram]
    counters: dict[str, int]

    def copy(self) -> "Series":
        """A copy that later requests leave alone."""
        return Series({name: made.copy() for name, made in self.histograms.items()}, dict(self.counters))


class RunMetrics:
    """The metrics of one run; also a collector in the sense of prometheus_client (``collect``).

    Label sets that are sure to come exist at 0 from the start, so that ``rate`` sees the first increments.
    """

    def __init__(self, plan: Plan, target: Target, run_id: str, stamp_source: str) -> None:
        self.cpu_ratio = 0.0
        self.worst_lag_s = 0.0
        self._info = {
            "run_id": run_id,
            "plan": plan.name,
            "model": target.model,
            "stamp_source": stamp_source,
        }
        self._in_flight = {tier.name: 0 for tier in plan.tiers}
        self._series: dict[Labels, Series] = {}
        self._requests: dict[tuple[Labels, Outcome], int] = {}
        self._served_tiers = {UNREPORTED}
        for tier in plan.tiers:
            model, expected = tier.model or target.model, _expected_tier(tier)
            self._served_tiers.add(expected)
            for stage in plan.stages:
                for tokens in plan.workload.classes:
                    labels = Labels(model, tier.name, expected, stage.name, str(tokens))
                    self._begin(labels, warmup=stage.warmup)

    def started(self, tier: str) -> None:
        """A request of a tier is under way."""
        self._in_flight[tier] += 1

    def ended(self, record: RequestRecord) -> None:
        """A request has ended: count it, and fill the histograms from it if it went well."""
        self._in_flight[record.requested_tier] -= 1
        labels = Labels(
            record.model,
            record.requested_tier,
            self._served(record.echoed_tier),
            record.stage,
            str(record.prompt_class_tokens),
        )
        key = labels, record.outcome
        self._requests[key] = self._requests.get(key, 0) + 1
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _series(warmup=record.warmup)
        series.counters["prompt_tokens"] += record.prompt_tokens or 0
        series.counters["output_tokens"] += record.output_tokens or 0
        series.counters["coalesced_events"] += record.coalesced_events
        if record.outcome == "ok" and series.histograms:
            _fill(series.histograms, record)

    def copy(self) -> "RunMetrics":
        """A copy to be rendered elsewhere while this one goes on counting."""
        made = object.__new__(RunMetrics)
        made.cpu_ratio, made.worst_lag_s, made._info = self.cpu_ratio, self.worst_lag_s, self._info
        made._in_flight, made._requests = dict(self._in_flight), dict(self._requests)
        made._series = {labels: series.copy() for labels, series in self._series.items()}
        made._served_tiers = self._served_tiers
        return made

    def collect(self) -> Iterator[Metric]:
        """All metric families, in the form prometheus_client renders."""
        for name, (edges, help_text) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(f"tierscope_{name}", help_text, labels=Labels._fields)
            bounds = [*(str(edge) for edge in edges.tolist()), "+Inf"]
            for labels, series in self._series.items():
                histogram = series.histograms.get(name)
                if histogram is None:
                    continue
                buckets = list(zip(bounds, histogram.counts.cumsum().tolist(), strict=True))
                family.add_metric(labels, buckets, histogram.sum)
            yield family
        yield from self._collect_counters()
        yield from self._collect_gauges()

    def _collect_counters(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "tierscope_requests", "Requests that ended, by outcome.", labels=(*Labels._fields, "outcome")
        )
        for (labels, outcome), count in self._requests.items():
            requests.add_metric((*labels, outcome), count)
        yield requests
        for name, help_text in _COUNTERS.items():
            counter = CounterMetricFamily(f"tierscope_{name}", help_text, labels=Labels._fields)
            for labels, series in self._series.items():
                counter.add_metric(labels, series.counters[name])
            yield counter

    def _collect_gauges(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily(
            "tierscope_requests_in_flight", "Requests under way.", labels=("requested_tier",)
        )
        for tier, count in self._in_flight.items():
            in_flight.add_metric((tier,), count)
        yield in_flight
        info = GaugeMetricFamily(
            "tierscope_run_info", "Which run this is; always 1.", labels=tuple(self._info)
        )
        info.add_metric(tuple(self._info.values()), 1)
        yield info
        yield GaugeMetricFamily(
            "tierscope_client_cpu_ratio",
            "CPU time of the load generator per wall time, last second.",
            self.cpu_ratio,
        )
        yield GaugeMetricFamily(
            "tierscope_worst_lag_seconds",
            "Largest lateness of an open-loop request so far.",
            self.worst_lag_s,
        )

    def _begin(self, labels: Labels, *, warmup: bool) -> None:
        self._series[labels] = _series(warmup=warmup)
        self._requests[labels, "ok"] = 0
        for outcome in OUTCOMES:
            self._requests.setdefault((labels._replace(served_tier=UNREPORTED), outcome), 0)

    def _served(self, echoed: str | None) -> str:
        """The label of an echoed tier; a server that makes up ever new ones ends in one label."""
        if echoed is None:
            return UNREPORTED
        if echoed not in self._served_tiers and len(self._served_tiers) >= _MOST_SERVED_TIERS:
            return _OTHER
        self._served_tiers.add(echoed)
        return echoed


def _series(*, warmup: bool) -> Series:
    histograms = {} if warmup else {name: Histogram(edges) for name, (edges, _) in _HISTOGRAMS.items()}
    return Series(histograms, dict.fromkeys(_COUNTERS, 0))


def _expected_tier(tier: Tier) -> str:
    """The tier a server that echoes any will most likely echo: the one asked for."""
    for key in ("speed", "service_tier"):
        value = tier.body.get(key)
        if isinstance(value, str) and value != "auto":
            return value
    return UNREPORTED


def _fill(histograms: dict[str, Histogram], record: RequestRecord) -> None:
    for name, value in (
        ("ttft_seconds", derive.ttft_s(record)),
        ("ttft_from_scheduled_seconds", derive.ttft_from_scheduled_s(record)),
        ("tpot_seconds", derive.tpot_s(record)),
        ("otps_tokens_per_second", derive.otps_per_s(record)),
        ("e2e_seconds", derive.e2e_s(record)),
    ):
        if value is not None:
            histograms[name].observe(value)
    gaps_s, tokens = derive.itl(record)
    if gaps_s.size:
        histograms["itl_seconds"].observe_many(gaps_s, tokens)
