"""The run's clock: nanoseconds since its start on CLOCK_MONOTONIC, and how wall-clock stamps map onto it."""

import time

_TRIES = 16
_STEP_NS = 100_000  # 0.1 ms: above what preemption leaves after the best of 16 readings, below what matters


class RunClock:
    """Reads monotonic time, and knows where on CLOCK_REALTIME (which the kernel stamps with) the run began.

    An instant r of CLOCK_REALTIME lies ``r - realtime_zero_ns`` after the run's start. Both clocks are slewed
    alike by NTP; only a step of the wall clock moves their offset. ``recheck`` finds one and adopts the new
    offset; ``stepped_ns`` sums the sizes of all steps seen. ``zero_ns`` is where on this machine's monotonic
    clock a run began elsewhere; without it the run begins now.
    """

    def __init__(self, zero_ns: int | None = None) -> None:
        self.zero_ns = time.monotonic_ns() if zero_ns is None else zero_ns
        self.started_unix_s = time.time()
        self.stepped_ns = 0
        self.realtime_zero_ns = _offset_ns() + self.zero_ns

    def now_ns(self) -> int:
        """The present, in ns since the run's start."""
        return time.monotonic_ns() - self.zero_ns

    def recheck(self) -> bool:
        """Measure the offset of the two clocks again; adopt it and say so if the wall clock was stepped."""
        measured_ns = _offset_ns() + self.zero_ns
        moved_ns = abs(measured_ns - self.realtime_zero_ns)
        if moved_ns < _STEP_NS:
            return False
        self.realtime_zero_ns = measured_ns
        self.stepped_ns += moved_ns
        return True


def _offset_ns() -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC, from the tightest of a few readings between two monotonic ones."""
    best_width_ns, best_ns = None, 0
    for _ in range(_TRIES):
        before_ns = time.monotonic_ns()
        realtime_ns = time.time_ns()
        width_ns = time.monotonic_ns() - before_ns
        if best_width_ns is None or width_ns < best_width_ns:
            best_width_ns, best_ns = width_ns, realtime_ns - before_ns - width_ns // 2
    return best_ns
