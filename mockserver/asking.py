"""From a request that an API has read to the end of its response: placed, struck, computed, settled.

Rules for whoever edits this file:

1. A request that was placed is settled exactly once, whoever ends it: its last token, a fault, its client.
2. What is refused has charged nothing and is in no engine.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mockserver import faults, wire_anthropic
from mockserver.answering import Answering
from mockserver.ask import Ask, Dialect, Placed
from mockserver.config import ServerConfig
from mockserver.connection import Connection
from mockserver.desk import Desk
from mockserver.dispatch import Dispatch
from mockserver.faults import Struck
from mockserver.http_request import HttpRequest
from mockserver.outlet import Timing
from mockserver.response import How, Response
from mockserver.stream import Streamed
from mockserver.whole import Whole


@dataclass(slots=True)
class Taken:
    """A request that is served."""

    http: HttpRequest
    connection: Connection
    dialect: Dialect
    id: str
    arrived_ns: int
    struck: Struck
    placed: Placed
    job_ids: list[int] = field(default_factory=list)


class Asking:
    """Serves requests of all APIs. ``fields`` makes what every head of a response has."""

    def __init__(
        self,
        config: ServerConfig,
        desk: Desk,
        dispatch: Dispatch,
        timing: Timing,
        fields: Callable[[HttpRequest], dict[str, str]],
    ) -> None:
        self._config, self._desk, self._dispatch, self._timing = config, desk, dispatch, timing
        self._clock, self._metrics, self._fields = dispatch.clock, dispatch.metrics, fields
        self._asks = 0

    def strike(self, ask: Ask, arrived_ns: int) -> Struck:
        """Which faults strike the next request; raises RefusedError if one is an error of HTTP."""
        number, self._asks = self._asks, self._asks + 1
        tier = self._desk.requested(ask.model, ask.service_tier, ask.speed)
        config = self._config
        struck = faults.struck(
            config.faults, seed=config.seed, number=number, tier=tier.name, arrived_ns=arrived_ns
        )
        for kind in struck.kinds:
            self._metrics.on_fault(kind)
        if struck.http_error is not None:
            raise faults.refusal(struck.http_error)
        return struck

    def serve(
        self, dialect: Dialect, ask: Ask, request: HttpRequest, connection: Connection, request_id: str
    ) -> None:
        """Place a request and have its response begin, now or when a limit or a fault lets it.

        Raises RefusedError for what is not served.
        """
        arrived_ns = self._clock.now_ns()
        struck = self.strike(ask, arrived_ns)
        placed = self._desk.place(ask, arrived_ns)
        self._metrics.on_request(placed.tier.name, max_tokens=ask.max_tokens, choices=ask.choices)
        if placed.tier is not placed.requested:
            self._metrics.on_downgrade(placed.requested.name, placed.tier.name)
        taken = Taken(request, connection, dialect, request_id, arrived_ns, struck, placed)
        response = self._response(taken)
        connection.on_hang_up = response.gone
        held_ns = placed.wait_ns + round(struck.delay_s * 1e9)
        if held_ns:
            self._clock.call_at(arrived_ns + held_ns, lambda: self._begin(taken, response))
        else:
            self._begin(taken, response)

    def _response(self, taken: Taken) -> Response:
        placed, wire = taken.placed, self._config.wire
        voice = taken.dialect.voice(placed, wire=wire, request_id=taken.id, created_unix_s=int(time.time()))
        answering = Answering(placed, caches=self._dispatch.caches(placed.tier), truth=wire.truth)

        def on_over(how: How) -> None:
            self._over(taken, answering, how)

        if not placed.ask.stream:
            return Whole(
                voice, answering, taken.connection, self._timing, struck=taken.struck, on_over=on_over
            )
        return Streamed(
            voice,
            answering,
            taken.connection,
            self._timing,
            wire=wire,
            struck=taken.struck,
            chunks=taken.http.chunks,
            on_break=lambda: self._drop(taken),
            on_over=on_over,
        )

    def _begin(self, taken: Taken, response: Response) -> None:
        """Hand the jobs in and send the head, unless the client has gone meanwhile."""
        if response.is_over:
            return
        taken.job_ids = self._dispatch.submit(taken.placed, response)
        response.begin(lambda: self._headers(taken))

    def _drop(self, taken: Taken) -> None:
        self._dispatch.drop(taken.placed.tier.name, taken.job_ids)

    def _over(self, taken: Taken, answering: Answering, how: How) -> None:
        """A response has ended: give back what it did not use, count it, and go on with the connection."""
        placed = taken.placed
        self._drop(taken)
        generated = answering.total_tokens if answering.over else answering.generated_tokens
        self._desk.settle(placed, generated, self._clock.now_ns(), cached_tokens=answering.cached_tokens)
        for answer in placed.answers:
            reason = {"done": answer.finish, "broken": "error", "gone": "abort"}[how]
            self._metrics.on_end(placed.tier.name, reason)
        if how != "gone":
            ends_itself = taken.http.chunks or not placed.ask.stream
            taken.connection.answered(keep=taken.http.keep_alive and ends_itself)

    def _headers(self, taken: Taken) -> dict[str, str]:
        """What the head of a served response tells."""
        now_ns, placed = self._clock.now_ns(), taken.placed
        quotas = self._desk.quotas(placed.requested, now_ns)
        told = taken.dialect.headers(taken.id, quotas, placed.ask.speed, int(time.time()))
        if taken.dialect is not wire_anthropic.DIALECT:
            told["openai-processing-ms"] = str(round((now_ns - taken.arrived_ns) / 1e6))
        return {**told, **self._fields(taken.http)}
