"""Which requests count, how many were in flight, and whether the server stood still meanwhile."""

from dataclasses import dataclass

import numpy as np

from analysis import intervals, lengths
from analysis.ragged import Bools, Floats
from analysis.table import Requests

FEWEST = 24
DRIFT_Z, DRIFT_RATIO = 3.0, 0.10
"""A drift is told if it is both beyond chance and beyond 10 %."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How a quantity moved from the first third of the run to the last: ratio last / first."""

    what: str
    ratio: float
    z: float

    @property
    def matters(self) -> bool:
        """Whether it is both certain and large."""
        return abs(self.z) > DRIFT_Z and abs(np.log(self.ratio)) > np.log1p(DRIFT_RATIO)


def measured(requests: Requests) -> Bools:
    """True for requests that count: not warm-up, and not cut off by our own end of the run."""
    warmup = requests.frame["warmup"].to_numpy(dtype=np.bool_)
    return ~warmup & ~requests.text_is("outcome", "cancelled")


def mean_in_flight(begin_s: Floats, end_s: Floats, edges_s: Floats) -> Floats:
    """Average number of requests in flight between neighbouring edges.

    A request is in flight on [begin, end]; the integral of their number up to an instant t is
    Σ max(0, t − begin) − Σ max(0, t − end), which two sorted running sums give without a loop.
    """
    known = np.isfinite(begin_s) & np.isfinite(end_s)
    elapsed = _ramp(begin_s[known], edges_s) - _ramp(end_s[known], edges_s)
    return np.asarray(np.diff(elapsed) / np.diff(edges_s))


def drifts(requests: Requests) -> list[Drift]:
    """Drift of TTFT and of step time over one tier's good requests, prompt lengths and stages evened out."""
    found: list[Drift] = []
    for what, column in (("TTFT", "ttft_s"), ("step time", "step_s")):
        values = requests.column(column)
        known = np.isfinite(values) & (values > 0)
        if known.sum() < FEWEST:
            continue
        logs = _evened(np.log(values[known]), _strata(requests)[known])
        found.append(_drift(what, logs))
    return found


def _drift(what: str, logs: Floats) -> Drift:
    """Least-squares slope against position, its error from what the line leaves over."""
    position = np.linspace(-1.0, 1.0, logs.size)
    weight = position / np.mean(position**2)
    slope = float(np.mean(weight * logs))
    _, error, _ = intervals.mean_error(weight * (logs - logs.mean() - slope * position))
    # From the middle of the first third to the middle of the last one: 4/3 of half the length.
    return Drift(what, float(np.exp(slope * 4 / 3)), slope / error if error > 0 else 0.0)


def _strata(requests: Requests) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    classes = lengths.groups(requests, requests.column("uncached_tokens")).astype(str)
    runs = requests.column("run").astype(np.int64).astype(str)
    return np.asarray(classes.astype(object) + "/" + requests.text("stage") + "/" + runs.astype(object))


def _evened(values: Floats, strata: np.ndarray[tuple[int], np.dtype[np.object_]]) -> Floats:
    _, places = np.unique(strata.astype(str), return_inverse=True)
    means = np.bincount(places, values) / np.bincount(places)
    return np.asarray(values - means[places])


def _ramp(instants: Floats, at: Floats) -> Floats:
    """Σ max(0, t − instant) for each t in ``at``."""
    ordered = np.sort(instants)
    running = np.concatenate(([0.0], np.cumsum(ordered)))
    passed = np.searchsorted(ordered, at)
    return np.asarray(at * passed - running[passed])
