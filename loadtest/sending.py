"""What a process needs to send requests of a run and to make records of them. Greenlets, but no Locust."""

from collections.abc import Callable

from loadtest import endpoint, timeline, tls
from loadtest.clock import RunClock
from loadtest.exchange import Exchange
from loadtest.message import MessageBuilder
from loadtest.records import RequestRecord
from loadtest.run_config import RunConfig
from loadtest.stage import StageProgress
from loadtest.stamps import Stamps
from loadtest.traffic import Traffic
from loadtest.transport import Transport
from loadtest.wire import WIRES
from loadtest.workload import Request, open_source


class Sending:
    """One process's way to the server: ``traffic.turn`` is what users do, ``transport`` what they do it with.

    ``started`` is told the stage and tier of each request that leaves, ``ended`` its record and the bytes of
    its body, once each.
    """

    def __init__(
        self,
        config: RunConfig,
        stamps: Stamps,
        clock: RunClock,
        *,
        started: Callable[[str, str], None],
        ended: Callable[[RequestRecord, int], None],
    ) -> None:
        self._config = config
        self._wire = WIRES[config.target.api]
        self._started, self._ended = started, ended
        where = endpoint.parse(config.target.url, self._wire.path)
        context = tls.context(verify=not config.insecure) if where.tls else None
        self._builder = MessageBuilder(
            config.plan, config.target, where, key=config.key, run_id=config.run_id
        )
        self.transport = Transport(where, config.plan.timeouts, clock, stamps, tls=context)
        self.traffic = Traffic(
            config.plan,
            open_source(config.plan),
            self._builder,
            self.transport,
            started=self._on_started,
            ended=self._on_ended,
        )

    def _on_started(self, request: Request) -> None:
        self._started(request.stage, request.tier.name)

    def _on_ended(
        self,
        stage: StageProgress,  # noqa: ARG002
        request: Request,
        exchange: Exchange,
        scheduled_ns: int,
    ) -> bool:
        """Make the record of a request that ended; whether it went well."""
        record = timeline.record(
            request,
            exchange,
            self._wire,
            model=self._builder.model(request.tier),
            scheduled_ns=scheduled_ns,
            secret=self._config.key,
        )
        self._ended(record, sum([len(piece) for _, piece in exchange.pieces]))
        return record.outcome == "ok"
