"""Histograms with log-spaced buckets, filled a request at a time. Pure: no Prometheus in here.

Edges are a factor of 2^(1/8) ≈ 1.09 apart, so that a quantile read off a bucket is within 4.4 %, and reach
from 0.5 ms, because engines' own buckets, which start at 10 ms, put everything above 100 tokens/s into one.
"""

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

STEPS_PER_OCTAVE = 8


def log_edges(low: float, high: float, *, steps: int = STEPS_PER_OCTAVE) -> NDArray[np.float64]:
    """Edges from ``low`` to at least ``high``, ``steps`` an octave, rounded to six digits: short labels."""
    count = math.ceil(steps * math.log2(high / low) - 1e-9)
    return np.array([float(f"{low * 2 ** (k / steps):.6g}") for k in range(count + 1)])


def mirrored(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges of 1/x, ascending: a speed lies in the bucket that mirrors that of its time per token."""
    return np.array([float(f"{1 / edge:.6g}") for edge in edges[::-1]])


GAP_EDGES_S = log_edges(0.0005, 2.0)
TTFT_EDGES_S = log_edges(0.005, 60.0)
E2E_EDGES_S = log_edges(0.005, 600.0)
SPEED_EDGES_PER_S = mirrored(GAP_EDGES_S)
LATENESS_EDGES_S = log_edges(1e-5, 10.0, steps=2)
"""For the client's own lateness: from where a clock is read to where a run is spoilt."""
EVENT_TOKENS_EDGES = np.array([0.5, 0.9, 1, 1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 32, 64, 128])


class Histogram:
    """Counts per bucket. Bucket k holds edges[k-1] < x ≤ edges[k]; the last one what is above all edges."""

    __slots__ = ("_edge_list", "counts", "edges", "sum")

    def __init__(self, edges: NDArray[np.float64]) -> None:
        self.edges = edges
        self._edge_list: list[float] = edges.tolist()
        self.counts = np.zeros(edges.size + 1, dtype=np.int64)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._edge_list, value)] += 1
        self.sum += value

    def observe_many(self, values: NDArray[np.float64], repeats: NDArray[np.int64]) -> None:
        """Count each of ``values`` as often as ``repeats`` says: all gaps of a request at once."""
        places = np.searchsorted(self.edges, values, side="left")
        # bincount's weights are floats: exact up to 2^53 tokens
        self.counts += np.bincount(places, weights=repeats, minlength=self.counts.size).astype(np.int64)
        self.sum += float(values @ repeats)

    @property
    def count(self) -> int:
        """How many were counted."""
        return int(self.counts.sum())

    def quantile(self, ratio: float) -> float | None:
        """The upper edge of the bucket in which the quantile lies: at most a bucket too high; None if empty.

        What lies above all edges is given as the last edge.
        """
        total = self.count
        if not total:
            return None
        place = int(np.searchsorted(self.counts.cumsum(), max(1, math.ceil(ratio * total)), side="left"))
        return self._edge_list[min(place, len(self._edge_list) - 1)]

    def copy(self) -> "Histogram":
        """A copy that later observations leave alone."""
        made = object.__new__(Histogram)
        made.edges, made._edge_list = self.edges, self._edge_list
        made.counts, made.sum = self.counts.copy(), self.sum
        return made
