"""Connections: raw sockets, made within a deadline, with TLS on top where the endpoint wants it.

Sockets are the C type: locust replaces ``socket.socket`` by gevent's, which waits and buffers on its own.
"""

import _socket
import errno
import os
import socket
import ssl
from typing import Any

import gevent
from gevent import socket as gevent_socket
from gevent.event import Event

from loadtest.clock import RunClock
from loadtest.endpoint import Endpoint
from loadtest.stamps import Stamps
from loadtest.tls import TlsSession, reason

READ, WRITE = 1, 2
_HANDSHAKE_BYTES = 65536
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
        """Whether a pooled connection was closed, or spoken on, by the server."""
        try:
            self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


class Dialer:
    """Connects to one endpoint. The host is resolved once; the address that worked last is tried first."""

    def __init__(
        self, endpoint: Endpoint, clock: RunClock, stamps: Stamps, context: ssl.SSLContext | None
    ) -> None:
        self.opened = 0
        self._endpoint = endpoint
        self._clock = clock
        self._stamps = stamps
        self._context = context
        self._addresses: list[tuple[int, Any]] = []

    def dial(self, waiter: Waiter, timeout_s: float) -> Connection:
        """Connect, trying each address in turn within ``timeout_s`` in all.

        Raises ConnectError, DeadlineError or CancelledError.
        """
        deadline_ns = self._clock.now_ns() + int(timeout_s * 1e9)
        words = f"connect: no connection within {timeout_s:g} s"
        failure = "the host has no address"
        for family, address in self._resolved():
            try:
                connection = self._connect(family, address, waiter, deadline_ns, words)
            except OSError as error:
                failure = reason(error) if isinstance(error, ssl.SSLError) else in_words(error)
                continue
            self._addresses.remove((family, address))
            self._addresses.insert(0, (family, address))
            self.opened += 1
            return connection
        raise ConnectError(failure)

    def _resolved(self) -> list[tuple[int, Any]]:
        if not self._addresses:
            try:
                found = gevent_socket.getaddrinfo(
                    self._endpoint.host,
                    self._endpoint.port,
                    type=socket.SOCK_STREAM,
                    proto=socket.IPPROTO_TCP,
                )
            except OSError as error:
                raise ConnectError(in_words(error)) from error
            self._addresses = [(family, address) for family, _, _, _, address in found]
        return list(self._addresses)

    def _connect(self, family: int, address: Any, waiter: Waiter, deadline_ns: int, words: str) -> Connection:
        sock = _socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stamps.enable(sock)
            code = sock.connect_ex(address)
            if code == errno.EINPROGRESS:
                waiter.wait_io(sock, WRITE, deadline_ns, words)
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            _raise_if(code)
            tls = TlsSession(self._context, self._endpoint.host) if self._context else None
            if tls is not None:
                _shake_hands(sock, tls, waiter, deadline_ns, words)
            return Connection(sock, tls)
        except BaseException:
            sock.close()
            raise


def _shake_hands(sock: _socket.socket, tls: TlsSession, waiter: Waiter, deadline_ns: int, words: str) -> None:
    done = tls.handshake()
    while True:
        left = memoryview(tls.to_send())
        while left:
            try:
                left = left[sock.send(left) :]
            except BlockingIOError:
                waiter.wait_io(sock, WRITE, deadline_ns, words)
        if done:
            return
        waiter.wait_io(sock, READ, deadline_ns, words)
        received = sock.recv(_HANDSHAKE_BYTES)
        _raise_if(0 if received else errno.ECONNRESET)
        try:
            done = tls.handshake(received)
        except ssl.SSLError:
            send_quietly(sock, tls.to_send())  # the alert that tells the server why
            raise


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


def _raise_if(code: int) -> None:
    if code:
        raise OSError(code, os.strerror(code))
