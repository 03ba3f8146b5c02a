"""An open loop's requests leaving at their instants. Greenlets.

Rules for whoever edits this file:

1. Nothing is made between the alarm and the sending; what is due at one instant is made before the first of
   it leaves.
2. An instant is never moved because the generator or the server is late; only a hold moves it.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator

from loadtest.clock import RunClock
from loadtest.holds import Holds
from loadtest.pacing import Alarm
from loadtest.slices import Slices
from loadtest.stage import StageProgress
from loadtest.stock import Prepared, Stock

MOST_AHEAD = 4_096
"""Requests made ahead: a burst of so many leaves together."""
_MOST_HELD = 100_000
_SPARE_NS = 1_000_000
"""Idle time below which nothing is made ahead: more than a slice of anybody else's work."""


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
        send: Callable[[Prepared, int], None],
    ) -> None:
        self._stage, self._stock, self._holds, self._clock, self._send = stage, stock, holds, clock, send
        self._instants = (at_ns for place, at_ns in enumerate(instants) if stage.part.holds(place))
        self._offsets: deque[int] = deque()
        """Instants taken from the schedule; the first ones are those of what is in stock."""
        self._held: list[tuple[int, int, Prepared]] = []
        """Heap of (scheduled, conversation, request) of what waits for its tier."""
        self._cost_ns = 0
        """What making a request takes."""

    def prepare(self) -> None:
        """Make what is due at the first instant."""
        slices = Slices()
        while self._makes_one_of_the_next():
            slices.breathe()
        slices.close()

    def run(self) -> None:
        """Send until the schedule is at its end, or the stage is closed."""
        self._stage.paced = True
        alarm, slices = Alarm(), Slices()
        try:
            while (due_ns := self._next_due()) is not None:
                self._make_until(due_ns, slices)
                alarm.wait_until(self._clock.zero_ns + due_ns)
                if self._stage.closed:
                    break
                self._let_leave(due_ns)
        finally:
            for _ in self._held:
                self._stage.finish()
            alarm.close()
            slices.close()
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
        elif scheduled_ns > due_ns and scheduled_ns > self._clock.now_ns():
            heapq.heappush(self._held, (scheduled_ns, prepared.conversation, prepared))
        else:
            self._send(prepared, scheduled_ns)

    def _make_until(self, due_ns: int, slices: Slices) -> None:
        """Make what is due next, and more while there is time."""
        slices.begin()
        while self._makes_one_of_the_next():
            slices.breathe()
        while self._clock.now_ns() + 2 * self._cost_ns + _SPARE_NS < due_ns and self._makes_one():
            slices.breathe()

    def _makes_one_of_the_next(self) -> bool:
        """Make one more of those that are due at the next instant."""
        return (
            self._offset(0) is not None
            and self._offset(len(self._stock)) == self._offsets[0]
            and self._makes_one()
        )

    def _makes_one(self) -> bool:
        offset, started_ns = self._offset(len(self._stock)), self._clock.now_ns()
        until_s = self._stage.stage.duration_s
        if offset is None or (until_s is not None and offset >= until_s * 1e9) or not self._stock.add():
            return False
        self._cost_ns = max(self._clock.now_ns() - started_ns, self._cost_ns * 7 // 8)
        return True
