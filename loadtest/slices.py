"""Long work in short slices, so that arrivals are read in time. Greenlets.

``gevent.sleep(0)`` does not do this: the hub runs up to 50 callbacks before it looks at its sockets again,
and a greenlet that sleeps so comes back within them (measured with gevent 26.9: 50 slices of 1 ms in one go).
An async watcher fires only after the sockets were looked at.
"""

import time

import gevent
from gevent.event import Event

SLICE_NS = 1_000_000
"""Longer, and two tokens of one stream may wait for one read; shorter, and the switches cost."""


class Slices:
    """The working time of one greenlet."""

    def __init__(self, slice_ns: int = SLICE_NS) -> None:
        self._slice_ns = slice_ns
        self._since_ns = time.monotonic_ns()
        self._turn = Event()
        self._watcher = gevent.get_hub().loop.async_(ref=False)
        self._watcher.start(self._turn.set)

    def begin(self) -> None:
        """Work begins after a wait."""
        self._since_ns = time.monotonic_ns()

    def breathe(self) -> None:
        """Let the hub read its sockets if the slice is used up."""
        if time.monotonic_ns() - self._since_ns >= self._slice_ns:
            self._turn.clear()
            self._watcher.send()
            self._turn.wait()
            self._since_ns = time.monotonic_ns()

    def close(self) -> None:
        """Give the watcher back."""
        self._watcher.stop()
        self._watcher.close()
