"""Counts between bounds, and the bounds of every histogram that the mock server shows. Pure.

Bounds of ``vllm:`` metrics are those of vLLM v1 (``vllm/v1/metrics/buckets.py``, 2026); ours are finer.
"""

from bisect import bisect_left
from itertools import accumulate

Bounds = tuple[float, ...]

REQUEST_S: Bounds = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
                     240.0, 480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
"""vLLM: what a request took, whole or in parts."""
TTFT_S: Bounds = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                  20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
ITL_S: Bounds = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
                 20.0, 40.0, 80.0)  # fmt: skip
ITERATION_TOKENS: Bounds = (1.0, 8.0, *(float(2**k) for k in range(4, 15)))
CHOICES: Bounds = (1.0, 2.0, 5.0, 10.0, 20.0)
"""vLLM: the parameter ``n``."""

STEP_S: Bounds = tuple(0.0005 * 2 ** (k / 8) for k in range(97))
"""From 0.5 ms to 2 s, eight bounds to a doubling: a quantile is right within 4.5 %."""
LAG_S: Bounds = tuple(1e-5 * 2**k for k in range(21))
"""From 10 µs to 10 s."""
BATCH: Bounds = (*map(float, range(8)), *(float(round(2 ** (k / 4))) for k in range(12, 53)))
"""Every batch below eight, then four bounds to a doubling, up to 8,192."""


def one_two_five(largest: int) -> Bounds:
    """1, 2, 5, 10, 20, 50 ... up to ``largest``: vLLM's bounds of numbers of tokens, its longest context."""
    bounds: list[float] = []
    decade = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * decade > largest:
                return tuple(bounds)
            bounds.append(float(mantissa * decade))
        decade *= 10


class Histogram:
    """Observations counted between bounds; a bound belongs to what lies below it, as in Prometheus."""

    __slots__ = ("_counts", "bounds", "told_bounds", "total")

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.told_bounds = tuple(map(repr, bounds))
        """The bounds as text: what a page repeats with every scrape."""
        self.total = 0.0
        """The sum of all observations."""
        self._counts = [0] * (len(bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count ``times`` observations of one value."""
        self._counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[int]:
        """How many observations there are at or below each bound, and at last how many in all."""
        return list(accumulate(self._counts))
