"""Requests from clients: aiohttp accepts, parses and keeps connections; answers go past it (``connection``).

Rules for whoever edits this file:

1. aiohttp writes nothing. What it would say of a bad request is said in the shape of our APIs.
2. Nobody is waited for without a deadline: not for a request, not for a body, not for a reader.
3. Who is answered while still sending is heard out, or a reset would overtake the answer.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol, cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_exceptions import LineTooLong

from mockserver.ask import RefusedError
from mockserver.connection import Connection, Cork
from mockserver.http_request import HttpRequest

IDLE_S = 600.0
"""A connection that was of use may be used again for so long."""
_END_S = 5.0
_END_GRACE_S = 0.25  # after which a request that was there when its client fell silent is in hand
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Service(Protocol):
    """Who answers."""

    def handle(self, request: HttpRequest, connection: Connection) -> None:
        """Answer a request, at once or later, and call ``connection.answered()`` at the end."""

    def refuse(
        self, refusal: RefusedError, path: str, headers: Mapping[str, str], connection: Connection
    ) -> None:
        """Write the answer to what is no whole request; the connection closes after it."""


class HttpServer:
    """Clients of a service. ``accept`` is a protocol factory for the event loop that runs."""

    def __init__(self, service: Service, cork: Cork, *, max_body_bytes: int, body_timeout_s: float) -> None:
        self._service, self._cork = service, cork
        self._max_body_bytes, self._body_timeout_s = max_body_bytes, body_timeout_s
        self._loop = asyncio.get_running_loop()
        self._clients = web.Server(_answer)

    def accept(self) -> "Client":
        """What reads the requests of a client that has connected."""
        return Client(
            self._clients,
            self._loop,
            self._service,
            self._cork,
            max_body_bytes=self._max_body_bytes,
            body_timeout_s=self._body_timeout_s,
        )

    async def close(self) -> None:
        """Cut everybody off."""
        for client in self._clients.connections:
            cast("Client", client).connection.abort()
        await self._clients.shutdown(_END_S)


class Client(web.RequestHandler):
    """What one client asks, one request after the other."""

    def __init__(
        self,
        clients: web.Server,
        loop: asyncio.AbstractEventLoop,
        service: Service,
        cork: Cork,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
    ) -> None:
        super().__init__(
            clients, loop=loop, keepalive_timeout=IDLE_S, lingering_time=0, auto_decompress=False
        )
        self.connection: Connection
        self._event_loop, self._service, self._cork = loop, service, cork
        self._max_body_bytes, self._body_timeout_s = max_body_bytes, body_timeout_s
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = False  # whether bytes have come that are of no request yet
        self._incoming: web.BaseRequest | None = None  # whose body is on its way
        self._busy = self._refused = self._ended = False
        self._lost: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        super().connection_made(transport)
        socket_like = cast("asyncio.Transport", transport)  # uvloop's is one in all but its bases
        self.connection = Connection(socket_like, self._cork, patience_s=self._body_timeout_s)
        self._set_deadline()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget everything."""
        self._forget_deadline()
        self.connection.lost()
        super().connection_lost(exc)
        if not self._lost.done():
            self._lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Take what one read brought; the first of a request gives it its deadline."""
        if data and not self._begun and self._incoming is None:
            self._begun = True
            if not self._busy:
                self._set_deadline()
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio wants to know whether to stay open
        """Refuse a request that was not finished; otherwise a client that says no more has hung up."""
        if (request := self._incoming) is not None:
            self._refuse(_cut_off(request))
        elif self._begun and not self._busy:  # it may be whole, and not in hand yet
            self._ended = True
            self._set_deadline(_END_GRACE_S)
        return self._ended

    def force_close(self) -> None:
        """Close once everything is sent, or is not read for too long."""
        self.connection.close()
        super().force_close()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 (aiohttp's stand-in)
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp could not parse, or what failed in here."""
        if status == 400:
            status = 431 if isinstance(exc, LineTooLong) else 400
            told = " ".join((message or "").partition("\n\n")[0].split()).rstrip(":")  # without the bytes
            self._refuse(RefusedError(status, f"The request is no HTTP: {told}"))
        else:
            self.log_exception("A request failed", exc_info=exc)
            self._refuse(RefusedError(500, f"The server failed: {exc!r}", kind="server"))
        return _LAST

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Read a request to its end and have it answered."""
        if not self.connection.open:
            return _LAST
        connection = self.connection
        self._take(request)
        try:
            asked = await self._read(request)
        except RefusedError as refusal:
            self._refuse(refusal)
        except ConnectionError:
            pass
        else:
            connection.begin()
            self._service.handle(asked, connection)
            if self._ended:
                connection.close()
            await connection.ended()
        finally:
            self._rest()
        return _KEPT if connection.open else _LAST

    async def heard_out(self) -> None:
        """Wait until a client that was refused is gone."""
        if self._refused:
            await self._lost

    def _take(self, request: web.BaseRequest) -> None:
        self._begun, self._busy, self._incoming = False, True, request

    def _rest(self) -> None:
        """Wait for the next request; it may have begun, by a client that did not wait for its answer."""
        self._busy, self._incoming = False, None
        if self._begun and self.connection.open:
            self._set_deadline()

    async def _read(self, request: web.BaseRequest) -> HttpRequest:
        content, most = request.content, self._max_body_bytes
        if request.method == "CONNECT":
            raise RefusedError(400, "This server switches to no other protocol")
        if (request.content_length or 0) > most:
            raise _too_large(f"declares {request.content_length} bytes", most)
        if not content.is_eof():
            if self._ended:
                raise _cut_off(request)
            if self._deadline is None:
                self._set_deadline()
            if request.headers.get("expect", "").lower() == "100-continue":
                self.connection.write(_CONTINUE)
        body = bytearray()
        while data := await content.readany():
            body += data
            if len(body) > most:
                raise _too_large(f"has more than {most} bytes", most)
        if not self.connection.open:
            raise ConnectionResetError
        self._forget_deadline()
        self._incoming = None
        return HttpRequest(
            method=request.method,
            path=request.path,
            headers=request.headers,
            body=bytes(body),
            keep_alive=request.keep_alive,
            chunks=request.version >= HttpVersion11,
        )

    def _refuse(self, refusal: RefusedError) -> None:
        """Answer what is no whole request, and read no more."""
        if self._refused or not self.connection.open:
            return
        self._refused = True
        self._forget_deadline()
        path, headers = "", cast("Mapping[str, str]", {})
        if (request := self._incoming) is not None:
            path, headers = request.path, request.headers
            request.content.set_exception(ConnectionResetError())
        self._service.refuse(refusal, path, headers, self.connection)
        self.close()
        self.connection.hear_out()

    def _timed_out(self) -> None:
        """What was awaited has not come."""
        self._deadline = None
        if self._ended and self._incoming is None:
            self._refuse(RefusedError(400, "The request ended in the middle of its head"))
        elif self._begun or self._incoming is not None:
            limit_s = self._body_timeout_s
            self._refuse(RefusedError(408, f"The request was not whole within {limit_s:g} s", kind="timeout"))
        else:
            self.force_close()

    def _set_deadline(self, after_s: float | None = None) -> None:
        self._forget_deadline()
        wait_s = self._body_timeout_s if after_s is None else after_s
        self._deadline = self._event_loop.call_later(wait_s, self._timed_out)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class _Sent(web.StreamResponse):
    """Stands for an answer that has gone past aiohttp, whose bytes are not to be written again."""

    def __init__(self, *, keep: bool) -> None:
        super().__init__()
        self._keep = keep

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection serves another request."""
        return self._keep

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Write no head; a client that was refused is heard out."""
        await cast("Client", request.protocol).heard_out()
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        """Write no end."""


_KEPT, _LAST = _Sent(keep=True), _Sent(keep=False)


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    return await cast("Client", request.protocol).answer(request)


def _cut_off(request: web.BaseRequest) -> RefusedError:
    came, declared = request.content.total_bytes, request.content_length
    of = "" if declared is None else f" of the {declared} it declared"
    return RefusedError(400, f"The request ended in the middle, after {came} bytes of body{of}")


def _too_large(what: str, most: int) -> RefusedError:
    return RefusedError(413, f"The body {what}; at most {most} are allowed", kind="too_large")
