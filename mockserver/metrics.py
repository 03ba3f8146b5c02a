"""What the mock shows to Prometheus: vLLM's own names and buckets, and the truth behind them.

Of an engine: labels ``model_name``, ``engine`` (the replica's number) and ``tier`` (whose engine it is). Of
requests: ``model_name`` and ``tier`` (that served them). docs/truth.md says what each counts. Pure.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from mockserver import histogram, metrics_text
from mockserver import metric_families as families
from mockserver.engine_counts import EngineCounts
from mockserver.histogram import Histogram
from mockserver.job import StepDone

BoundBy = Callable[[str, StepDone], str]
"""(engine's name, step) → what bounds its duration."""

_REASONS = {
    "length": "length",
    "stop": "stop",
    "stop_sequence": "stop",
    "tool": "stop",
    "abort": "abort",
    "error": "error",
}
"""How a request can end, and what vLLM calls it."""


class ServerMetrics:
    """Everything counted of a server. ``page`` is what a scrape gets.

    ``engines`` is KV capacity in tokens by name (``standard``, or ``standard/2`` for a replica); ``tiers``
    are named where some share an engine. ``longest_tokens`` is the longest context.
    """

    def __init__(
        self,
        model_name: str,
        engines: Mapping[str, int],
        *,
        tiers: Sequence[str] = (),
        longest_tokens: int = 131_072,
        bound_by: BoundBy | None = None,
    ) -> None:
        self._model = {"model_name": model_name}
        self._bound_by = bound_by
        self._engines = {name: EngineCounts(capacity, longest_tokens) for name, capacity in engines.items()}
        self._labels = {name: self._engine_labels(name) for name in engines}
        tiers = tiers or tuple(dict.fromkeys(name.partition("/")[0] for name in engines))
        sizes = histogram.one_two_five(longest_tokens)
        self._max_tokens = {tier: Histogram(sizes) for tier in tiers}
        self._choices = {tier: Histogram(histogram.CHOICES) for tier in tiers}
        self._ends = {(tier, reason): 0 for tier in tiers for reason in dict.fromkeys(_REASONS.values())}
        self._refusals: dict[tuple[str, str], int] = {}
        self._faults: dict[str, int] = {}
        self._downgrades: dict[tuple[str, str], int] = {}
        self._late = False
        self.engine_s = 0.0
        """Time spent in the engines; whoever runs them sets it."""

    def on_step(self, engine_name: str, step: StepDone, lag_ns: int) -> None:
        """Count one step, and how long after its end it was handed out."""
        bound = "" if self._bound_by is None else self._bound_by(engine_name, step)
        self._engines[engine_name].add(step, lag_ns, bound)

    def on_request(self, tier_name: str, *, max_tokens: int | None, choices: int = 1) -> None:
        """Count the parameters of a request that was let in; without a limit there is none to count."""
        if max_tokens is not None:
            self._max_tokens[tier_name].add(max_tokens)
        self._choices[tier_name].add(choices)

    def on_end(self, tier_name: str, reason: str) -> None:
        """Count an answer that ended: length, stop, stop_sequence, tool, abort or error."""
        self._ends[tier_name, _REASONS[reason]] += 1

    def on_refusal(self, tier_name: str, status: int) -> None:
        """Count a request that was refused; the tier is empty where it came to none."""
        key = (tier_name, str(status))
        self._refusals[key] = self._refusals.get(key, 0) + 1

    def on_fault(self, kind: str) -> None:
        """Count a fault that struck a request."""
        self._faults[kind] = self._faults.get(kind, 0) + 1

    def on_downgrade(self, tier_name: str, served_by: str) -> None:
        """Count a request to ``tier_name`` that another tier served in silence."""
        self._downgrades[tier_name, served_by] = self._downgrades.get((tier_name, served_by), 0) + 1

    def set_late(self, *, late: bool) -> None:
        """Say whether the host is too slow for the profile."""
        self._late = late

    def page(self) -> bytes:
        """All metrics in Prometheus' text format, ``metrics_text.CONTENT_TYPE``."""
        return "".join((*self._of_engines(), *self._of_requests())).encode()

    def _engine_labels(self, name: str) -> str:
        tier, _, replica = name.partition("/")
        return metrics_text.labels({**self._model, "engine": replica or "0", "tier": tier})

    def _of_engines(self) -> Iterator[str]:
        counted = [(self._labels[name], counts) for name, counts in self._engines.items()]
        for family, gauge in families.GAUGES:
            yield metrics_text.values(family, [(told, gauge(counts)) for told, counts in counted])
        for family, attribute in families.COUNTERS:
            yield metrics_text.values(
                family, [(told, getattr(counts, attribute)) for told, counts in counted]
            )
        for family, label, split in families.SPLIT_COUNTERS:
            series = [
                (f"{told},{metrics_text.labels({label: which})}", value)
                for told, counts in counted
                for which, value in split(counts).items()
            ]
            yield metrics_text.values(family, series)
        for family, attribute in families.HISTOGRAMS:
            yield metrics_text.histograms(
                family, [(told, getattr(counts, attribute)) for told, counts in counted]
            )

    def _of_requests(self) -> Iterator[str]:
        def told(**more: str) -> str:
            return metrics_text.labels({**self._model, **more})

        ends = [(told(tier=tier, finished_reason=why), count) for (tier, why), count in self._ends.items()]
        yield metrics_text.values(families.ENDS, ends)
        for family, by_tier in ((families.MAX_TOKENS, self._max_tokens), (families.CHOICES, self._choices)):
            yield metrics_text.histograms(
                family, [(told(tier=tier), found) for tier, found in by_tier.items()]
            )
        refusals = [(told(tier=tier, status=status), n) for (tier, status), n in self._refusals.items()]
        yield metrics_text.values(families.REFUSALS, refusals)
        downgrades = [(told(tier=tier, served_by=other), n) for (tier, other), n in self._downgrades.items()]
        yield metrics_text.values(families.DOWNGRADES, downgrades)
        yield metrics_text.values(families.FAULTS, [(told(kind=kind), n) for kind, n in self._faults.items()])
        yield metrics_text.values(families.ENGINE_S, [(told(), self.engine_s)])
        yield metrics_text.values(families.LATE, [(told(), int(self._late))])
