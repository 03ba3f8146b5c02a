"""Calls to one endpoint: made, probed, cancelled. Who sends needs to know no other file of the network code.

That is ``call``, ``pool``, ``dialer`` with ``resolve``, ``race`` and ``proxy``, ``connection``, ``waiter``,
``poller``, ``stamps`` and ``departures``; no other file of the load test opens a socket to the server.
"""

import ssl

from loadtest.call import Call
from loadtest.clock import RunClock
from loadtest.connection import ConnectError
from loadtest.endpoint import Endpoint
from loadtest.framing import MAX_RESPONSE_BYTES
from loadtest.plan import Timeouts
from loadtest.pool import Pool
from loadtest.proxy import Proxy
from loadtest.stamps import Stamps
from loadtest.waiter import CancelledError, DeadlineError, Waiter
from tierscope.errors import RunFailedError


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
        self.proxy = proxy
        self.clock = clock
        self.pool = Pool(
            endpoint, timeouts, clock, stamps, tls=tls, proxy=proxy, max_response_bytes=max_response_bytes
        )
        self._calls: set[Call] = set()
        self._probing: Waiter | None = None

    @property
    def connections_opened(self) -> int:
        """How many connections were made."""
        return self.pool.dialer.opened

    def probe(self) -> None:
        """Connect once and hang up. Raises RunFailedError in one line if that fails or is cancelled."""
        self._probing = Waiter(self.clock)
        try:
            self.pool.dialer.dial(self._probing, self.pool.timeouts.connect_s).close()
        except (ConnectError, DeadlineError) as error:
            raise RunFailedError(f"cannot connect to {self.endpoint.origin}: {error}") from error
        except CancelledError as error:
            raise RunFailedError(f"stopped while connecting to {self.endpoint.origin}") from error
        finally:
            self._probing = None

    def call(self, request: bytes, *, punctual: bool = False) -> Call:
        """Prepare a call that sends ``request`` (head and body); a ``punctual`` one must not wait."""
        made = Call(self.pool, request, punctual=punctual, ended=self._calls.discard)
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
        self.pool.close()
