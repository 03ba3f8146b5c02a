"""Connections to one endpoint that are kept for further calls, and what all calls to it share.

A server may close after each response without having said so; the first connection of all is therefore
watched for a while before it is used again, and what is seen holds for all.
"""

import ssl

from loadtest.clock import RunClock
from loadtest.connection import Connection
from loadtest.dialer import Dialer
from loadtest.endpoint import Endpoint
from loadtest.plan import Timeouts
from loadtest.poller import poller
from loadtest.proxy import Proxy
from loadtest.stamps import Stamps
from loadtest.waiter import READ, DeadlineError, Waiter

_READ_BYTES = 262_144
KEEP_LOOK_NS = 50_000_000
"""How long a connection must have been left alone before it is believed to be kept. llama.cpp's server closes
0.1 ms after each stream without having said so (seen 2026); a request sent into that gap would be lost."""


class Pool:
    """The idle connections to one endpoint, in the order in which they were put back."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts,
        clock: RunClock,
        stamps: Stamps,
        *,
        tls: ssl.SSLContext | None,
        proxy: Proxy | None,
        max_response_bytes: int,
    ) -> None:
        self.timeouts = timeouts
        self.clock = clock
        self.stamps = stamps
        self.max_response_bytes = max_response_bytes
        self.dialer = Dialer(endpoint, clock, stamps, tls, proxy)
        self.poller = poller()
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """What sockets are read into; its content is used up before the reading callback returns."""
        self.keeps: bool | None = None
        """Whether the server keeps connections after a response; None until that was seen."""
        self._idle: list[Connection] = []

    def take(self, *, punctual: bool) -> Connection | None:
        """Take a living connection, the one used last first; None if there is none.

        Until it is known whether the server keeps connections, it is the one that has been idle longest; and
        a ``punctual`` caller, who must not wait, gets none that would have to be watched first.
        """
        while self._idle:
            place = -1 if self.keeps else 0
            connection = self._idle[place]
            if (
                punctual
                and self.keeps is None
                and self.clock.now_ns() < connection.idle_since_ns + KEEP_LOOK_NS
            ):
                return None
            del self._idle[place]
            if not connection.is_dead():
                return connection
            self.drop(connection)
        return None

    def is_kept(self, connection: Connection, waiter: Waiter) -> bool:
        """Whether the server keeps connections; before the first reuse of all, this one is watched to see.

        Raises CancelledError if ``waiter`` is cancelled meanwhile.
        """
        if self.keeps is None:
            try:
                while not connection.is_dead():
                    waiter.wait_io(connection.sock, READ, connection.idle_since_ns + KEEP_LOOK_NS, "")
            except DeadlineError:
                self.keeps = True
            else:
                self.keeps = False
        return self.keeps

    def put(self, connection: Connection) -> None:
        """Keep a connection for another call, unless the server is known to close it."""
        if self.keeps is False:
            self.drop(connection)
            return
        connection.idle_since_ns = self.clock.now_ns()
        # Whatever an idle connection brings spoils it; that is seen when it is taken from the pool.
        self.poller.watch(connection.sock, lambda: self.poller.forget(connection.sock))
        self._idle.append(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection and watch it no more."""
        self.poller.forget(connection.sock)
        connection.close()

    def close(self) -> None:
        """Close what is idle, and watch nothing any more."""
        while self._idle:
            self.drop(self._idle.pop())
        self.poller.close()
