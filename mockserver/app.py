"""The mock server's routes: which API a request speaks, who serves it, and what becomes of its response.

No coroutines: a request is answered by calls that its client, the engines and the clock make.
"""

import math
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from hashlib import blake2b

import msgspec

from mockserver import (
    metrics_text,
    wire_anthropic,
    wire_chat,
    wire_completions,
    wire_models,
    wire_responses,
)
from mockserver.ask import Ask, Dialect, RefusedError
from mockserver.asking import Asking
from mockserver.config import ServerConfig, TierConfig
from mockserver.connection import Connection, Cork
from mockserver.desk import Desk
from mockserver.dispatch import Dispatch, StepSink
from mockserver.http_request import HttpRequest
from mockserver.http_response import JSON, head
from mockserver.outlet import Timing

DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": wire_chat.DIALECT,
    "/v1/completions": wire_completions.DIALECT,
    "/v1/responses": wire_responses.DIALECT,
    "/v1/messages": wire_anthropic.DIALECT,
}
_COUNT_TOKENS = "/v1/messages/count_tokens"
_MODELS = "/v1/models"


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
        self.cork = Cork()
        self._desk = Desk(config)
        self.dispatch = Dispatch(config, self.cork, step_log)
        self._clock, self._metrics = self.dispatch.clock, self.dispatch.metrics
        self._created_unix_s = int(time.time())
        self.say = say
        self._asking: Asking
        self._received = 0
        self._late = self.dispatch.lateness.verdict(0)
        self._get = {
            "/health": self._health,
            "/metrics": self._exposition,
            _MODELS: self._models,
        }

    def start(self, timing: Timing) -> None:
        """Let time begin."""
        self._asking = Asking(self.config, self._desk, self.dispatch, timing, _every)
        self._clock.start()

    def stop(self) -> None:
        """Let time end."""
        self._clock.stop()

    def check_lateness(self) -> None:
        """Say so once for each window in which this host was too slow; to be called about once a second."""
        late = self.dispatch.lateness.verdict(self._clock.now_ns())
        if late is not None and late is not self._late:
            self.say(f"{self.config.name}: {late}")
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
        except Exception as error:  # noqa: BLE001 (the edge: one request fails, and the others go on)
            self.say("".join(traceback.format_exception(error)))
            if connection.on_hang_up is None:
                failure = RefusedError(500, f"The server failed: {error!r}", kind="server")
                self._refuse(failure, request, connection)
            else:
                connection.abort()

    def refuse(
        self, refusal: RefusedError, path: str, headers: Mapping[str, str], connection: Connection
    ) -> None:
        """Write the answer to what is no whole request; the connection closes after it."""
        self._metrics.on_refusal("", refusal.status)
        body = _dialect_of(path, headers).refusal_body(refusal, self._new_id())
        told = {"content-type": JSON, "content-length": str(len(body)), "connection": "close"}
        connection.write(head(refusal.status, told) + body)

    def _ask(self, dialect: Dialect, request: HttpRequest, connection: Connection) -> None:
        request_id = self._new_id()
        coding = request.headers.get("content-encoding", "identity")
        if coding != "identity":
            raise RefusedError(415, f"content-encoding: {coding!r} is not allowed; expected none")
        ask = dialect.parse(request.body, request.headers, self.config.wire)
        try:
            self._asking.serve(dialect, ask, request, connection, request_id)
        except RefusedError as refusal:
            self._refuse(refusal, request, connection, request_id=request_id, ask=ask)

    def _refuse(
        self,
        refusal: RefusedError,
        request: HttpRequest,
        connection: Connection,
        *,
        request_id: str = "",
        ask: Ask | None = None,
    ) -> None:
        """Answer what is not served, in the shape of the API that was spoken to."""
        dialect, request_id = _dialect_of(request.path, request.headers), request_id or self._new_id()
        tier = None if ask is None else self._tier_of(ask)
        quotas = () if tier is None else self._desk.quotas(tier, self._clock.now_ns())
        self._metrics.on_refusal("" if tier is None else tier.name, refusal.status)
        told = dialect.headers(request_id, quotas, None if ask is None else ask.speed, int(time.time()))
        if refusal.retry_after_s is not None:
            told["retry-after"] = str(math.ceil(refusal.retry_after_s))
        if refusal.status == 405:
            told["allow"] = "POST" if request.path in (*DIALECTS, _COUNT_TOKENS) else "GET, HEAD"
        told["content-type"] = JSON
        self._reply(request, connection, refusal.status, dialect.refusal_body(refusal, request_id), told)

    def _tier_of(self, ask: Ask) -> TierConfig | None:
        """The tier that was asked for, if there is one."""
        try:
            return self._desk.requested(ask.model, ask.service_tier, ask.speed)
        except RefusedError:
            return None

    def _answer_get(self, request: HttpRequest, connection: Connection) -> None:
        """Answer what is not asked of a model."""
        answer = self._get.get(request.path)
        model = request.path.removeprefix(f"{_MODELS}/")
        if answer is None and not (model and request.path.startswith(f"{_MODELS}/")):
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


def _dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """In whose words a path is refused."""
    if path in DIALECTS:
        return DIALECTS[path]
    anthropic = path.startswith("/v1/messages") or "anthropic-version" in headers
    return wire_anthropic.DIALECT if anthropic else wire_chat.DIALECT


def _every(request: HttpRequest) -> dict[str, str]:
    """Fields of every head."""
    told = {"date": _date(int(time.time()))}
    if not request.keep_alive:
        told["connection"] = "close"
    elif not request.chunks:
        told["connection"] = "keep-alive"
    return told


@lru_cache(maxsize=1)
def _date(unix_s: int) -> str:
    """A second as HTTP writes it."""
    return formatdate(unix_s, usegmt=True)
