"""A plan played against a server's engines in virtual time: records, in the order in which requests end.

The requests are the real run's (``loadtest.workload``), the server is the mock's own desk, faults and engines
(``virtual_door``), and the network between them is the plan's: a latency each way and an exponential jitter
that keeps the order of deliveries (``virtual_events``). What is not played: docs/virtual-time.md. A
conversation's later turns resend what was visible of the answers.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from loadtest.arrivals import think_s
from loadtest.holds import Holds
from loadtest.plan import Closed, Plan
from loadtest.records import RequestRecord
from loadtest.workload import Source, open_source
from mockserver.config import ServerConfig
from mockserver.job import StepDone
from tierscope import virtual_view
from tierscope.virtual_door import Door, Flight

OnStep = Callable[[str, StepDone], None]
_FOREVER_NS = 2**62
_What = Literal["answered", "leaves", "arrives"]


def simulate(
    plan: Plan,
    config: ServerConfig,
    source: Source | None = None,
    *,
    on_step: OnStep | None = None,
) -> Iterator[RequestRecord]:
    """Yield one record per request, stage after stage.

    ``source`` is needed only for a plan whose files are not found from the working directory; ``on_step``
    sees all steps of the server with their engine's name.
    """
    source = source or open_source(plan)
    door = Door(config, plan, on_step=on_step)
    holds = Holds(honoured=plan.control.honour_retry_after)
    now_ns = first_index = 0
    for number in range(len(plan.stages)):
        stage = _Stage(source, door, holds, number=number, start_ns=now_ns, first_index=first_index)
        for record in stage.run():
            now_ns = max(now_ns, record.ended_ns)
            yield record
        first_index += stage.begun * source.turns


@dataclass
class _Stage:
    """One stage: what is about to leave, what is on its way, and what the client has yet to see.

    Everything is a conversation: a request that stands alone is one of one turn.
    """

    source: Source
    door: Door
    holds: Holds
    number: int
    start_ns: int
    first_index: int
    begun: int = 0
    """Conversations."""
    events: list[tuple[int, _What, int, Flight, RequestRecord | None]] = field(default_factory=list)
    """Heap of (instant, what happens, index, flight, its record once answered)."""

    def __post_init__(self) -> None:
        self.plan, self.config = self.source.plan, self.door.config
        self.spec = self.plan.stages[self.number]
        self.latency_ns = round(self.plan.network.latency_s * 1e9)
        self.due = self.source.instants(self.number)
        self.closed = isinstance(self.spec.arrivals, Closed)

    def run(self) -> Iterator[RequestRecord]:
        """Play the stage to the end of its last request."""
        loop = self.spec.arrivals
        for _ in range(loop.streams if isinstance(loop, Closed) else 1):
            self._begin_next(self.start_ns)
        while self.events or self.door.busy:
            served = self.door.next_end(self.events[0][0] if self.events else _FOREVER_NS)
            if served is not None:
                self._push(
                    "answered", served.visit.flight, virtual_view.record(served, self.plan, self.config)
                )
                continue
            now_ns, what, _, flight, record = heapq.heappop(self.events)
            if record is not None:
                yield record
                self._go_on(flight, record)
            elif what == "leaves":
                self._leave(flight, now_ns)
            elif (refused := self.door.arrive(flight, now_ns)) is not None:
                told = virtual_view.refusal_record(flight, refused, self.plan, self.config)
                self._push("answered", flight, told)

    def _push(self, what: _What, flight: Flight, record: RequestRecord | None = None) -> None:
        at_ns = flight.sent_ns + (self.latency_ns if what == "arrives" else 0)
        if record is not None:
            at_ns = record.ended_ns
        heapq.heappush(self.events, (at_ns, what, flight.request.index, flight, record))

    def _begin_next(self, now_ns: int) -> None:
        """Begin what comes next, if anything does: now in a closed loop, at its instant in an open one."""
        if self.closed:
            due_ns = now_ns
        else:
            offset_ns = next(self.due, None)
            if offset_ns is None:
                return
            due_ns = self.start_ns + offset_ns
        if self._plan(self.begun, 0, due_ns):
            self.begun += 1

    def _plan(self, conversation: int, turn: int, due_ns: int, before: Flight | None = None) -> bool:
        """Have a turn leave when it is due, unless the stage has had its requests or its time."""
        position = conversation * self.source.turns + turn
        if self.spec.requests is not None and position >= self.spec.requests:
            return False
        if self._is_over(due_ns):
            return False
        request = self.source.request(self.number, position, index=self.first_index + position)
        flight = Flight(request, conversation, position, due_ns, due_ns, self.source.prompt_words(request))
        if self.door.needs_words:
            self._say(flight, before)
        if before is not None:
            flight.prompt_words += before.prompt_words + self.door.visible_tokens(before)
        self._push("leaves", flight)
        return True

    def _say(self, flight: Flight, before: Flight | None) -> None:
        """Put into a request what it says, history included."""
        request = flight.request
        if self.source.turns == 1 and flight.prompt_words == request.prompt_tokens:
            flight.pieces = self.source.blocks(request)
        if flight.pieces is None:
            history = () if before is None else (*before.said, self.door.visible(before))
            flight.said = (*history, *(message.text for message in self.source.says(request)))

    def _is_over(self, at_ns: int) -> bool:
        """Whether the stage has had its time by then."""
        duration_s = self.spec.duration_s
        return duration_s is not None and at_ns - self.start_ns >= duration_s * 1e9

    def _leave(self, flight: Flight, now_ns: int) -> None:
        """Send a request, or keep it back for as long as its tier was told to wait."""
        until_ns = self.holds.until_ns(flight.request.tier.name)
        if until_ns > now_ns:
            if (self.closed or flight.request.turn) and self._is_over(until_ns):
                return
            flight.scheduled_ns = flight.sent_ns = until_ns
            self._push("leaves", flight)
            return
        self._push("arrives", flight)
        if not self.closed and not flight.request.turn:
            self._begin_next(now_ns)

    def _go_on(self, flight: Flight, record: RequestRecord) -> None:
        """After an answer: the conversation's next turn, or else the stream's next conversation."""
        request, sessions, loop = flight.request, self.plan.workload.sessions, self.spec.arrivals
        self.holds.told(request.tier.name, record.status, record.retry_after_s, record.ended_ns)
        if sessions is not None and record.outcome == "ok" and request.turn + 1 < sessions.turns:
            due_ns = record.ended_ns + round(sessions.think_s * 1e9)
            if self._plan(flight.conversation, request.turn + 1, due_ns, flight):
                return
        if isinstance(loop, Closed):
            pause_s = think_s(loop, seed=self.plan.seed, stage_number=self.number, position=flight.position)
            self._begin_next(record.ended_ns + round(pause_s * 1e9))
