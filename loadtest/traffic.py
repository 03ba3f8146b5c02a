"""Requests of a plan going out: stages one after the other, closed and open loops. Greenlets, but no Locust.

Rules for whoever edits this file:

1. Each request taken from a stage is told as ended exactly once, whatever happens to its greenlet.
2. A request is built before it is due.
3. An open loop never waits for an answer; a stream of a closed one, and a conversation, always do.
4. What has ended is handed on unread: the stream goes on at once.
"""

from collections.abc import Callable

import gevent
from gevent.event import AsyncResult, Event

from loadtest import arrivals
from loadtest.clock import RunClock
from loadtest.holds import HOLDING, Holds
from loadtest.message import MessageBuilder
from loadtest.pacer import MOST_AHEAD, Pacer
from loadtest.pacing import Alarm
from loadtest.part import Part
from loadtest.plan import Closed, Plan
from loadtest.routes import Routes
from loadtest.scribe import Finished
from loadtest.slices import Agenda, Slices
from loadtest.stage import StageProgress, users_of
from loadtest.stock import Prepared, Stock
from loadtest.timeline import retry_after_s
from loadtest.workload import Message, Request, Source

_DRAIN_S = 5.0
_CHECK_S = 0.1
_WHOLE = Part()


class Traffic:
    """The requests of one plan, or one part of them. ``users_needed``, ``open``, ``wait`` drive it by stages.

    Users call ``turn`` again and again meanwhile, each in a greenlet of its own. ``admit`` is asked whether a
    request of so many bytes may leave, ``started`` hears of each that does, ``ended`` of each that has ended;
    none of them may switch greenlets. Work that can wait finds in ``agenda`` when something has to leave.
    """

    def __init__(
        self,
        plan: Plan,
        source: Source,
        builder: MessageBuilder,
        routes: Routes,
        clock: RunClock,
        *,
        admit: Callable[[Request, int], bool],
        started: Callable[[Request], None],
        ended: Callable[[Finished], None],
        agenda: Agenda,
    ) -> None:
        self.stage: StageProgress | None = None
        self.holds = Holds(honoured=plan.control.honour_retry_after)
        self.source = source
        self._plan, self._builder = plan, builder
        self._routes, self._clock = routes, clock
        self._agenda = agenda
        self._admit, self._started, self._ended = admit, started, ended
        self._sessions = plan.workload.sessions
        self.next_index = 0
        """The index of the first request of the next stage."""
        self._opened = 0
        self._stopped = self._concluded = self._opening = False
        self._under_way: dict[Finished, StageProgress] = {}
        self._stock: Stock | None = None
        self._pacer: Pacer | None = None
        self._gate, self._changed, self._over, self._wanted = Event(), Event(), Event(), Event()

    @property
    def done(self) -> bool:
        """Whether every stage has been opened, or none is to be opened any more."""
        return self._opened == len(self._plan.stages)

    @property
    def stopped(self) -> bool:
        """Whether nothing may leave any more."""
        return self._stopped or self._concluded

    def users_needed(self) -> int | None:
        """How many users the next stage needs; None if there is none, or all was stopped."""
        return None if self.done or self._stopped else users_of(self._plan.stages[self._opened])

    def open(
        self,
        *,
        number: int | None = None,
        part: Part = _WHOLE,
        first_index: int | None = None,
        starts_ns: int | None = None,
    ) -> StageProgress:
        """Begin the next stage, or that of a number: its users are there and may send from ``starts_ns`` on.

        Blocks until what leaves first is made, and then until the start. ``first_index`` is the index of the
        stage's position 0; without it that follows what this process has sent. Several processes that send
        parts of one stage need both from whoever leads them, who knows the highest ``next_index`` of all.
        """
        if number is not None:
            self._opened = number
        stage = self.stage = StageProgress(
            self._plan.stages[self._opened],
            self._opened,
            started_ns=self._clock.now_ns(),
            first_index=self.next_index if first_index is None else first_index,
            turns=self.source.turns,
            part=part,
        )
        self._opened += 1
        self._over = Event()
        if self.stopped:
            stage.close()
            return stage
        self._opening = True
        self._get_ready(stage)
        if starts_ns is not None:
            alarm = Alarm()
            alarm.wait_until(self._clock.zero_ns + starts_ns)
            alarm.close()
        stage.started_ns = self._clock.now_ns() if starts_ns is None else starts_ns
        self._opening = False
        if not stage.closed:
            self._gate.set()
        return stage

    def wait(self) -> None:
        """Block until the stage under way is over."""
        stage = self.stage
        while stage is not None and (self._opening or not stage.is_over(self._clock.now_ns())):
            self._changed.clear()
            self._changed.wait(_CHECK_S)
        self._end_stage()
        if stage is not None:
            self.next_index = stage.next_index

    def conclude(self) -> None:
        """Send nothing more and open no stage; what is in flight goes on, and ``wait`` waits for it."""
        self._concluded = True
        self._opened = len(self._plan.stages)
        if self.stage is not None:
            self.stage.close()
        self._end_stage()
        self._changed.set()

    def stop(self) -> None:
        """Send nothing more and cancel what is in flight."""
        self._stopped = True
        if self.stage is not None:
            self.stage.close()
        self._end_stage()
        self._routes.cancel()
        self._changed.set()

    def drain(self) -> None:
        """After ``stop``: block until everything in flight has been told as ended.

        What has not ended within 5 s is told as cancelled, whatever keeps it.
        """
        deadline_ns = self._clock.now_ns() + int(_DRAIN_S * 1e9)
        while self._under_way and self._clock.now_ns() < deadline_ns:
            self._changed.clear()
            self._changed.wait(_CHECK_S)
        for finished in list(self._under_way):
            exchange = finished.exchange
            exchange.ending, exchange.detail = "cancelled", "the run ended"
            exchange.ended_ns = self._clock.now_ns()
            self._tell(finished)

    def _end_stage(self) -> None:
        """Have users wait for the next stage, and whoever pauses pause no longer."""
        self._gate.clear()
        self._over.set()
        self._wanted.set()

    # What is made before it is due

    def _get_ready(self, stage: StageProgress) -> None:
        """Make what leaves first, and have more made while the stage lasts."""
        kind = stage.stage.arrivals
        most = MOST_AHEAD
        if isinstance(kind, Closed):
            most = min(-(-kind.streams * stage.part.share // stage.part.of), MOST_AHEAD)
        stock = self._stock = Stock(stage, lambda conversation: self._make(stage, conversation), most)
        if isinstance(kind, Closed):
            self._pacer = None
            keeper = gevent.spawn(self._keep_stocked, stock, self._over)
            while not (stock.full or keeper.dead or stage.closed):
                self._changed.clear()
                self._changed.wait(_CHECK_S)
            return
        instants = self.source.instants(stage.number)
        self._pacer = Pacer(
            stage,
            instants,
            stock,
            self.holds,
            self._clock,
            self._agenda,
            lambda prepared, scheduled_ns: self._send(stage, prepared, scheduled_ns),
        )
        self._pacer.prepare()

    def _keep_stocked(self, stock: Stock, over: Event) -> None:
        """Have a request ready for each stream that may end."""
        slices = Slices(self._agenda)
        try:
            while not over.is_set():
                slices.begin()
                while stock.add():
                    slices.breathe()
                self._changed.set()
                self._wanted.clear()
                self._wanted.wait()
        finally:
            slices.close()

    def _make(
        self, stage: StageProgress, conversation: int, turn: int = 0, said: tuple[Message, ...] = ()
    ) -> Prepared:
        """Make one request: ``said`` is what its conversation said before."""
        position = conversation * stage.turns + turn
        request = self.source.request(stage.number, position, index=stage.first_index + position)
        said = (*said, *self.source.says(request))
        message = self._builder.build(request, said)
        return Prepared(conversation, turn, position, request, message, said if stage.turns > 1 else ())

    # What users do

    def turn(self) -> None:
        """Do a user's part: one conversation of a closed loop, or all of an open one; wait if none is due."""
        self._gate.wait()
        stage, stock, over = self.stage, self._stock, self._over
        if stage is None or stock is None:
            return
        if self._pacer is not None:
            self._pace(stage, self._pacer, over)
        elif (prepared := stock.take(self._clock.now_ns())) is not None:
            self._wanted.set()
            last = self._hold_a_conversation(stage, prepared, over)
            if pause_s := self._think_s(stage, last):
                over.wait(pause_s)
        else:
            self._gate.clear()
            self._changed.set()

    def _pace(self, stage: StageProgress, pacer: Pacer, over: Event) -> None:
        """Keep an open loop's instants."""
        if stage.paced:  # a user too many, added by hand
            over.wait()
            return
        try:
            pacer.run()
        finally:
            if self.stage is stage:
                self._gate.clear()
            self._changed.set()

    def _send(self, stage: StageProgress, prepared: Prepared, scheduled_ns: int) -> None:
        """Let an open loop's request leave, in a greenlet of its own."""
        if self._takes(stage, prepared):
            gevent.spawn(self._converse, stage, prepared, scheduled_ns, self._over)
        else:
            stage.finish()

    def _think_s(self, stage: StageProgress, position: int) -> float:
        kind = stage.stage.arrivals
        if not isinstance(kind, Closed):
            return 0.0
        return arrivals.think_s(kind, seed=self._plan.seed, stage_number=stage.number, position=position)

    def _hold_a_conversation(self, stage: StageProgress, prepared: Prepared, over: Event) -> int:
        """A whole conversation of a closed loop; gives the position of the last turn."""
        scheduled_ns = self._allowed_ns(prepared, over)
        if self._takes(stage, prepared):
            return self._converse(stage, prepared, scheduled_ns, over)
        stage.finish()
        return prepared.position

    def _converse(self, stage: StageProgress, prepared: Prepared, scheduled_ns: int, over: Event) -> int:
        """Send a request that was taken, and the later turns of its conversation; gives the last position."""
        try:
            while True:
                answer = self._perform(stage, prepared, scheduled_ns)
                if answer is None or self._sessions is None:
                    return prepared.position
                said = (*prepared.said, Message("assistant", answer)) if answer else prepared.said
                prepared = self._make(stage, prepared.conversation, prepared.turn + 1, said)
                if self._sessions.think_s:
                    over.wait(self._sessions.think_s)
                scheduled_ns = self._allowed_ns(prepared, over)
                if not self._takes(stage, prepared):
                    return prepared.position
        finally:
            stage.finish()
            if not stage.in_flight:
                self._changed.set()

    def _allowed_ns(self, prepared: Prepared, over: Event) -> int:
        """Block while the tier is on hold; gives when the request should leave: now, or at the hold's end."""
        scheduled_ns = self._clock.now_ns()
        while (until_ns := self.holds.until_ns(prepared.request.tier.name)) > self._clock.now_ns():
            scheduled_ns = until_ns
            if over.wait((until_ns - self._clock.now_ns()) / 1e9):
                break
        return scheduled_ns

    def _takes(self, stage: StageProgress, prepared: Prepared) -> bool:
        """Take a request from the stage, if it may leave."""
        if stage.paced and not prepared.turn:
            due = not stage.closed  # its instant was looked at; its keeper may be late
        else:
            due = stage.is_due(prepared.position, self._clock.now_ns())
        if not due or not self._admit(prepared.request, len(prepared.message)):
            return False
        stage.take(prepared.position)
        return True

    def _perform(self, stage: StageProgress, prepared: Prepared, scheduled_ns: int) -> str | None:
        """Send one request that was taken, read its answer, tell of it.

        Gives the answer's text if a further turn may follow and the request went well.
        """
        call = self._routes.to(prepared.request.tier).call(prepared.message, punctual=stage.paced)
        more = prepared.turn + 1 < stage.turns and not stage.closed
        answered: AsyncResult[str | None] | None = AsyncResult() if more else None
        finished = Finished(prepared.request, call.exchange, scheduled_ns, answered)
        self._under_way[finished] = stage
        self._started(prepared.request)
        try:
            call.run()
        finally:  # also when Locust kills this greenlet
            self._tell(finished)
        return None if answered is None else answered.get()

    def _tell(self, finished: Finished) -> None:
        """Tell that a request has ended, once."""
        stage = self._under_way.pop(finished, None)
        if stage is None:
            return
        exchange = finished.exchange
        if exchange.status in HOLDING:
            wait_s = retry_after_s(exchange.headers)
            self.holds.told(finished.request.tier.name, exchange.status, wait_s, self._clock.now_ns())
        stage.end()
        self._ended(finished)
        if not stage.in_flight:
            self._changed.set()
