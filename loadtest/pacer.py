"""An open loop's requests leaving at their instants. Greenlets.

Rules for whoever edits this file:

1. Nothing is made between the alarm and the sending; what is due at one instant is made before the first of
   it leaves.
2. An instant is never moved because the generator or the server is late; only a hold moves it.
3. Whoever makes requests ahead keeps out of the way of those that leave.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator

import gevent
from gevent.event import Event

from loadtest.clock import RunClock
from loadtest.holds import Holds
from loadtest.pacing import Alarm
from loadtest.slices import Agenda, Slices
from loadtest.stage import StageProgress
from loadtest.stock import Prepared, Stock

MOST_AHEAD = 4_096
"""Requests made ahead: a burst of so many leaves together."""
_MOST_HELD = 100_000
_AHEAD_NS = 2_000_000_000
"""How long ahead of its instant a request may be made: enough for a large burst, and no rush at the start."""
_LOOK_S = 0.1


class Pacer:
    """One stage of an open loop, or this process's part of it.

    ``instants`` are those of the whole stage, in ns from its start. ``prepare`` makes what is due first;
    ``run``, once the stage has started, calls ``send`` with each request and the instant it is scheduled for.
    """

    def __init__(
        self,
        stage: StageProgress,
        instants: Iterator[int],
        stock: Stock,
        holds: Holds,
        clock: RunClock,
        agenda: Agenda,
        send: Callable[[Prepared, int], None],
    ) -> None:
        self._stage, self._stock, self._holds, self._clock, self._send = stage, stock, holds, clock, send
        self._agenda = agenda
        self._instants = (at_ns for place, at_ns in enumerate(instants) if stage.part.has(place))
        self._offsets: deque[int] = deque()
        """Instants taken from the schedule; the first ones are those of what is in stock."""
        self._held: list[tuple[int, int, Prepared]] = []
        """Heap of (scheduled, conversation, request) of what waits for its tier."""
        self._left = Event()

    def prepare(self) -> None:
        """Make what is due at the first instant."""
        slices = Slices(self._agenda)
        self._make_the_next(slices)
        slices.close()

    def run(self) -> None:
        """Send until the schedule is at its end, or the stage is closed."""
        self._stage.paced = True
        alarm, slices = Alarm(), Slices(self._agenda)
        keeper = gevent.spawn(self._keep_ahead)
        try:
            while (due_ns := self._next_due()) is not None:
                if not self._stock:
                    slices.rest()  # what was let go leaves first
                self._make_the_next(slices)
                self._agenda.expect(self._clock.zero_ns + due_ns)
                alarm.wait_until(self._clock.zero_ns + due_ns)
                if self._stage.closed:
                    break
                self._let_leave(due_ns)
                self._left.set()
                self._agenda.keep()
        finally:
            keeper.kill()
            for _ in self._held:
                self._stage.finish()
            alarm.close()
            slices.close()
            self._agenda.keep()
            self._stage.all_begun()

    def _next_due(self) -> int | None:
        """When something may leave next; None at the end."""
        held_ns = self._held[0][0] if self._held else None
        if len(self._held) >= _MOST_HELD or (self._offset(0) is None):
            return held_ns
        due_ns = self._stage.started_ns + self._offsets[0]
        conversation = self._stage.coming()
        if conversation is None or not self._stage.is_due(conversation * self._stage.turns, due_ns):
            return held_ns
        return due_ns if held_ns is None else min(due_ns, held_ns)

    def _offset(self, ahead: int) -> int | None:
        """The instant after ``ahead`` others that have not been used."""
        if len(self._offsets) <= ahead and (offset := next(self._instants, None)) is not None:
            self._offsets.append(offset)
        return self._offsets[ahead] if len(self._offsets) > ahead else None

    def _let_leave(self, due_ns: int) -> None:
        """Let the one leave that is due; what was held goes first."""
        if self._held and self._held[0][0] <= due_ns:
            scheduled_ns, _, prepared = heapq.heappop(self._held)
            self._leave(prepared, scheduled_ns)
        elif (taken := self._stock.take(due_ns)) is not None:
            self._offsets.popleft()
            self._leave(taken, due_ns)

    def _leave(self, prepared: Prepared, due_ns: int) -> None:
        """Send, or hold back until the tier may be asked again."""
        scheduled_ns = max(due_ns, self._holds.until_ns(prepared.request.tier.name))
        if not self._stage.is_due(prepared.position, scheduled_ns):
            self._stage.finish()
        elif scheduled_ns > due_ns and (self._held or scheduled_ns > self._clock.now_ns()):
            heapq.heappush(self._held, (scheduled_ns, prepared.conversation, prepared))
        else:
            self._send(prepared, scheduled_ns)

    def _make_the_next(self, slices: Slices) -> None:
        """Make all that is due at the next instant."""
        slices.begin()
        while self._offset(0) is not None and self._offset(len(self._stock)) == self._offsets[0]:
            if not self._makes_one():
                break
            slices.breathe()

    def _keep_ahead(self) -> None:
        """Make what is due within two seconds, when nothing else is to do."""
        slices = Slices(self._agenda)
        try:
            while True:
                slices.begin()
                while self._is_near(self._offset(len(self._stock))) and self._makes_one():
                    slices.breathe()
                self._left.clear()
                self._left.wait(_LOOK_S)
        finally:
            slices.close()

    def _is_near(self, offset_ns: int | None) -> bool:
        now_ns = self._clock.now_ns() - self._stage.started_ns
        return offset_ns is not None and offset_ns < now_ns + _AHEAD_NS

    def _makes_one(self) -> bool:
        """Make one more, unless the stage ends before its instant or there is enough."""
        offset_ns, seconds = self._offset(len(self._stock)), self._stage.stage.duration_s
        if offset_ns is None or (seconds is not None and offset_ns >= seconds * 1e9):
            return False
        return self._stock.add()
