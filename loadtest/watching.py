"""Looks after this process while a run lasts: beats that show how late the event loop wakes, and CPU time."""

import time
from collections.abc import Callable

import gevent

from loadtest import garbage
from loadtest.health import Health
from loadtest.pacing import Alarm

_BEAT_NS = 100_000_000


class Watching:
    """From its making to ``close``; ``health`` is what was seen. Instants are those of ``now_ns``."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._cpu_start_s, self._began_ns = time.process_time(), now_ns()
        self.health = Health(self._cpu_start_s, self._began_ns)
        garbage.hold()
        self._beats = gevent.spawn(self._beat)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of this process, user and system, since it is watched."""
        return time.process_time() - self._cpu_start_s

    @property
    def wall_s(self) -> float:
        """Seconds since it is watched."""
        return (self._now_ns() - self._began_ns) / 1e9

    def tick(self) -> Health:
        """Look at the CPU time; to be called about once a second."""
        self.health.tick(time.process_time(), self._now_ns())
        return self.health

    def close(self) -> None:
        """Beat no more."""
        self._beats.kill()
        garbage.release()

    def _beat(self) -> None:
        """Wake at absolute instants; those that were slept through count once, with the whole lateness."""
        alarm, number = Alarm(), 0
        try:
            due_ns = time.monotonic_ns() + _BEAT_NS
            while True:
                alarm.wait_until(due_ns)
                late_ns = time.monotonic_ns() - due_ns
                self.health.beat(late_ns / 1e9)
                due_ns += _BEAT_NS * (1 + late_ns // _BEAT_NS)
                number += 1
                garbage.beat(number)
        finally:
            alarm.close()
