"""Which workers a master has: those it started itself, and those that came from elsewhere. Greenlets.

Rules for whoever edits this file:

1. A worker is there once it said hello, and gone once its process has ended, it left Locust, or nothing was
   heard of it for 15 s.
2. Workers this process started end with it.
"""

import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gevent
import msgspec
from gevent import subprocess

from loadtest.channel import Channel
from loadtest.crew_messages import Hello, Order, Ping, Pong, Report, decode_report, encode
from loadtest.environment import tierscope_version
from tierscope.errors import BadInputError, RunFailedError

SILENCE_S = 15.0
_END_S = 5.0
_CHECK_S = 0.05


@dataclass(slots=True)
class _Known:
    """A worker that said hello."""

    hello: Hello
    heard_s: float


class Muster:
    """The workers of one Locust master. Reports of a run under way go to ``listener``."""

    def __init__(self, runner: Any, wanted: int, patience_s: float | None) -> None:
        self.wanted = wanted
        self._patience_s = patience_s
        self.listener: Callable[[str, Report], None] | None = None
        self._runner = runner
        self._known: dict[str, _Known] = {}
        self._children: dict[int, Any] = {}
        self._strangers: set[str] = set()
        self._channel = Channel(runner, self._receive)

    def start(self, count: int, argv: Sequence[str]) -> None:
        """Start workers of our own: ``argv`` is what follows the Python interpreter."""
        for _ in range(count):
            child = subprocess.Popen([sys.executable, *argv], stdin=subprocess.DEVNULL)
            self._children[child.pid] = child

    def dead_child(self) -> str:
        """Say so if a worker we started has ended; else nothing."""
        for pid, child in self._children.items():
            if child.poll() is not None:
                return f"worker process {pid} {_ending(child.returncode)}"
        return ""

    def gather(self, unless: Callable[[], bool]) -> list[str]:
        """Wait until all wanted workers are there and give their ids, sorted by when they came first.

        Returns early once ``unless`` is true. Raises RunFailedError if one dies or they do not come in time,
        BadInputError if one is of another version.
        """
        deadline_s = time.monotonic() + (math.inf if self._patience_s is None else self._patience_s)
        while len(found := self._present()) < self.wanted and not unless():
            for client in self._strangers:
                self._check_version(client, "of another version")
            if dead := self.dead_child():
                raise RunFailedError(f"{dead} before the run began")
            if time.monotonic() > deadline_s:
                raise RunFailedError(
                    f"{len(found)} of {self.wanted} workers came within {self._patience_s:g} s"
                )
            gevent.sleep(_CHECK_S)
        for client in found:
            self._check_version(client, self._known[client].hello.version)
        return found

    def pid(self, client: str) -> int:
        """A worker's process id on its machine."""
        return self._known[client].hello.pid

    def trouble(self, client: str) -> str:
        """Why a worker must be given up; empty if it need not."""
        known = self._known[client]
        child = self._children.get(known.hello.pid)
        if child is not None and child.poll() is not None:
            return f"its process {_ending(child.returncode)}"
        if client not in self._runner.clients:
            return "it left"
        if time.monotonic() - known.heard_s > SILENCE_S:
            return f"nothing was heard of it for {SILENCE_S:g} s"
        return ""

    def drop(self, client: str) -> None:
        """Have Locust, too, count on a worker no more."""
        node = self._runner.clients.pop(client, None)
        dispatcher = self._runner._users_dispatcher
        if node is not None and dispatcher is not None:
            dispatcher.remove_worker(node)

    def users(self, client: str) -> int:
        """How many users a worker reported."""
        node = self._runner.clients.get(client)
        return 0 if node is None else int(node.user_count)

    def post(self, order: Order, client: str) -> None:
        """Tell a worker something."""
        self._channel.send(encode(order), client)

    def end(self) -> None:
        """End the workers we started: those that can have heard of the end get 5 s for it."""
        here = {known.hello.pid for known in self._known.values()}
        deadline_s = time.monotonic() + _END_S
        for pid, child in self._children.items():
            while pid in here and child.poll() is None and time.monotonic() < deadline_s:
                gevent.sleep(_CHECK_S)
        self.kill()

    def kill(self) -> None:
        """End the workers we started at once."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()

    def _check_version(self, client: str, version: str) -> None:
        if version != (own := tierscope_version()):
            raise BadInputError(
                f"worker {client}: has tierscope {version}; expected {own}, as the master has"
            )

    def _present(self) -> list[str]:
        return [client for client in self._known if not self.trouble(client)]

    def _receive(self, client: str, data: bytes) -> None:
        try:
            report = decode_report(data)
        except msgspec.DecodeError:  # another version speaks another language
            self._strangers.add(client)
            return
        if isinstance(report, Ping):
            self.post(Pong(report.sent_monotonic_ns, time.monotonic_ns()), client)
        elif isinstance(report, Hello):
            self._known.setdefault(client, _Known(report, 0.0)).hello = report
        elif self.listener is not None:
            self.listener(client, report)
        if client in self._known:
            self._known[client].heard_s = time.monotonic()


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
