"""When open-loop requests should leave: absolute instants from the stage's start, seeded. Pure.

A closed loop has no schedule: a stream sends when its last request has ended and it has thought. For it
``instants`` is empty. Rules for whoever edits this file:

1. The k-th instant follows from the seed and k; nothing depends on when the ones before it were kept.
2. Instants never fall. Several may be equal: that is a burst.
3. A stream's pauses follow from (seed, stage, position), so that they do not depend on who pauses first.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from loadtest.plan import Arrivals, Burst, Closed, Constant, Gamma, Poisson, Ramp, TraceTimes

_CHUNK = 1024
_SALT_ARRIVALS, _SALT_THINK = 4, 6
_LATEST_NS = 2.0**62
"""146 years: later instants are not told apart, and fit into 64 bits."""


def instants(
    arrivals: Arrivals, *, seed: int, stage_number: int, trace_ns: Iterable[int] = ()
) -> Iterator[int]:
    """Instants in ns from the stage's start, in order, without end but for a trace (none for a closed loop).

    ``trace_ns`` is what a trace tells, from its first request on; other arrivals do without. Constant ones
    are exact to the nanosecond over any length.
    """
    rng = np.random.default_rng((seed, _SALT_ARRIVALS, stage_number))
    match arrivals:
        case Closed():
            return iter(())
        case Constant():
            return _evenly(lambda number: number * 1e9 / arrivals.rate_per_s)
        case Burst():
            return _evenly(lambda number: number // arrivals.size * 1e9 * arrivals.period_s)
        case Poisson():
            return _summed(lambda: rng.exponential(1.0 / arrivals.rate_per_s, size=_CHUNK))
        case Gamma(rate_per_s=rate_per_s, burstiness=shape):
            return _summed(lambda: rng.gamma(shape, 1.0 / (rate_per_s * shape), size=_CHUNK))
        case Ramp():
            return _ramped(arrivals, rng)
        case TraceTimes():
            return (round(at_ns * arrivals.time_scale) for at_ns in trace_ns)


def think_s(arrivals: Closed, *, seed: int, stage_number: int, position: int) -> float:
    """The pause of a stream after its request at ``position`` of a stage has ended, in s."""
    if arrivals.think == "fixed" or not arrivals.think_s:
        return arrivals.think_s
    rng = np.random.default_rng((seed, _SALT_THINK, stage_number, position))
    return float(rng.exponential(arrivals.think_s))


def expected_count(ramp: Ramp, elapsed_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many requests a ramp sends on average in its first ``elapsed_s`` seconds: its rate integrated."""
    slope = (ramp.to_per_s - ramp.from_per_s) / ramp.over_s
    rising_s = np.minimum(elapsed_s, ramp.over_s)
    risen: NDArray[np.float64] = ramp.from_per_s * rising_s + slope / 2 * rising_s**2
    return risen + ramp.to_per_s * (elapsed_s - rising_s)


def reached_s(ramp: Ramp, count: NDArray[np.float64]) -> NDArray[np.float64]:
    """When a ramp's integrated rate reaches ``count``, in s: the inverse of ``expected_count``.

    The root of a quadratic, written so that nothing cancels whether the rate rises, falls or stays.
    """
    slope = (ramp.to_per_s - ramp.from_per_s) / ramp.over_s
    at_the_top = (ramp.from_per_s + ramp.to_per_s) / 2 * ramp.over_s
    rising = np.minimum(count, at_the_top)
    root = ramp.from_per_s + np.sqrt(np.maximum(ramp.from_per_s**2 + 2 * slope * rising, 0.0))
    risen_s = np.divide(2 * rising, root, out=np.zeros_like(rising), where=root > 0)
    reached: NDArray[np.float64] = risen_s + (count - rising) / ramp.to_per_s
    return reached


def _ramped(ramp: Ramp, rng: np.random.Generator) -> Iterator[int]:
    """A Poisson process by time rescaling, or one request at each whole number of the integrated rate."""
    reached = 0.0
    while True:
        if ramp.process == "constant":
            counts = reached + np.arange(_CHUNK, dtype=np.float64)
            reached += _CHUNK
        else:
            counts = reached + np.cumsum(rng.exponential(size=_CHUNK))
            reached = float(counts[-1])
        yield from _ns(reached_s(ramp, counts))


def _evenly(at_ns: Callable[[int], float]) -> Iterator[int]:
    return (round(at_ns(number)) for number in itertools.count())


def _summed(gaps_s: Callable[[], NDArray[np.float64]]) -> Iterator[int]:
    elapsed_s = 0.0
    while True:
        ends_s = elapsed_s + np.cumsum(gaps_s())
        yield from _ns(ends_s)
        elapsed_s = float(ends_s[-1])


def _ns(at_s: NDArray[np.float64]) -> list[int]:
    instants_ns: list[int] = np.rint(np.minimum(at_s * 1e9, _LATEST_NS)).astype(np.int64).tolist()
    return instants_ns
