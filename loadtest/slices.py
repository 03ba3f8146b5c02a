"""Long work in short slices, so that arrivals are read and requests leave in time. Greenlets.

``gevent.sleep(0)`` does not do this: the hub runs up to 50 callbacks before it looks at its sockets again,
and a greenlet that sleeps so comes back within them (measured with gevent 26.9: 50 slices of 1 ms in one go).
An async watcher fires only after the sockets were looked at.
"""

import time

import gevent
from gevent.event import Event

SLICE_NS = 1_000_000
"""Longer, and two tokens of one stream may wait for one read; shorter, and the switches cost."""
_AT_MOST_S = 0.005
_NEVER_NS = 2**63


class Agenda:
    """What has to happen on an instant of CLOCK_MONOTONIC, for those whose work can wait."""

    def __init__(self) -> None:
        self.due_ns = _NEVER_NS
        self._kept = Event()

    def expect(self, due_ns: int) -> None:
        """Something is due."""
        self.due_ns = due_ns

    def keep(self) -> None:
        """It has happened."""
        self.due_ns = _NEVER_NS
        self._kept.set()

    def wait(self) -> None:
        """Block until it has happened, for 5 ms at most."""
        self._kept.clear()
        self._kept.wait(_AT_MOST_S)


class Slices:
    """The working time of one greenlet, which does one thing after the other and breathes in between."""

    def __init__(self, agenda: Agenda, slice_ns: int = SLICE_NS) -> None:
        self._agenda = agenda
        self._slice_ns = slice_ns
        self._turn = Event()
        self._watcher = gevent.get_hub().loop.async_(ref=False)
        self._watcher.start(self._turn.set)
        self._since_ns = self._last_ns = time.monotonic_ns()
        self._took_ns = 0

    def begin(self) -> None:
        """Work begins after a wait."""
        self._since_ns = self._last_ns = time.monotonic_ns()
        self._keep_out()

    def breathe(self) -> None:
        """One thing is done: let others work if the slice is used up, or the next would be in their way."""
        now_ns = time.monotonic_ns()
        self._took_ns, self._last_ns = now_ns - self._last_ns, now_ns
        if not self._keep_out() and now_ns - self._since_ns >= self._slice_ns:
            self.rest()

    def _keep_out(self) -> bool:
        """Wait for what is due before another thing like the last one would be done."""
        if self._last_ns + self._took_ns <= self._agenda.due_ns:
            return False
        self._agenda.wait()
        self._since_ns = self._last_ns = time.monotonic_ns()
        return True

    def rest(self) -> None:
        """Let the hub read its sockets."""
        self._turn.clear()
        self._watcher.send()
        self._turn.wait()
        self._since_ns = self._last_ns = time.monotonic_ns()

    def close(self) -> None:
        """Give the watcher back."""
        self._watcher.stop()
        self._watcher.close()
