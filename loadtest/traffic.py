"""Requests of a plan going out: stages one after the other, closed and open loops. Greenlets, but no Locust.

Rules for whoever edits this file:

1. Each request taken from a stage is told as ended exactly once, whatever happens to its greenlet.
2. A request is built before it is due.
3. An open loop never waits for an answer; a closed one always does.
"""

from collections.abc import Callable
from typing import Protocol

import gevent
from gevent.event import Event

from loadtest import arrivals
from loadtest.exchange import Exchange
from loadtest.message import MessageBuilder
from loadtest.pacing import Alarm
from loadtest.plan import Closed, Plan
from loadtest.stage import StageProgress, users_of
from loadtest.transport import Transport
from loadtest.workload import Request, Source

_DRAIN_S = 5.0
_CHECK_S = 0.1


class Ended(Protocol):
    """Who is told of each request that has ended."""

    def __call__(self, stage: StageProgress, request: Request, exchange: Exchange, scheduled_ns: int) -> bool:
        """Take it in and say whether it went well. Must not switch greenlets."""
        ...


class Traffic:
    """The requests of one plan. ``users_needed``, ``open`` and ``wait`` drive it stage by stage.

    Users call ``turn`` again and again meanwhile, each in a greenlet of its own.
    """

    def __init__(
        self,
        plan: Plan,
        source: Source,
        builder: MessageBuilder,
        transport: Transport,
        *,
        started: Callable[[Request], None],
        ended: Ended,
    ) -> None:
        self.stage: StageProgress | None = None
        self._plan = plan
        self._source = source
        self._builder = builder
        self._transport = transport
        self._clock = transport.clock
        self._started, self._ended = started, ended
        self._opened = self._next_index = 0
        self._stopped = False
        self._gate, self._changed = Event(), Event()

    @property
    def done(self) -> bool:
        """Whether every stage has been opened."""
        return self._opened == len(self._plan.stages)

    def users_needed(self) -> int | None:
        """How many users the next stage needs; None if there is none, or all was stopped."""
        return None if self.done or self._stopped else users_of(self._plan.stages[self._opened])

    def open(self) -> StageProgress:
        """Begin the next stage: its users are there and may start."""
        self.stage = StageProgress(
            self._plan.stages[self._opened],
            self._opened,
            started_ns=self._clock.now_ns(),
            first_index=self._next_index,
        )
        self._opened += 1
        self._gate.set()
        return self.stage

    def wait(self) -> None:
        """Block until the stage under way is over."""
        stage = self.stage
        while stage is not None and not stage.is_over(self._clock.now_ns()):
            self._changed.clear()
            self._changed.wait(_CHECK_S)
        self._gate.clear()
        if stage is not None:
            self._next_index = stage.first_index + stage.taken

    def stop(self) -> None:
        """Send nothing more and cancel what is in flight."""
        self._stopped = True
        self._gate.clear()
        if self.stage is not None:
            self.stage.close()
        self._transport.cancel()
        self._changed.set()

    def drain(self) -> None:
        """After ``stop``: block until everything in flight has been told as ended (bounded)."""
        deadline_ns = self._clock.now_ns() + int(_DRAIN_S * 1e9)
        while self.stage is not None and self.stage.in_flight and self._clock.now_ns() < deadline_ns:
            self._changed.clear()
            self._changed.wait(_CHECK_S)

    # What users do

    @property
    def think_s(self) -> float:
        """How long a user pauses between two requests of the stage under way."""
        kind = self.stage.stage.arrivals if self.stage else None
        return kind.think_s if isinstance(kind, Closed) else 0.0

    def turn(self) -> None:
        """Do a user's part: one request of a closed loop, or all of an open one; waits if nothing is due."""
        self._gate.wait()
        stage = self.stage
        if stage is None:
            return
        if not isinstance(stage.stage.arrivals, Closed):
            self._pace(stage)
        elif stage.is_due(self._clock.now_ns()):
            request, message = self._prepare(stage)
            stage.take()
            self._perform(stage, request, message, self._clock.now_ns())
        else:
            self._gate.clear()
            self._changed.set()

    def _pace(self, stage: StageProgress) -> None:
        """Send an open loop's requests at their instants, each in a greenlet of its own."""
        if stage.paced:  # a user too many, added by hand
            self._changed.wait()
            return
        stage.paced = True
        alarm = Alarm()
        try:
            for offset_ns in arrivals.instants(
                stage.stage.arrivals, seed=self._plan.seed, stage_number=stage.number
            ):
                due_ns = stage.started_ns + offset_ns
                if not stage.is_due(due_ns):
                    break
                request, message = self._prepare(stage)
                alarm.wait_until(self._clock.zero_ns + due_ns)
                if not stage.is_due(due_ns):  # stopped meanwhile
                    break
                stage.take()
                gevent.spawn(self._perform, stage, request, message, due_ns)
        finally:
            alarm.close()
            stage.close()
            self._gate.clear()
            self._changed.set()

    def _prepare(self, stage: StageProgress) -> tuple[Request, bytes]:
        """Make the stage's next request."""
        request = self._source.request(stage.number, stage.taken, index=stage.first_index + stage.taken)
        return request, self._builder.build(request, self._source.says(request))

    def _perform(self, stage: StageProgress, request: Request, message: bytes, scheduled_ns: int) -> None:
        """Send one request that was taken, read its answer, tell of it."""
        call = self._transport.call(message, punctual=stage.paced)
        self._started(request)
        ok = False
        try:
            call.run()
        finally:  # also when Locust kills this greenlet
            try:
                ok = self._ended(stage, request, call.exchange, scheduled_ns)
            finally:
                stage.end(ok=ok)
                self._changed.set()
