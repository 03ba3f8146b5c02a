"""Addresses of one host, looked up in the background: who waits can be cancelled, many share a look-up."""

import socket
from itertools import zip_longest
from typing import Any

import gevent
from gevent import socket as gevent_socket

from loadtest.waiter import Waiter

Address = tuple[int, Any]
"""Address family, and what ``connect`` takes."""


class Resolver:
    """Knows where a host is; the address that worked last stands first."""

    def __init__(self, host: str, port: int) -> None:
        self.known: list[Address] = []
        self._host = host
        self._port = port
        self._lookup: gevent.Greenlet | None = None

    def addresses(self, waiter: Waiter, deadline_ns: int, words: str) -> list[Address]:
        """Give the addresses in the order to try them, looking the name up if they are not known.

        Raises OSError if there are none, DeadlineError with ``words``, or CancelledError.
        """
        if not self.known:
            found = self._await(waiter, deadline_ns, words)
            if isinstance(found, OSError):
                raise found
            self.known = self.known or found
        return list(self.known)

    def forget(self) -> None:
        """None of the addresses worked: look the name up again for the next who asks."""
        self.known = []

    def worked(self, address: Address, *, well: bool) -> None:
        """Put an address first, or last."""
        if address in self.known:
            self.known.remove(address)
            self.known.insert(0 if well else len(self.known), address)

    def _await(self, waiter: Waiter, deadline_ns: int, words: str) -> list[Address] | OSError:
        lookup = self._lookup = self._lookup or gevent.spawn(self._look_up)

        def wake(_: object) -> None:
            waiter.wake.set()

        lookup.link(wake)
        try:
            while not lookup.ready():
                waiter.wake.clear()
                waiter.wait(deadline_ns, words)
        finally:
            lookup.unlink(wake)
        found: list[Address] | OSError = lookup.value
        return found

    def _look_up(self) -> list[Address] | OSError:
        """Ask the system, in a thread of gevent's; an error is an answer like another."""
        try:
            found = gevent_socket.getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
        except OSError as error:
            return error
        finally:
            self._lookup = None
        return interleaved([(family, address) for family, _, _, _, address in found])


def interleaved(found: list[Address]) -> list[Address]:
    """Let the families alternate, the system's first choice first (RFC 8305, section 4)."""
    first = [address for address in found if address[0] == found[0][0]]
    others = [address for address in found if address[0] != found[0][0]]
    return [address for pair in zip_longest(first, others) for address in pair if address is not None]
