"""The first of several addresses that takes a connection, in the spirit of RFC 8305 ("happy eyeballs").

The next address is begun when one failed or none has answered for 250 ms; those begun go on meanwhile.
"""

import _socket
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import gevent

from loadtest.resolve import Address
from loadtest.waiter import WRITE, Waiter

ATTEMPT_DELAY_NS = 250_000_000  # RFC 8305, section 5: recommended
_NO_DELAY_NS = 2**62
Prepare = Callable[[_socket.socket], None]
"""Sets a socket's options before it connects."""


class _Attempt:
    """One connection under way. ``code`` is the system's error number, 0 for none, once it ``ended``."""

    def __init__(self, address: Address, prepare: Prepare, wake: Callable[[], None]) -> None:
        family, where = address
        self.address = address
        self.sock = _socket.socket(family, socket.SOCK_STREAM)
        self._wake = wake
        self._watcher: Any = None
        try:
            self.sock.setblocking(False)
            prepare(self.sock)
            self.code = self.sock.connect_ex(where)
        except BaseException:
            self.sock.close()
            raise
        self.ended = self.code != errno.EINPROGRESS
        if not self.ended:
            self._watcher = gevent.get_hub().loop.io(self.sock.fileno(), WRITE)
            self._watcher.start(self._on_writable)

    def _on_writable(self) -> None:
        self.code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self.ended = True
        self._unwatch()
        self._wake()

    def _unwatch(self) -> None:
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None

    def close(self) -> None:
        """Give it up."""
        self._unwatch()
        self.sock.close()


def connect_first(
    addresses: Sequence[Address], prepare: Prepare, waiter: Waiter, deadline_ns: int, words: str
) -> tuple[_socket.socket, Address]:
    """Connect to whichever address is the first to answer; the other attempts are closed.

    Raises the last OSError if all fail, DeadlineError with ``words``, or CancelledError.
    """
    left, running = list(addresses), list[_Attempt]()
    failure = OSError(errno.EADDRNOTAVAIL, "the host has no address")
    try:
        while left or running:
            if left:
                try:
                    running.append(_Attempt(left.pop(0), prepare, waiter.wake.set))
                except OSError as error:  # this machine lacks the family, or file descriptors
                    failure = error
                    continue
            waiter.wake.clear()
            if not any(attempt.ended for attempt in running):
                waiter.wait(deadline_ns, words, ATTEMPT_DELAY_NS if left else _NO_DELAY_NS)
            for attempt in [each for each in running if each.ended]:
                running.remove(attempt)
                if not attempt.code:
                    return attempt.sock, attempt.address
                attempt.close()
                failure = OSError(attempt.code, os.strerror(attempt.code))
        raise failure
    finally:
        for attempt in running:
            attempt.close()
