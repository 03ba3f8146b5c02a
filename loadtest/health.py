"""How the load generator itself fares, in bounded memory. Pure: the present is handed in."""

from loadtest.histogram import Histogram, log_edges
from loadtest.records import RequestRecord

_LATE_EDGES_S = log_edges(1e-6, 100.0)
_LEAST_TICK_S = 0.5


class Health:
    """One process's CPU, and how late its event loop wakes. ``tick`` once a second, ``beat`` ten times."""

    def __init__(self, cpu_s: float, began_ns: int) -> None:
        self.cpu_ratio = 0.0
        """CPU time per wall time between the last two ticks."""
        self.cpu_max_ratio: float | None = None
        self.hub_late_s = 0.0
        """Lateness of the worst beat between the last two ticks."""
        self.hub_late_max_s: float | None = None
        self._last_cpu_s, self._last_ns = cpu_s, began_ns
        self._worst_beat_s = 0.0
        self._beats = Histogram(_LATE_EDGES_S)

    def tick(self, cpu_s: float, now_ns: int) -> None:
        """Take in the CPU time that the process has used so far.

        One that follows too soon upon the last, as at a run's end, is left out: a burst of some milliseconds
        fills a core and tells nothing.
        """
        wall_s = (now_ns - self._last_ns) / 1e9
        if wall_s < _LEAST_TICK_S:
            return
        self.cpu_ratio = (cpu_s - self._last_cpu_s) / wall_s
        self.cpu_max_ratio = max(self.cpu_max_ratio or 0.0, self.cpu_ratio)
        self._last_cpu_s, self._last_ns = cpu_s, now_ns
        self.hub_late_s, self._worst_beat_s = self._worst_beat_s, 0.0

    def beat(self, late_s: float) -> None:
        """The event loop woke for a beat, so late."""
        self._beats.observe(late_s)
        self._worst_beat_s = max(self._worst_beat_s, late_s)
        self.hub_late_max_s = max(self.hub_late_max_s or 0.0, late_s)

    @property
    def hub_late_p99_s(self) -> float | None:
        """99 of 100 beats were no later, within a bucket of 9 %; None without a beat."""
        return _at_most(self._beats.quantile(0.99), self.hub_late_max_s)


class Punctuality:
    """What the records of a run say of the client that made them: lag, and events read together."""

    def __init__(self) -> None:
        self._lags = Histogram(_LATE_EDGES_S)
        self._worst_lag_s: float | None = None
        self._events = self._coalesced = 0

    def add(self, record: RequestRecord, lag_s: float | None) -> None:
        """Take in a request that ended; ``lag_s`` if it had a schedule to keep."""
        self._events += len(record.event_ns)
        self._coalesced += record.coalesced_events
        if lag_s is not None:
            self._lags.observe(lag_s)
            self._worst_lag_s = max(self._worst_lag_s or 0.0, lag_s)

    @property
    def lag_p99_s(self) -> float | None:
        """99 of 100 open-loop requests left no later, within a bucket of 9 %; None without any."""
        return _at_most(self._lags.quantile(0.99), self._worst_lag_s)

    @property
    def coalesced_ratio(self) -> float | None:
        """Share of events that came in one read with an earlier one; None without events."""
        return self._coalesced / self._events if self._events else None


def _at_most(quantile: float | None, greatest: float | None) -> float | None:
    """A quantile read off a bucket's upper edge, which may lie above the greatest value seen."""
    return None if quantile is None or greatest is None else min(quantile, greatest)
