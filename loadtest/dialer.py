"""Dialling: from a name to a connection that is ready for a request, within one deadline.

The steps are name, connection, proxy (with TLS of its own if it wants that), TLS. Each has its own words when
time runs out.
"""

import _socket
import errno
import os
import socket
import ssl

from loadtest.clock import RunClock
from loadtest.connection import ConnectError, Connection, in_words, send_quietly
from loadtest.endpoint import Endpoint
from loadtest.proxy import Proxy, RefusedError, Reply
from loadtest.race import connect_first
from loadtest.resolve import Address, Resolver
from loadtest.stamps import Stamps
from loadtest.tls import TlsClient, TlsSession, reason
from loadtest.waiter import READ, WRITE, Waiter

_READ_BYTES = 65536


class StaleTicketError(ConnectError):
    """TLS failed while an earlier session was to be resumed; without that it may go well."""


class Line:
    """A raw socket that is being made ready, and who waits for it until when."""

    def __init__(self, sock: _socket.socket, waiter: Waiter, deadline_ns: int) -> None:
        self.sock = sock
        self._waiter = waiter
        self._deadline_ns = deadline_ns

    def send(self, data: bytes, words: str) -> None:
        """Send all of it. Raises OSError, DeadlineError with ``words``, or CancelledError."""
        left = memoryview(data)
        while left:
            try:
                left = left[self.sock.send(left) :]
            except BlockingIOError:
                self._waiter.wait_io(self.sock, WRITE, self._deadline_ns, words)

    def receive(self, words: str) -> bytes:
        """Wait for bytes and give them; the same errors, and OSError if the peer hangs up."""
        self._waiter.wait_io(self.sock, READ, self._deadline_ns, words)
        received = self.sock.recv(_READ_BYTES)
        if not received:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return received


class Dialer:
    """Connects to one endpoint, straight or through a proxy, which then resolves the endpoint's name itself.

    ``context`` is needed if either speaks TLS.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: RunClock,
        stamps: Stamps,
        context: ssl.SSLContext | None,
        proxy: Proxy | None = None,
    ) -> None:
        self.opened = 0
        self._endpoint = endpoint
        self._proxy = proxy
        self._clock = clock
        self._stamps = stamps
        self._tls = TlsClient(context, endpoint.tls_name) if context and endpoint.tls else None
        self._proxy_tls = TlsClient(context, proxy.tls_name) if context and proxy and proxy.tls else None
        peer = proxy or endpoint
        self._resolver = Resolver(peer.host, peer.port)
        self._peer_words = f"proxy {proxy.origin}: " if proxy else ""

    def dial(self, waiter: Waiter, timeout_s: float) -> Connection:
        """Make a connection within ``timeout_s`` in all.

        Raises ConnectError, DeadlineError or CancelledError.
        """
        deadline_ns = self._clock.now_ns() + int(timeout_s * 1e9)
        within = f"within {timeout_s:g} s"
        try:
            return self._dial(waiter, deadline_ns, within)
        except StaleTicketError:
            return self._dial(waiter, deadline_ns, within)

    def _dial(self, waiter: Waiter, deadline_ns: int, within: str) -> Connection:
        try:
            sock, address = self._reach(waiter, deadline_ns, within)
        except OSError as error:
            raise ConnectError(self._peer_words + in_words(error)) from error
        try:
            tls = self._make_ready(Line(sock, waiter, deadline_ns), within)
        except BaseException:
            self._resolver.worked(address, well=False)
            sock.close()
            raise
        self._resolver.worked(address, well=True)
        self.opened += 1
        return Connection(sock, tls)

    def _reach(self, waiter: Waiter, deadline_ns: int, within: str) -> tuple[_socket.socket, Address]:
        """Connect to the endpoint or the proxy; if none of its known addresses answers, look it up again."""
        remembered = list(self._resolver.known)
        unresolved, unconnected = f"connect: name not resolved {within}", f"connect: no connection {within}"
        addresses = self._resolver.addresses(waiter, deadline_ns, unresolved)
        try:
            return connect_first(addresses, self._prepare, waiter, deadline_ns, unconnected)
        except OSError:
            self._resolver.forget()
            if not remembered:
                raise
            found = self._resolver.addresses(waiter, deadline_ns, unresolved)
            moved = [address for address in found if address not in remembered]
            if not moved:
                raise
        return connect_first(moved, self._prepare, waiter, deadline_ns, unconnected)

    def _prepare(self, sock: _socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stamps.enable(sock)

    def _make_ready(self, line: Line, within: str) -> TlsSession | None:
        """Go through the proxy, if there is one, and begin TLS, if it is spoken."""
        outer = None
        if self._proxy_tls is not None:
            words = f"connect: no TLS session with the proxy {within}"
            outer = _secure(line, self._proxy_tls, None, words, self._peer_words)
        if self._proxy is not None:
            self._tunnel(line, self._proxy, outer, f"connect: no tunnel from the proxy {within}")
        if self._tls is None:
            return outer
        return _secure(line, self._tls, outer, f"connect: no TLS session {within}", "")

    def _tunnel(self, line: Line, proxy: Proxy, outer: TlsSession | None, words: str) -> None:
        request, reply = proxy.request(self._endpoint), Reply()
        try:
            line.send(outer.encrypt(request) if outer else request, words)
            done = False
            while not done:
                received = line.receive(words)
                if outer is not None:
                    received, _ = outer.decrypt(received)
                done = reply.receive(received)
        except RefusedError as error:
            raise ConnectError(f"{self._peer_words}{error}") from error
        except OSError as error:
            raise ConnectError(f"{self._peer_words}{_tls_or_system(error)}") from error


def _secure(
    line: Line, client: TlsClient, outer: TlsSession | None, words: str, peer_words: str
) -> TlsSession:
    """Begin a TLS session on a line. Raises ConnectError."""
    session = client.session(outer)
    try:
        _shake_hands(line, session, words)
    except OSError as error:
        said = peer_words + _tls_or_system(error)
        if session.offers_ticket and not isinstance(error, ssl.SSLCertVerificationError):
            client.forget()
            raise StaleTicketError(said) from error
        raise ConnectError(said) from error
    client.succeeded(session)
    return session


def _shake_hands(line: Line, session: TlsSession, words: str) -> None:
    done = session.handshake()
    while True:
        line.send(session.to_send(), words)
        if done:
            return
        received = line.receive(words)
        try:
            done = session.handshake(received)
        except ssl.SSLError:
            send_quietly(line.sock, session.to_send())  # the alert that tells the server why
            raise


def _tls_or_system(error: OSError) -> str:
    return reason(error) if isinstance(error, ssl.SSLError) else in_words(error)
