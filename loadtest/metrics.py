"""What a run shows to Prometheus, counted when a request ends. Pure.

Label sets that are sure to come exist at 0 from the start, so that ``rate`` sees the first increments.
"""

from dataclasses import dataclass, replace

from loadtest.plan import Plan, Target, Tier
from loadtest.records import OUTCOMES, Outcome, RequestRecord
from loadtest.series import Labels, Series, fill, fresh

UNREPORTED = "unreported"
MIXED = "mixed"
"""The prompt class of whatever is none of the plan's exact classes, a turn of a conversation for one."""
_OTHER = "other"
_MOST_SERVED_TIERS = 32
_MOST_EXPECTED = 2


@dataclass(slots=True)
class Gauges:
    """What a run is like at present; whoever drives the run refreshes them once a second."""

    stage: str = ""
    """Name of the stage under way."""
    offered_per_s: float = 0.0
    cpu_ratio: float = 0.0
    worst_lag_s: float = 0.0
    hub_late_s: float = 0.0


GAUGES = {
    "offered_per_s": (
        "offered_requests_per_second",
        "Requests that an open loop let leave per second, last five seconds; 0 in a closed loop.",
    ),
    "cpu_ratio": (
        "client_cpu_ratio",
        "CPU time of the load generator per wall time, last second.",
    ),
    "worst_lag_s": (
        "worst_lag_seconds",
        "Largest lateness of an open-loop request so far.",
    ),
    "hub_late_s": (
        "hub_lateness_seconds",
        "How late the event loop woke at the worst of the last second's ten beats.",
    ),
}


class RunMetrics:
    """The metrics of one run; ``page`` makes text of them."""

    def __init__(self, plan: Plan, target: Target, run_id: str, stamp_source: str) -> None:
        self.gauges = Gauges()
        self.info = {
            "run_id": run_id,
            "plan": plan.name,
            "model": target.model,
            "stamp_source": stamp_source,
        }
        self.stages = {stage.name: stage for stage in plan.stages}
        self._classes = set(plan.workload.classes)
        turns = plan.workload.sessions is not None or not self._classes
        self._sizes = [*map(str, sorted(self._classes)), *([MIXED] if turns else [])]
        self.in_flight = {tier.name: 0 for tier in plan.tiers}
        self.series: dict[Labels, Series] = {}
        self.requests: dict[tuple[Labels, Outcome], int] = {}
        self._served_tiers = {UNREPORTED}
        self._expected: dict[tuple[str, str], set[str]] = {}
        """What each tier of each model is expected to be served as, and was found to be."""
        for tier in plan.tiers:
            model, expected = tier.model or target.model, _expected_tier(tier)
            self._served_tiers.add(expected)
            self._expect(model, tier.name, expected)

    def started(self, tier: str) -> None:
        """A request of a tier is under way."""
        self.in_flight[tier] += 1

    def gave_up(self, tier: str, count: int) -> None:
        """Requests of a tier are under way no more and will never be said to have ended."""
        self.in_flight[tier] -= count

    def ended(self, record: RequestRecord) -> None:
        """A request has ended: count it, and fill the histograms from it if it went well."""
        self.in_flight[record.requested_tier] -= 1
        served = self._served(record.echoed_tier)
        size = record.prompt_class_tokens
        prompt_class = str(size) if size in self._classes and not record.turn else MIXED
        labels = Labels(record.model, record.requested_tier, served, record.stage, prompt_class)
        series = self.series.get(labels) or self._begin(labels, record)
        key = labels, record.outcome
        self.requests[key] = self.requests.get(key, 0) + 1
        series.counters["prompt_tokens"] += record.prompt_tokens or 0
        series.counters["cached_tokens"] += record.cached_tokens or 0
        series.counters["output_tokens"] += record.output_tokens or 0
        series.counters["coalesced_events"] += record.coalesced_events
        if record.outcome == "ok" and series.histograms:
            fill(series.histograms, record)

    def copy(self) -> "RunMetrics":
        """A copy to be rendered elsewhere while this one goes on counting."""
        made = object.__new__(RunMetrics)
        made.gauges, made.info, made.stages = replace(self.gauges), self.info, self.stages
        made.in_flight, made.requests = dict(self.in_flight), dict(self.requests)
        made.series = {labels: series.copy() for labels, series in self.series.items()}
        return made

    def _expect(self, model: str, tier: str, served: str) -> None:
        """Let the series of a tier begin at 0 in all stages, as served and as one that reports nothing."""
        self._expected.setdefault((model, tier), set()).add(served)
        for stage in self.stages.values():
            for size in self._sizes:
                labels = Labels(model, tier, served, stage.name, size)
                self.series.setdefault(labels, fresh(stage))
                for outcome in OUTCOMES:
                    self.requests.setdefault((labels, outcome), 0)
                    self.requests.setdefault((labels._replace(served_tier=UNREPORTED), outcome), 0)

    def _begin(self, labels: Labels, record: RequestRecord) -> Series:
        """Series that were not sure to come; the first surprise of a tier lets those of all stages begin.

        A server that does not echo the tier is one, and is met in the warm-up.
        """
        if len(self._expected.setdefault((labels.model, labels.requested_tier), set())) < _MOST_EXPECTED:
            self._expect(labels.model, labels.requested_tier, labels.served_tier)
        if labels not in self.series:
            self.series[labels] = fresh(self.stages.get(labels.stage), warmup=record.warmup)
        return self.series[labels]

    def _served(self, echoed: str | None) -> str:
        """The label of an echoed tier; a server that makes up ever new ones ends in one label."""
        if echoed is None:
            return UNREPORTED
        if echoed not in self._served_tiers and len(self._served_tiers) >= _MOST_SERVED_TIERS:
            return _OTHER
        self._served_tiers.add(echoed)
        return echoed


def _expected_tier(tier: Tier) -> str:
    """The tier a server that echoes any will most likely echo: the one asked for."""
    for key in ("speed", "service_tier"):
        value = tier.body.get(key)
        if isinstance(value, str) and value != "auto":
            return value
    return UNREPORTED
