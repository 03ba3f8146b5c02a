"""The mock server's routes: which API a request speaks, who serves it, and what becomes of its response.

No coroutines: a request is answered by calls that the connection, the engines and the clock make.
"""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from hashlib import blake2b

import msgspec

from mockserver import (
    faults,
    metrics_text,
    stream,
    wire_anthropic,
    wire_chat,
    wire_completions,
    wire_models,
    wire_responses,
)
from mockserver.answering import Answering
from mockserver.ask import Ask, Dialect, Placed, RefusedError
from mockserver.config import ServerConfig
from mockserver.connection import Connection, Cork
from mockserver.desk import Desk
from mockserver.dispatch import Dispatch, StepSink
from mockserver.faults import Struck
from mockserver.http_request import HttpRequest
from mockserver.http_response import JSON, head
from mockserver.outlet import Timing
from mockserver.stream import How, Response, Streamed, Whole

DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": wire_chat.DIALECT,
    "/v1/completions": wire_completions.DIALECT,
    "/v1/responses": wire_responses.DIALECT,
    "/v1/messages": wire_anthropic.DIALECT,
}
_COUNT_TOKENS = "/v1/messages/count_tokens"
_MODELS = "/v1/models"


@dataclass(slots=True)
class _Request:
    """A request that an API read, on its way."""

    http: HttpRequest
    connection: Connection
    dialect: Dialect
    id: str
    arrived_ns: int
    ask: Ask
    struck: Struck
    placed: Placed
    job_ids: list[int] = field(default_factory=list)


class Server:
    """Routes of one mock server. ``start`` it on a running event loop; ``say`` tells its operator."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        step_log: StepSink | None = None,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> None:
        self.config = config
        self._cork = Cork()
        self._desk = Desk(config)
        self.dispatch = Dispatch(config, self._cork, step_log)
        self._clock, self._metrics = self.dispatch.clock, self.dispatch.metrics
        self._created_unix_s = int(time.time())
        self._say = say
        self._timing: Timing
        self._received = self._asks = 0
        self._late = self.dispatch.lateness.verdict(0)
        self._get = {
            "/health": self._health,
            "/metrics": self._exposition,
            _MODELS: self._models,
        }

    def start(self, timing: Timing) -> None:
        """Let time begin."""
        self._timing = timing
        self._clock.start()

    def stop(self) -> None:
        """Let time end."""
        self._clock.stop()

    def connection(self) -> Connection:
        """What serves a client that has connected."""
        return Connection(
            self,
            self._cork,
            max_body_bytes=self.config.max_body_bytes,
            body_timeout_s=self.config.body_timeout_s,
        )

    def check_lateness(self) -> None:
        """Say so once for each window in which this host was too slow; to be called about once a second."""
        late = self.dispatch.lateness.verdict(self._clock.now_ns())
        if late is not None and late is not self._late:
            self._say(f"{self.config.name}: {late}")
        self._late = late
        self._metrics.set_late(late=late is not None)

    def handle(self, request: HttpRequest, connection: Connection) -> None:
        """Answer a request, at once or when its tokens are there."""
        try:
            if (dialect := DIALECTS.get(request.path)) is not None:
                _only(request, "POST")
                self._ask(dialect, request, connection)
            elif request.path == _COUNT_TOKENS:
                _only(request, "POST")
                names = wire_anthropic.models_of(self.config)
                body = wire_anthropic.count_tokens(
                    request.body, request.headers, wire=self.config.wire, models=names
                )
                self._reply(request, connection, 200, body, {"content-type": JSON})
            else:
                self._answer_get(request, connection)
        except RefusedError as refusal:
            self._refuse(refusal, request, connection)

    def refuse(
        self, refusal: RefusedError, path: str, headers: dict[str, str], connection: Connection
    ) -> None:
        """Write the answer to what is no whole request; the connection closes after it."""
        self._metrics.on_refusal("", refusal.status)
        body = _dialect_of(path, headers).refusal_body(refusal, self._new_id())
        told = {"content-type": JSON, "content-length": str(len(body)), "connection": "close"}
        connection.write(head(refusal.status, told) + body)

    def _ask(self, dialect: Dialect, request: HttpRequest, connection: Connection) -> None:
        """Place a request and have its response begin, now or when a limit or a fault lets it."""
        arrived_ns, request_id = self._clock.now_ns(), self._new_id()
        ask = dialect.parse(request.body, request.headers, self.config.wire)
        number, self._asks = self._asks, self._asks + 1
        tier = self._desk.requested(ask.model, ask.service_tier, ask.speed)
        struck = faults.struck(
            self.config.faults,
            seed=self.config.seed,
            number=number,
            tier=tier.name,
            arrived_ns=arrived_ns,
        )
        for kind in struck.kinds:
            self._metrics.on_fault(kind)
        try:
            if struck.http_error is not None:
                raise stream.fault_refusal(struck.http_error)
            placed = self._desk.place(ask, arrived_ns)
        except RefusedError as refusal:
            self._refuse(refusal, request, connection, ask=ask, tier_name=tier.name, request_id=request_id)
            return
        self._metrics.on_request(placed.tier.name, max_tokens=ask.max_tokens, choices=ask.choices)
        if placed.tier is not placed.requested:
            self._metrics.on_downgrade(placed.requested.name, placed.tier.name)
        taken = _Request(request, connection, dialect, request_id, arrived_ns, ask, struck, placed)
        response = self._response(taken)
        connection.on_hang_up = response.gone
        held_ns = placed.wait_ns + round(struck.delay_s * 1e9)
        if held_ns:
            self._clock.call_at(arrived_ns + held_ns, lambda: self._begin(taken, response))
        else:
            self._begin(taken, response)

    def _response(self, taken: _Request) -> Response:
        placed, config = taken.placed, self.config
        voice = taken.dialect.voice(
            placed, wire=config.wire, request_id=taken.id, created_unix_s=int(time.time())
        )
        answering = Answering(placed, caches=self.dispatch.caches(placed.tier), truth=config.wire.truth)

        def on_over(how: How) -> None:
            self._over(taken, answering, how)

        if not taken.ask.stream:
            return Whole(
                voice, answering, taken.connection, self._timing, struck=taken.struck, on_over=on_over
            )
        return Streamed(
            voice,
            answering,
            taken.connection,
            self._timing,
            wire=config.wire,
            struck=taken.struck,
            chunks=taken.http.chunks,
            on_over=on_over,
        )

    def _begin(self, taken: _Request, response: Response) -> None:
        """Hand the jobs in and send the head, unless the client has gone meanwhile."""
        if response.is_over:
            return
        taken.job_ids = self.dispatch.submit(taken.placed, response)
        response.begin(lambda: self._headers(taken))

    def _over(self, taken: _Request, answering: Answering, how: How) -> None:
        """A response has ended: give back what it did not use, count it, and go on with the connection."""
        placed = taken.placed
        dropped = self.dispatch.drop(placed.tier.name, taken.job_ids)
        generated = answering.total_tokens if answering.over else answering.generated_tokens
        self._desk.settle(placed, generated, self._clock.now_ns(), cached_tokens=answering.cached_tokens)
        reasons = ["abort" if how == "gone" else "error"] * len(placed.answers)
        if how == "done" or (answering.over and not dropped):
            reasons = [answer.finish for answer in placed.answers]
        for reason in reasons:
            self._metrics.on_end(placed.tier.name, reason)
        if how != "gone":
            ends_itself = taken.http.chunks or not taken.ask.stream
            taken.connection.answered(keep=taken.http.keep_alive and ends_itself)

    def _headers(self, taken: _Request) -> dict[str, str]:
        """What the head of a served response tells."""
        now_ns, requested = self._clock.now_ns(), taken.placed.requested
        told = taken.dialect.headers(
            taken.id, self._desk.quotas(requested, now_ns), taken.ask.speed, int(time.time())
        )
        if taken.dialect is not wire_anthropic.DIALECT:
            told["openai-processing-ms"] = str(round((now_ns - taken.arrived_ns) / 1e6))
        return {**told, **_every(taken.http)}

    def _refuse(
        self,
        refusal: RefusedError,
        request: HttpRequest,
        connection: Connection,
        *,
        ask: Ask | None = None,
        tier_name: str = "",
        request_id: str = "",
    ) -> None:
        """Answer what is not served, in the shape of the API that was spoken to."""
        self._metrics.on_refusal(tier_name, refusal.status)
        dialect, request_id = _dialect_of(request.path, request.headers), request_id or self._new_id()
        quotas, speed = (), None
        if ask is not None:
            tier = self._desk.requested(ask.model, ask.service_tier, ask.speed)
            quotas, speed = self._desk.quotas(tier, self._clock.now_ns()), ask.speed
        told = dialect.headers(request_id, quotas, speed, int(time.time()))
        if refusal.retry_after_s is not None:
            told["retry-after"] = str(math.ceil(refusal.retry_after_s))
        if refusal.status == 405:
            told["allow"] = "POST" if request.path in (*DIALECTS, _COUNT_TOKENS) else "GET, HEAD"
        told["content-type"] = JSON
        self._reply(request, connection, refusal.status, dialect.refusal_body(refusal, request_id), told)

    def _answer_get(self, request: HttpRequest, connection: Connection) -> None:
        """Answer what is not asked of a model."""
        model = request.path.removeprefix(f"{_MODELS}/")
        answer = self._get.get(request.path)
        if answer is None and (model == request.path or not model):
            raise RefusedError(404, f"There is nothing at {request.path}", kind="not_found")
        _only(request, "GET", "HEAD")
        body, content_type = self._model(request, model) if answer is None else answer(request)
        self._reply(request, connection, 200, body, {"content-type": content_type})

    def _reply(
        self, request: HttpRequest, connection: Connection, status: int, body: bytes, told: dict[str, str]
    ) -> None:
        told = {**told, "content-length": str(len(body)), **_every(request)}
        connection.write(head(status, told) + (b"" if request.method == "HEAD" else body))
        connection.answered(keep=request.keep_alive)

    def _models(self, request: HttpRequest) -> tuple[bytes, str]:
        wire = wire_anthropic if "anthropic-version" in request.headers else wire_models
        return wire.models_body(self.config, self._created_unix_s), JSON

    def _model(self, request: HttpRequest, name: str) -> tuple[bytes, str]:
        wire = wire_anthropic if "anthropic-version" in request.headers else wire_models
        return wire.model_body(self.config, name, self._created_unix_s), JSON

    def _health(self, _request: HttpRequest) -> tuple[bytes, str]:
        self.check_lateness()
        late = self._late
        if late is None:
            return msgspec.json.encode({"status": "ok"}), JSON
        figures = msgspec.to_builtins(late)
        return msgspec.json.encode({"status": "late", "message": str(late), "late": figures}), JSON

    def _exposition(self, _request: HttpRequest) -> tuple[bytes, str]:
        self._clock.tick()
        self.check_lateness()
        self._metrics.engine_s = self._clock.engine_ns / 1e9
        return self._metrics.page(), metrics_text.CONTENT_TYPE

    def _new_id(self) -> str:
        """The id of the next request: 24 hexadecimal digits that follow from the seed and its number."""
        number, self._received = self._received, self._received + 1
        return blake2b(f"{self.config.seed}/{number}".encode(), digest_size=12).hexdigest()


def _only(request: HttpRequest, *methods: str) -> None:
    if request.method not in methods:
        told = f"{request.method} is not allowed at {request.path}; expected {' or '.join(methods)}"
        raise RefusedError(405, told, kind="method")


def _dialect_of(path: str, headers: dict[str, str]) -> Dialect:
    """In whose words a path is refused."""
    if path in DIALECTS:
        return DIALECTS[path]
    anthropic = path.startswith("/v1/messages") or "anthropic-version" in headers
    return wire_anthropic.DIALECT if anthropic else wire_chat.DIALECT


def _every(request: HttpRequest) -> dict[str, str]:
    """Fields of every head."""
    told = {"date": formatdate(usegmt=True)}
    if not request.keep_alive:
        told["connection"] = "close"
    elif not request.chunks:
        told["connection"] = "keep-alive"
    return told
