"""Connections, and what it takes to wait for them: raw sockets, with TLS on top where the endpoint wants it.

Sockets are the C type: locust replaces ``socket.socket`` by gevent's, which waits and buffers on its own.
"""

import _socket
import socket

import gevent
from gevent.event import Event

from loadtest.clock import RunClock
from loadtest.tls import TlsSession

READ, WRITE = 1, 2
_READ_BYTES = 65536
_LONG_NS = 2**62


class ConnectError(Exception):
    """No connection could be made; the sentence says why."""


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


class Connection:
    """A connected socket and its TLS session, if any."""

    __slots__ = ("idle_since_ns", "recv", "sock", "tls")

    def __init__(self, sock: _socket.socket, tls: TlsSession | None) -> None:
        self.sock = sock
        self.tls = tls
        self.recv = sock.recvmsg_into
        self.idle_since_ns = 0

    def close(self) -> None:
        """Close at once."""
        self.sock.close()

    def is_dead(self) -> bool:
        """Whether a pooled connection was closed, or spoken on, by the server.

        What TLS says for itself (a late session ticket, a change of keys) is taken in and does no harm.
        """
        try:
            if self.tls is None:
                self.sock.recv(1, socket.MSG_PEEK)
                return True
            while received := self.sock.recv(_READ_BYTES):
                data, closed = self.tls.decrypt(received)
                send_quietly(self.sock, self.tls.to_send())
                if data or closed:
                    return True
        except BlockingIOError:
            return False
        except OSError:  # ssl.SSLError is one
            return True
        return True


def send_quietly(sock: _socket.socket, data: bytes) -> None:
    """Send a TLS alert or key update; if the socket does not take it, the next read shows what is wrong."""
    if data:
        try:
            sock.send(data)
        except OSError:
            return


def in_words(error: OSError) -> str:
    """The text of an OS error alone, without number and address."""
    return error.strerror or str(error)
