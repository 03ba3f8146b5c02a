"""The mock server over HTTP: OpenAI's chat completions, models, health and metrics, on aiohttp.

Tokens are written straight to the connections' transports, those of all streams in one tick of the engine
driver; aiohttp frames the head and the end of a response and does everything else.
"""

import asyncio
import importlib
import importlib.util
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from mockserver import tiers, wire_openai
from mockserver.config import ServerConfig
from mockserver.engine import Job, StepDone
from mockserver.metrics import ServerMetrics
from mockserver.realtime import RealTime
from mockserver.wire_openai import ApiError, Reply
from tierscope.errors import BadInputError

_MAX_UNSENT_BYTES = 16 * 2**20  # a client that falls further behind with reading is cut off
_SSE_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class _Stream:
    """One response in the making: what a token does to its connection."""

    def __init__(self, reply: Reply, transport: asyncio.Transport | None, *, chunked: bool) -> None:
        self.reply, self._transport, self._chunked = reply, transport, chunked
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def token(self) -> None:
        if self._transport is not None:
            self._write(self._transport, self.reply.token_event())

    def finish(self) -> None:
        if self._transport is not None:
            self._write(self._transport, self.reply.last_events())
        if not self.done.done():
            self.done.set_result(None)

    def _write(self, transport: asyncio.Transport, data: bytes) -> None:
        if transport.is_closing():
            return
        transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            transport.abort()


class Server:
    """Routes of one mock server, and the streams in flight."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        engines = tiers.engines(config)
        capacities = {name: engine.limits.kv_tokens for name, engine in engines.items()}
        self._metrics = ServerMetrics(config.model_name, capacities)
        self._registry = CollectorRegistry()
        self._registry.register(self._metrics)
        self._clock = RealTime(engines, self._on_step)
        self._streams: dict[int, _Stream] = {}
        self._jobs = 0
        self._created_unix_s = int(time.time())

    def application(self) -> web.Application:
        """The aiohttp application; its engines run from start-up to clean-up."""
        app = web.Application(client_max_size=self.config.max_body_bytes, middlewares=[_errors_as_openai])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._exposition)
        app.cleanup_ctx.append(self._running)
        return app

    async def _running(self, _app: web.Application) -> AsyncIterator[None]:
        self._clock.start()
        yield
        self._clock.stop()

    def _on_step(self, tier_name: str, step: StepDone, lag_ns: int) -> None:
        self._metrics.on_step(tier_name, step, lag_ns)
        streams = self._streams
        for job_id in step.emitted:
            if (stream := streams.get(job_id)) is not None:  # None: its client hung up after this step
                stream.token()
        for finished in step.finished:
            if (stream := streams.pop(finished.job.id, None)) is not None:
                self._metrics.on_end(tier_name, stream.reply.admitted.finish_reason)
                stream.finish()

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        admitted = wire_openai.admit(wire_openai.parse(await request.read()), self.config)
        job_id, self._jobs = self._jobs, self._jobs + 1
        reply = Reply(admitted, self.config, job_id=job_id, created_unix_s=int(time.time()))
        headers = {"X-Request-Id": request.headers.get("X-Request-Id", reply.request_id)}
        if not admitted.stream:
            await self._serve(_Stream(reply, None, chunked=False))
            return web.Response(body=reply.body(), content_type="application/json", headers=headers)
        response = web.StreamResponse(headers={**_SSE_HEADERS, **headers})
        await response.prepare(request)
        await response.write(reply.role_event())
        chunked = request.version >= (1, 1)
        await self._serve(_Stream(reply, request.transport, chunked=chunked))
        await response.write_eof()
        return response

    async def _serve(self, stream: _Stream) -> None:
        """Run a stream to its end; a client that hangs up cancels this, and with it the job."""
        admitted, job_id = stream.reply.admitted, stream.reply.job_id
        job = Job(job_id, admitted.prompt_tokens, admitted.output_tokens)
        self._streams[job_id] = stream
        try:
            self._clock.submit(admitted.tier.name, job)
            await stream.done
        finally:
            if self._streams.pop(job_id, None) is not None:
                self._clock.cancel(admitted.tier.name, job_id)
                self._metrics.on_end(admitted.tier.name, "abort")

    async def _models(self, _request: web.Request) -> web.Response:
        body = wire_openai.models_body(self.config, self._created_unix_s)
        return web.Response(body=body, content_type="application/json")

    async def _health(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _exposition(self, _request: web.Request) -> web.Response:
        self._clock.tick()
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )


def serve(config: ServerConfig, *, host: str, port: int, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` gets the URL once the port is open (0: any free one).

    Raises BadInputError, in one line, if the address cannot be bound.
    """
    listener = _listen(host, port)
    with listener, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(config, listener, ready))


async def _serve(config: ServerConfig, listener: socket.socket, ready: Callable[[str], None] | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    runner = web.AppRunner(
        Server(config).application(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener, backlog=1024).start()
        if ready is not None:
            ready(_url(listener))
        await stopping.wait()
    finally:
        await runner.cleanup()


@web.middleware
async def _errors_as_openai(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer refusals, ours and aiohttp's, in OpenAI's error shape."""
    try:
        return await handler(request)
    except ApiError as error:
        refusal = error
    except ConnectionError:  # the client is gone: nobody is there to be answered, and nothing of ours failed
        return web.Response(status=499)
    except web.HTTPRequestEntityTooLarge as error:
        refusal = ApiError(413, f"The body is too large: {error.text or error.reason}")
    except web.HTTPException as error:
        if error.status < 400:
            raise
        refusal = ApiError(error.status, f"{error.reason}: {request.method} {request.path}")
    body = wire_openai.error_body(refusal)
    return web.Response(status=refusal.status, body=body, content_type="application/json")


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise BadInputError(f"--port: {port} is not allowed; expected 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the address is named already
        raise BadInputError(f"--host, --port: {host}:{port} cannot be listened on: {reason}") from error


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Use uvloop where it is installed; it is not a dependency."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory
