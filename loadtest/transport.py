"""The pool of kept connections to one endpoint, and the calls that are under way on them.

This file, ``call``, ``connection`` and ``dialer`` are the only network code of the load test.
"""

import ssl

from loadtest.call import KEEP_LOOK_NS, Call
from loadtest.clock import RunClock
from loadtest.connection import CancelledError, ConnectError, Connection, DeadlineError, Waiter
from loadtest.dialer import Dialer
from loadtest.endpoint import Endpoint
from loadtest.framing import MAX_RESPONSE_BYTES
from loadtest.plan import Timeouts
from loadtest.poller import poller
from loadtest.proxy import Proxy
from loadtest.stamps import Stamps
from tierscope.errors import RunFailedError

_READ_BYTES = 262_144


class Transport:
    """Makes calls to one endpoint over a pool of kept connections, in any number of greenlets of one hub."""

    def __init__(
        self,
        endpoint: Endpoint,
        timeouts: Timeouts,
        clock: RunClock,
        stamps: Stamps,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self.endpoint = endpoint
        self.timeouts = timeouts
        self.clock = clock
        self.stamps = stamps
        self.proxy = proxy
        self.max_response_bytes = max_response_bytes
        self.dialer = Dialer(endpoint, clock, stamps, tls, proxy)
        self.buffer = memoryview(bytearray(_READ_BYTES))
        """What sockets are read into; its content is used up before the reading callback returns."""
        self.keeps: bool | None = None
        """Whether the server keeps connections after a response; None until that was seen."""
        self.poller = poller()
        self._idle: list[Connection] = []
        self._calls: set[Call] = set()
        self._probing: Waiter | None = None

    @property
    def connections_opened(self) -> int:
        """How many connections were made."""
        return self.dialer.opened

    def probe(self) -> None:
        """Connect once and hang up. Raises RunFailedError in one line if that fails or is cancelled."""
        self._probing = Waiter(self.clock)
        try:
            self.dialer.dial(self._probing, self.timeouts.connect_s).close()
        except (ConnectError, DeadlineError) as error:
            raise RunFailedError(f"cannot connect to {self.endpoint.origin}: {error}") from error
        except CancelledError as error:
            raise RunFailedError(f"stopped while connecting to {self.endpoint.origin}") from error
        finally:
            self._probing = None

    def call(self, request: bytes, *, punctual: bool = False) -> Call:
        """Prepare a call that sends ``request`` (head and body); a ``punctual`` one must not wait."""
        made = Call(self, request, punctual=punctual)
        self._calls.add(made)
        return made

    def cancel(self) -> int:
        """End all calls under way as cancelled; their greenlets go on. Returns how many there were.

        A probe under way ends, too.
        """
        if self._probing is not None:
            self._probing.cancel()
        for call in self._calls:
            call.cancel()
        return len(self._calls)

    def close(self) -> None:
        """Close the pool."""
        while self._idle:
            self.drop(self._idle.pop())
        self.poller.close()

    def drop(self, connection: Connection) -> None:
        """Close a connection and watch it no more."""
        self.poller.forget(connection.sock)
        connection.close()

    def take_idle(self, *, punctual: bool) -> Connection | None:
        """Take a living connection from the pool, the one used last first.

        Until it is known whether the server keeps connections, it is the one that has been idle longest; and
        a punctual call takes none that would have to be watched first.
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

    def ended(self, call: Call, connection: Connection | None, *, reusable: bool) -> None:
        """A call has ended: keep its connection for another, or close it."""
        self._calls.discard(call)
        if connection is not None and reusable and self.keeps is not False:
            connection.idle_since_ns = self.clock.now_ns()
            # Whatever an idle connection brings spoils it; that is seen when it is taken from the pool.
            self.poller.watch(connection.sock, lambda: self.poller.forget(connection.sock))
            self._idle.append(connection)
        elif connection is not None:
            self.drop(connection)
