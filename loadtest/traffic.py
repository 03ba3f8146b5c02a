"""Requests of a plan going out: stages one after the other, closed and open loops. Greenlets, but no Locust.

Rules for whoever edits this file:

1. A request is built before it is due.
2. An open loop never waits for an answer; a stream of a closed one, and a conversation, always do.
3. A stage that is made ready is not over.
"""

from collections.abc import Callable

import gevent
from gevent.event import Event

from loadtest import arrivals
from loadtest.clock import RunClock
from loadtest.conversations import Conversations
from loadtest.holds import Holds
from loadtest.pacer import MOST_AHEAD, Pacer
from loadtest.pacing import Alarm
from loadtest.part import Part
from loadtest.plan import Closed, Plan
from loadtest.request_bytes import RequestBuilder
from loadtest.routes import Routes
from loadtest.scribe import Attempt
from loadtest.slices import Agenda, Slices
from loadtest.stage import StageProgress, users_of
from loadtest.stock import Prepared, Stock
from loadtest.workload import Request, Source

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
        builder: RequestBuilder,
        routes: Routes,
        clock: RunClock,
        *,
        admit: Callable[[Request, int], bool],
        started: Callable[[Request], None],
        ended: Callable[[Attempt], None],
        agenda: Agenda,
    ) -> None:
        self.stage: StageProgress | None = None
        self.holds = Holds(honoured=plan.control.honour_retry_after)
        self._plan, self._routes, self._clock, self._agenda = plan, routes, clock, agenda
        self.fault: Exception | None = None
        """What went wrong in a greenlet that nobody waits for; no request leaves after it."""
        self.next_index = 0
        """The index of the first request of the next stage."""
        self._opened = 0
        self._stopped = self._concluded = self._opening = False
        self._stock: Stock | None = None
        self._pacer: Pacer | None = None
        self._gate, self._changed, self._over, self._wanted = Event(), Event(), Event(), Event()
        self._conversations = Conversations(
            source,
            builder,
            routes,
            clock,
            self.holds,
            admit=admit,
            started=started,
            ended=ended,
            idle=self._changed.set,
        )

    @property
    def source(self) -> Source:
        """Where the requests come from; it can be replaced before a stage is opened."""
        return self._conversations.source

    @source.setter
    def source(self, source: Source) -> None:
        self._conversations.source = source

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
        try:
            self._get_ready(stage)
            if starts_ns is not None:
                alarm = Alarm()
                alarm.wait_until(self._clock.zero_ns + starts_ns)
                alarm.close()
            stage.started_ns = self._clock.now_ns() if starts_ns is None else starts_ns
        finally:
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
        while self._conversations.under_way and self._clock.now_ns() < deadline_ns:
            self._changed.clear()
            self._changed.wait(_CHECK_S)
        self._conversations.give_up()

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
            most = min(-(-kind.streams * stage.part.width // stage.part.of), MOST_AHEAD)
        stock = self._stock = Stock(
            stage, lambda conversation: self._conversations.make(stage, conversation), most
        )
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
            last = self._conversations.have(stage, prepared, over)
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
        if self._conversations.takes(stage, prepared):
            alone = gevent.spawn(self._conversations.converse, stage, prepared, scheduled_ns, self._over)
            alone.link_exception(self._on_fault)
        else:
            stage.finish()

    def _on_fault(self, greenlet: gevent.Greenlet) -> None:
        """What went wrong in there is our own doing: nothing more may leave."""
        self.fault = self.fault or greenlet.exception
        self.conclude()

    def _think_s(self, stage: StageProgress, position: int) -> float:
        kind = stage.stage.arrivals
        if not isinstance(kind, Closed):
            return 0.0
        return arrivals.think_s(kind, seed=self._plan.seed, stage_number=stage.number, position=position)
