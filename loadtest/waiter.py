"""Waiting with a deadline, for an event or a socket, so that whoever ends the run can end each wait."""

import _socket

import gevent
from gevent.event import Event

from loadtest.clock import RunClock

READ, WRITE = 1, 2
_LONG_NS = 2**62


class DeadlineError(Exception):
    """A wait took longer than the plan allows; the sentence says which."""


class CancelledError(Exception):
    """The run ended while a greenlet was waiting."""


class Waiter:
    """The waits of one greenlet: each has an absolute deadline, ``cancel`` ends whichever is under way."""

    def __init__(self, clock: RunClock) -> None:
        self.wake = Event()
        self._clock = clock
        self._cancelled = False

    def cancel(self) -> None:
        """End the present wait, and all later ones, with CancelledError."""
        self._cancelled = True
        self.wake.set()

    def wait(self, deadline_ns: int, words: str, at_most_ns: int = _LONG_NS) -> None:
        """Block until woken, until the deadline, or for ``at_most_ns``, whichever comes first.

        Raises DeadlineError with ``words`` if the deadline has passed, CancelledError after ``cancel``.
        """
        if self._cancelled:
            raise CancelledError
        left_ns = deadline_ns - self._clock.now_ns()
        if left_ns <= 0:
            raise DeadlineError(words)
        self.wake.wait(min(left_ns, at_most_ns) / 1e9)
        if self._cancelled:
            raise CancelledError

    def wait_io(self, sock: _socket.socket, direction: int, deadline_ns: int, words: str) -> None:
        """Block until the socket is ready to READ or WRITE, with the same errors as ``wait``."""
        watcher = gevent.get_hub().loop.io(sock.fileno(), direction)
        self.wake.clear()
        watcher.start(self.wake.set)
        try:
            while not self.wake.is_set():
                self.wait(deadline_ns, words)
        finally:
            watcher.stop()
            watcher.close()
