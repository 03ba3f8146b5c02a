"""Which connections have something to read, asked once for many: one hub watcher for all of them.

An epoll of our own holds every connection for as long as it lives, and the hub watches that epoll alone. At
500 streams a wake-up brings ten connections and more, so the hub's own cost of a callback is paid once for
all, and a request costs no change of any watch list. Where there is no epoll the hub watches each connection.
"""

import _socket
import time
from collections.abc import Callable
from typing import Any, Protocol

import gevent
from gevent import monkey

from loadtest.waiter import READ

_READABLE = 1  # EPOLLIN, include/uapi/linux/eventpoll.h
_MOST_AT_ONCE = 64
_LONGEST_NS = 5_000_000
"""Then the hub gets its turn: whoever keeps a schedule must not wait for thousands of reads. Not much before,
since between two turns of ours the hub runs 50 greenlets and more, and what arrives meanwhile must be read
before the next token of the same stream comes."""

Reader = Callable[[], None]
"""Called when there is something to read, again and again until it has read, closed or been replaced."""


class Poller(Protocol):
    """Calls the reader of each connection that has something to read."""

    def watch(self, sock: _socket.socket, reader: Reader) -> None:
        """Call ``reader`` from now on, in place of any earlier one of this socket."""
        ...

    def forget(self, sock: _socket.socket) -> None:
        """Call nobody any more; to be told before the socket is closed."""
        ...

    def close(self) -> None:
        """Watch nothing any more."""
        ...


def poller() -> Poller:
    """Make the one that this machine can have."""
    try:
        epoll = monkey.get_original("select", "epoll")  # locust has gevent take it out of the module
    except AttributeError:
        return HubPoller()
    return EpollPoller(epoll())


class EpollPoller:
    """All connections in one epoll, level-triggered, which the hub watches."""

    def __init__(self, epoll: Any) -> None:
        self._epoll = epoll
        self._readers: dict[int, Reader] = {}
        self._watcher = gevent.get_hub().loop.io(epoll.fileno(), READ, ref=False)
        self._watcher.start(self._on_ready)

    def watch(self, sock: _socket.socket, reader: Reader) -> None:
        """Call ``reader`` from now on, in place of any earlier one of this socket."""
        number = sock.fileno()
        if number not in self._readers:
            self._epoll.register(number, _READABLE)
        self._readers[number] = reader

    def forget(self, sock: _socket.socket) -> None:
        """Call nobody any more; to be told before the socket is closed."""
        number = sock.fileno()
        if self._readers.pop(number, None) is not None:
            self._epoll.unregister(number)

    def close(self) -> None:
        """Watch nothing any more."""
        self._readers.clear()
        self._watcher.stop()
        self._watcher.close()
        self._epoll.close()

    def _on_ready(self) -> None:
        readers, poll = self._readers, self._epoll.poll
        until_ns = time.monotonic_ns() + _LONGEST_NS
        while True:
            ready = poll(0, _MOST_AT_ONCE)
            for number, _ in ready:
                reader = readers.get(number)
                if reader is not None:  # else it was forgotten by one before it in this round
                    reader()
            if len(ready) < _MOST_AT_ONCE or time.monotonic_ns() > until_ns:
                break


class HubPoller:
    """One hub watcher for each connection."""

    def __init__(self) -> None:
        self._watchers: dict[int, Any] = {}

    def watch(self, sock: _socket.socket, reader: Reader) -> None:
        """Call ``reader`` from now on, in place of any earlier one of this socket."""
        number = sock.fileno()
        watcher = self._watchers.get(number)
        if watcher is None:
            watcher = self._watchers[number] = gevent.get_hub().loop.io(number, READ)
        watcher.stop()
        watcher.start(reader)

    def forget(self, sock: _socket.socket) -> None:
        """Call nobody any more; to be told before the socket is closed."""
        watcher = self._watchers.pop(sock.fileno(), None)
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def close(self) -> None:
        """Watch nothing any more."""
        for watcher in self._watchers.values():
            watcher.stop()
            watcher.close()
        self._watchers.clear()
