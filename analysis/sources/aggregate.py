"""What is left of requests once they were counted: distributions by tier and prompt class. Pure.

Two shapes: counts per bucket, from which any quantile is known within a bucket, and the quantiles that
another tool printed. Neither keeps single requests, nor their order.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from analysis import intervals
from analysis.model import Estimate, Metric
from analysis.ragged import Floats, Ints
from analysis.sources.source import Source

LEVEL = 0.95
CLUSTER = 4.0
"""Requests share a server's moods. With no order left the factor by which that widens the variance of a mean
cannot be measured, so it is set: 4, an interval twice as wide as independent requests would give."""


@dataclass(frozen=True, slots=True)
class Binned:
    """Counts per bucket: ``counts[k]`` lie in (edges[k-1], edges[k]], the last one above all edges.

    ``sum`` is that of all values, None where it is not told.
    """

    edges: Floats
    counts: Ints
    sum: float | None = None

    @property
    def count(self) -> int:
        """How many values were counted."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float | None:
        """Exact, from the sum; buckets have no part in it."""
        return None if self.sum is None or not self.count else intervals.finite(self.sum / self.count)

    def fits(self, other: "Binned") -> bool:
        """Whether both have the same edges."""
        return np.array_equal(self.edges, other.edges)

    def added(self, other: "Binned") -> "Binned":
        """Both together; the edges are the same."""
        both = None if self.sum is None or other.sum is None else self.sum + other.sum
        return Binned(self.edges, self.counts + other.counts, both)

    def quantile(self, q: float, *, independent: float | None = None) -> Estimate:
        """A quantile that is sure to within its bucket and to within chance.

        The value is log-linear inside the bucket. The interval runs from the lower edge of the bucket in
        which the order statistic at the lower end of the binomial interval lies to the upper edge of that at
        its upper end, so it holds whatever the distribution inside buckets is. ``independent`` is the number
        of independent observations, if not all are. None where a side is open: below the first edge, above
        the last, or a rank that does not exist.
        """
        total = self.count
        if not total:
            return Estimate(value=None)
        units = max(1.0, (total if independent is None else min(independent, total)) / CLUSTER)
        spread = 1.96 * math.sqrt(q * (1 - q) / units)
        low, high = self.bucket(q - spread)[0], self.bucket(q + spread)[1]
        if q - spread <= 0:
            low = None
        if q + spread >= 1:
            high = None
        begin, end, share = *self.bucket(q), self._share(q)
        value = None
        if begin is not None and end is not None:
            value = begin * (end / begin) ** share
        return Estimate(value=value, low=low, high=high, level=LEVEL)

    def _place(self, q: float) -> int:
        rank = min(max(q, 0.0), 1.0) * self.count
        place = int(np.searchsorted(self.counts.cumsum(), rank - 1e-9, side="left"))
        filled = np.flatnonzero(self.counts)
        return int(min(max(place, filled[0]), filled[-1]))

    def bucket(self, q: float) -> tuple[float | None, float | None]:
        """The edges of the bucket in which a quantile lies; None for an open side."""
        place = self._place(q)
        low = float(self.edges[place - 1]) if place > 0 else None
        high = float(self.edges[place]) if place < self.edges.size else None
        return (low if low is None or low > 0 else None), high

    def _share(self, q: float) -> float:
        place = self._place(q)
        before = float(self.counts[:place].sum())
        return min(max((q * self.count - before) / float(self.counts[place]), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class Points:
    """Quantiles as another tool printed them, by their share; what it did not print is not known."""

    at: dict[float, float]
    mean: float | None = None
    count: int = 0

    def quantile(self, q: float, *, independent: float | None = None) -> Estimate:
        """The number that was printed, without any interval."""
        del independent
        value = self.at.get(q)
        return Estimate(value=value)


Shape = Binned | Points


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one label set."""

    metric: Metric
    tier: str
    shape: Shape
    prompt_class: int | None = None
    """Exact prompt length in tokens; None where lengths are mixed or not told."""
    stage: str = ""
    served_tier: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many requests of a tier ended in each way, and their tokens, where that is told."""

    tier: str
    outcomes: dict[str, int]
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Aggregate:
    """All that one page, query or summary told.

    ``where`` is the side that measured: a server's own latencies hold no network and no client.
    """

    source: Source
    series: list[Series]
    counts: list[Counts]
    run_id: str = ""
    plan: str = ""
    model: str = ""
    url: str = ""
    measured_by: Literal["client", "server"] = "client"
    notes: tuple[str, ...] = ()
    tokens_per_event: dict[str, float] = field(default_factory=dict)
    """Mean over a tier's requests, where it is told."""
    slices: dict[tuple[str, str], Floats] = field(default_factory=dict)
    """By two tiers, baseline first: ln of the ratio of their mean times per token in slices of time."""
    stamp_source: str = ""
    started_unix_s: float | None = None
    duration_s: float | None = None

    @property
    def tiers(self) -> list[str]:
        """Names of all tiers, in the order in which they were met."""
        return list(dict.fromkeys([one.tier for one in self.series] + [one.tier for one in self.counts]))

    def pooled(self, metric: Metric, tier: str, prompt_class: int | None = None) -> Shape | None:
        """A metric over all label sets of a tier, or of one prompt class; None if nothing is there."""
        found = [
            one.shape
            for one in self.series
            if one.metric == metric
            and one.tier == tier
            and (prompt_class is None or one.prompt_class == prompt_class)
        ]
        whole: Shape | None = None
        for shape in found:
            if whole is None:
                whole = shape
            elif isinstance(whole, Binned) and isinstance(shape, Binned) and whole.fits(shape):
                whole = whole.added(shape)
        return whole

    def classes(self, metric: Metric, tier: str) -> list[int]:
        """The prompt classes of which a tier has any value, ascending."""
        return sorted(
            {
                one.prompt_class
                for one in self.series
                if one.metric == metric
                and one.tier == tier
                and one.prompt_class is not None
                and isinstance(one.shape, Binned)
                and one.shape.count
            }
        )
