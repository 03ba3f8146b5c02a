"""Records are made when there is time: one greenlet reads what has ended, in short slices.

500 streams that end together are 0.1 s of JSON to read. The first tokens of whatever is sent next arrive
meanwhile, so the reading waits for them and not they for the reading; it waits for what has to leave, too.

Rules for whoever edits this file:

1. What was put is written exactly once, in the order of putting.
2. ``put`` never switches greenlets and never raises.
3. A fault of ours in one record is kept in ``fault`` and keeps no other record from being made.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import gevent
from gevent.event import AsyncResult, Event

from loadtest.exchange import Exchange
from loadtest.records import RequestRecord
from loadtest.slices import Agenda, Slices
from loadtest.workload import Request

_MOST_WAITING = 20_000
"""Beyond it memory matters more than arrivals, and the scribe works through."""


@dataclass(eq=False, slots=True)
class Attempt:
    """A request from its leaving on, until its record is made; the scribe gets it once it has ended."""

    request: Request
    exchange: Exchange
    scheduled_ns: int
    answered: "AsyncResult[str | None] | None" = None
    """Where a conversation waits: it is given the text of the answer, or None if the request failed."""
    record: RequestRecord | None = None
    """None until it is made."""


class Scribe:
    """Makes records out of what has ended. ``write`` gives the record, ``read`` the text of an answer."""

    def __init__(
        self,
        write: Callable[[Attempt], RequestRecord],
        read: Callable[[Exchange], str],
        agenda: Agenda | None = None,
    ) -> None:
        self._write, self._read = write, read
        self._agenda = agenda or Agenda()
        self.fault: Exception | None = None
        self._waiting: deque[Attempt] = deque()
        self._news, self._idle = Event(), Event()
        self._idle.set()
        self._greenlet = gevent.spawn(self._work)

    def put(self, attempt: Attempt) -> None:
        """Have the record made soon."""
        self._waiting.append(attempt)
        self._idle.clear()
        self._news.set()

    def drain(self) -> None:
        """Block until all that was put is written."""
        self._idle.wait()

    def close(self) -> None:
        """Drain and end."""
        self.drain()
        self._greenlet.kill()

    def _work(self) -> None:
        slices = Slices(self._agenda)
        try:
            while True:
                self._news.wait()
                self._news.clear()
                slices.begin()
                while self._waiting:
                    self._tell(self._waiting.popleft())
                    if len(self._waiting) < _MOST_WAITING:
                        slices.breathe()
                self._idle.set()
        finally:
            slices.close()

    def _tell(self, attempt: Attempt) -> None:
        answer = None
        try:
            record = attempt.record = self._write(attempt)
            if attempt.answered is not None and record.outcome == "ok":
                answer = self._read(attempt.exchange)
        except Exception as fault:  # noqa: BLE001 - rule 3
            self.fault = self.fault or fault
        if attempt.answered is not None:
            attempt.answered.set(answer)
