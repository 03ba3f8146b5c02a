"""Requests leaving and their answers, turn after turn; one that stands alone is a conversation of one turn.

Rules for whoever edits this file:

1. Each request taken from a stage is told as ended exactly once, whatever happens to its greenlet.
2. What has ended is handed on unread: the stream goes on at once. Only a further turn waits to be read.
3. Nothing switches greenlets between a request's being taken and its being under way.
"""

from collections.abc import Callable

from gevent.event import AsyncResult, Event

from loadtest.clock import RunClock
from loadtest.holds import Holds
from loadtest.request_bytes import RequestBuilder
from loadtest.retry_after import retry_after_s
from loadtest.routes import Routes
from loadtest.scribe import Attempt
from loadtest.stage import StageProgress
from loadtest.stock import Prepared
from loadtest.workload import Message, Request, Source

_UNREACHED = ("unconnected", "unanswered")
_UNREACHED_PAUSE_S = 0.2


class Conversations:
    """Makes requests, lets them leave, and tells of their end.

    ``admit`` is asked whether a request of so many bytes may leave, ``started`` hears of each that does,
    ``ended`` of each that has ended, ``idle`` when a stage has none under way; none of them may switch
    greenlets.
    """

    def __init__(
        self,
        source: Source,
        builder: RequestBuilder,
        routes: Routes,
        clock: RunClock,
        holds: Holds,
        *,
        admit: Callable[[Request, int], bool],
        started: Callable[[Request], None],
        ended: Callable[[Attempt], None],
        idle: Callable[[], None],
    ) -> None:
        self.source = source
        self._builder, self._routes, self._clock, self._holds = builder, routes, clock, holds
        self._admit, self._started, self._ended, self._idle = admit, started, ended, idle
        sessions = source.plan.workload.sessions
        self._think_s = sessions.think_s if sessions else 0.0
        self._under_way: dict[Attempt, StageProgress] = {}

    @property
    def under_way(self) -> int:
        """How many requests have left and have not ended."""
        return len(self._under_way)

    def make(
        self, stage: StageProgress, conversation: int, turn: int = 0, said: tuple[Message, ...] = ()
    ) -> Prepared:
        """Make one request: ``said`` is what its conversation said before."""
        position = conversation * stage.turns + turn
        request = self.source.request(stage.number, position, index=stage.first_index + position)
        said = (*said, *self.source.says(request))
        data = self._builder.build(request, said)
        return Prepared(conversation, turn, position, request, data, said if stage.turns > 1 else ())

    def takes(self, stage: StageProgress, prepared: Prepared) -> bool:
        """Take a request from the stage, if it may leave."""
        if stage.paced and not prepared.turn:
            due = not stage.closed  # its instant was looked at; its keeper may be late
        else:
            due = stage.is_due(prepared.position, self._clock.now_ns())
        if not due or not self._admit(prepared.request, len(prepared.data)):
            return False
        stage.take(prepared.position)
        return True

    def have(self, stage: StageProgress, prepared: Prepared, over: Event) -> int:
        """Have a whole conversation of a closed loop, once its tier may be asked; gives the last position."""
        scheduled_ns = self._allowed_ns(prepared, over)
        if self.takes(stage, prepared):
            return self.converse(stage, prepared, scheduled_ns, over)
        stage.finish()
        return prepared.position

    def converse(self, stage: StageProgress, prepared: Prepared, scheduled_ns: int, over: Event) -> int:
        """Send a request that was taken, and the later turns of its conversation; gives the last position."""
        try:
            while True:
                answer = self._perform(stage, prepared, scheduled_ns, over)
                if answer is None:
                    return prepared.position
                said = (*prepared.said, Message("assistant", answer)) if answer else prepared.said
                prepared = self.make(stage, prepared.conversation, prepared.turn + 1, said)
                if self._think_s:
                    over.wait(self._think_s)
                scheduled_ns = self._allowed_ns(prepared, over)
                if not self.takes(stage, prepared):
                    return prepared.position
        finally:
            stage.finish()
            if not stage.in_flight:
                self._idle()

    def give_up(self) -> None:
        """Tell all that is under way as cancelled, whatever keeps it."""
        for attempt in list(self._under_way):
            exchange = attempt.exchange
            exchange.ending, exchange.detail = "cancelled", "the run ended"
            exchange.ended_ns = self._clock.now_ns()
            self._tell(attempt)

    def _allowed_ns(self, prepared: Prepared, over: Event) -> int:
        """Block while the tier is on hold; gives when the request should leave: now, or at the hold's end."""
        scheduled_ns = self._clock.now_ns()
        while (until_ns := self._holds.until_ns(prepared.request.tier.name)) > self._clock.now_ns():
            scheduled_ns = until_ns
            if over.wait((until_ns - self._clock.now_ns()) / 1e9):
                break
        return scheduled_ns

    def _perform(
        self, stage: StageProgress, prepared: Prepared, scheduled_ns: int, over: Event
    ) -> str | None:
        """Send one request that was taken, read its answer, tell of it.

        Gives the answer's text if a further turn may follow and the request went well. A stream of a closed
        loop that found nobody there waits a moment, or a dead server would be asked thousands of times.
        """
        call = self._routes.to(prepared.request.tier).call(prepared.data, punctual=stage.paced)
        more = prepared.turn + 1 < stage.turns and not stage.closed
        answered: AsyncResult[str | None] | None = AsyncResult() if more else None
        attempt = Attempt(prepared.request, call.exchange, scheduled_ns, answered)
        self._under_way[attempt] = stage
        self._started(prepared.request)
        try:
            call.run()
        finally:  # also when Locust kills this greenlet
            self._tell(attempt)
        if call.exchange.ending in _UNREACHED and not stage.paced:
            over.wait(_UNREACHED_PAUSE_S)
        return None if answered is None else answered.get()

    def _tell(self, attempt: Attempt) -> None:
        """Tell that a request has ended, once."""
        stage = self._under_way.pop(attempt, None)
        if stage is None:
            return
        exchange = attempt.exchange
        wait_s = retry_after_s(exchange.headers)
        self._holds.told(attempt.request.tier.name, exchange.status, wait_s, self._clock.now_ns())
        stage.end()
        self._ended(attempt)
        if not stage.in_flight:
            self._idle()
