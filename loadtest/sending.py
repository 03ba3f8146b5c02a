"""What a process needs to send requests of a run and to make records of them. Greenlets, but no Locust."""

import os
from collections.abc import Callable, Sequence

from loadtest import proxy, reading, timeline, tls
from loadtest.calibrating import Calibration, calibrate
from loadtest.clock import RunClock
from loadtest.endpoint import Endpoint
from loadtest.records import RequestRecord
from loadtest.request_bytes import RequestBuilder
from loadtest.routes import Routes
from loadtest.run_config import RunConfig
from loadtest.scribe import Attempt, Scribe
from loadtest.slices import Agenda
from loadtest.spending import Spending
from loadtest.stamps import Stamps
from loadtest.traffic import Traffic
from loadtest.transport import Transport
from loadtest.wire import WIRES
from loadtest.workload import Counting, Message, Request, open_source
from tierscope import prices


class Sending:
    """One process's way to the server: ``traffic.turn`` is what users do, ``routes`` what they do it with.

    ``started`` is told the stage and tier of each request that leaves, ``ended`` its record and the bytes of
    its body, once each; ``conclude`` why nothing more may leave. ``processes`` share the plan's ceiling of
    cost; ``counting`` is what was measured of the server's tokens.
    """

    def __init__(
        self,
        config: RunConfig,
        stamps: Stamps,
        clock: RunClock,
        *,
        started: Callable[[str, str], None],
        ended: Callable[[RequestRecord, int], None],
        conclude: Callable[[str], None],
        processes: int = 1,
        counting: Counting | None = None,
    ) -> None:
        plan, target = config.plan, config.target
        self._config, self._stamps, self._clock = config, stamps, clock
        self._wire = wire = WIRES[target.api]
        self._started, self._ended, self._conclude = started, ended, conclude
        self._builder = RequestBuilder(plan, target, key=config.key, run_id=config.run_id)
        self.routes = Routes(plan, target, wire.path, self._connect)
        agenda = Agenda()
        self.scribe = Scribe(self._record, lambda exchange: reading.answer(exchange, wire), agenda)
        self.spending = Spending(plan, target, config.prices or prices.load(), processes=processes)
        self.source = open_source(plan, folder=config.files_from, counting=counting)
        self.traffic = Traffic(
            plan,
            self.source,
            self._builder,
            self.routes,
            clock,
            admit=self._admits,
            started=lambda request: started(request.stage, request.tier.name),
            ended=self.scribe.put,
            agenda=agenda,
        )

    def calibrate(self) -> Calibration:
        """Find out how the server counts our words, if the plan leaves it open, before the first stage."""
        config = self._config
        found = calibrate(config.plan, self._ask, folder=config.files_from)
        if found.counting is not None:
            self.source = open_source(config.plan, folder=config.files_from, counting=found.counting)
            self.traffic.source = self.source
        turns = self.source.turns
        self.traffic.next_index = -(-found.requests // turns) * turns
        return found

    def drain(self) -> None:
        """After ``traffic.stop``: block until each request that left has its record."""
        self.traffic.drain()
        self.scribe.drain()

    def close(self) -> None:
        """Close all connections; to be called after ``drain``."""
        self.scribe.close()
        self.routes.close()

    def _connect(self, where: Endpoint) -> Transport:
        config = self._config
        by_way_of = proxy.for_target(where, os.environ)
        context = None
        if where.tls or (by_way_of is not None and by_way_of.tls):
            context = tls.context(verify=not config.insecure, authorities=config.authorities)
        timeouts = config.plan.timeouts
        return Transport(where, timeouts, self._clock, self._stamps, tls=context, proxy=by_way_of)

    def _ask(self, request: Request, messages: Sequence[Message]) -> RequestRecord | None:
        """Send one request that belongs to no stage, and wait for its record; None if nothing may leave."""
        data = self._builder.build(request, messages)
        if self.traffic.stopped or not self._admits(request, len(data)):
            return None
        call = self.routes.to(request.tier).call(data)
        attempt = Attempt(request, call.exchange, self._clock.now_ns())
        self._started(request.stage, request.tier.name)
        try:
            call.run()
        finally:
            self.scribe.put(attempt)
        self.scribe.drain()
        return attempt.record

    def _admits(self, request: Request, request_bytes: int) -> bool:
        if self.spending.admits(request, request_bytes):
            return True
        self._conclude(self.spending.refusal())
        return False

    def _record(self, attempt: Attempt) -> RequestRecord:
        """Make the record of a request that ended."""
        request, exchange = attempt.request, attempt.exchange
        record = timeline.record(
            request,
            exchange,
            self._wire,
            model=self._builder.model(request.tier),
            scheduled_ns=attempt.scheduled_ns,
            secret=self._config.key,
        )
        self.spending.settle(record)
        self._ended(record, sum([len(piece) for _, piece in exchange.pieces]))
        return record
