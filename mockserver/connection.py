"""One client's connection: requests in, one after the other, bytes out, and how long anything may take.

Bytes are written straight to the socket, which is what makes tens of thousands of events a second possible.
What the socket does not take at once goes through the transport, and while that holds something all does.
Rules for whoever edits this file:

1. A request waits until the one before it has been answered; at most one read of them is held meanwhile.
2. Nobody is waited for without a deadline: not for a request, not for a body, not for a reader.
3. Who is answered while still sending is listened to a little longer: closing at once would reset the
   connection, and the answer with it.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from mockserver.ask import RefusedError
from mockserver.http_request import HttpRequest, RequestFramer

MAX_UNSENT_BYTES = 4 * 2**20
"""A client that falls further behind with reading is cut off."""
write_now = os.write
_IDLE_S = 600.0  # a connection that was of use may be used again for so long
_LINGER_S = 2.0
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER without time: closing sends RST


class Service(Protocol):
    """Who answers."""

    def handle(self, request: HttpRequest, connection: "Connection") -> None:
        """Answer a request, at once or later, and call ``connection.answered()`` at the end."""

    def refuse(
        self, refusal: RefusedError, path: str, headers: dict[str, str], connection: "Connection"
    ) -> None:
        """Write the answer to what is no whole request; the connection closes after it."""


@dataclass(slots=True)
class Cork:
    """Holds back what is written while ``closed``, so that each connection gets it in one piece."""

    closed: bool = False
    held: list["Connection"] = field(default_factory=list)

    def open(self) -> None:
        """Let everything go."""
        self.closed = False
        for connection in self.held:
            connection.uncork()
        self.held.clear()


class Connection(asyncio.Protocol):
    """Belongs to one client. ``on_hang_up`` is called if it goes away before its answer has ended."""

    def __init__(self, service: Service, cork: Cork, *, max_body_bytes: int, body_timeout_s: float) -> None:
        self.on_hang_up: Callable[[], None] | None = None
        self._service, self._cork, self._body_timeout_s = service, cork, body_timeout_s
        self._framer = RequestFramer(max_body_bytes)
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._fd = -1
        self._direct = False  # whether the transport holds nothing, so that the socket may be written to
        self._corked: list[bytes] = []
        self._request: HttpRequest | None = None  # the one that is being answered
        self._deaf = self._closing = self._in_next = False

    @property
    def open(self) -> bool:
        """Whether what is written can still arrive."""
        return self._transport is not None and not self._closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its bases
        self._fd = self._transport.get_extra_info("socket").fileno()
        self._direct = True
        self._set_deadline(self._body_timeout_s, self._timed_out)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (however it was lost)
        """Forget everything, and say so to who was answering."""
        self._transport, self._direct, self._closing = None, False, True
        self._forget_deadline()
        self._corked.clear()
        if (hang_up := self.on_hang_up) is not None:
            self.on_hang_up = None
            hang_up()

    def data_received(self, data: bytes) -> None:
        """Take what one read brought."""
        if self._deaf or self._closing or self._transport is None:
            return
        framer = self._framer
        began = framer.begun
        framer.receive(data)
        if self._request is not None:
            if framer.requests:
                self._transport.pause_reading()
            return
        if framer.begun and not framer.requests and (not began or framer.wants_continue):
            self._wait()
        self._next()

    def eof_received(self) -> bool | None:
        """Refuse a request that was not finished; otherwise a client that says no more has hung up."""
        if self._request is None and not self._deaf:
            self._framer.end()
            self._deaf = True
            self._next()
        return None

    def write(self, data: bytes) -> None:
        """Send bytes as soon as may be; to a client that is gone, nothing."""
        if self._cork.closed:
            if not self._corked:
                self._cork.held.append(self)
            self._corked.append(data)
            return
        if self._direct:
            try:
                sent = write_now(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:  # the client is gone; the loop will tell
                self.abort()
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._write_later(data)

    def uncork(self) -> None:
        """Send what was held back."""
        data = b"".join(self._corked)
        self._corked.clear()
        if data:
            self.write(data)

    def answered(self, *, keep: bool) -> None:
        """The answer is complete: on to the next request, or ``keep`` no connection that ends the body."""
        self._request, self.on_hang_up = None, None
        if not keep:
            self.close()
        elif not self._in_next and not self._closing and self._transport is not None:
            self._transport.resume_reading()
            self._wait()
            self._next()

    def close(self, *, hear_out: bool = False) -> None:
        """Close once everything is sent; ``hear_out``: after the client has stopped sending, for a while."""
        self._flush_cork()
        transport = self._transport
        if transport is None or self._closing:
            return
        if hear_out and not self._deaf and transport.can_write_eof():
            self._deaf, self._direct = True, False
            transport.resume_reading()
            transport.write_eof()
            self._set_deadline(_LINGER_S, self.abort)
            return
        self._closing, self._direct = True, False
        transport.close()
        self._set_deadline(self._body_timeout_s, self.abort)  # for a client that does not read

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._closing, self._direct = True, False
        self._forget_deadline()
        if self._transport is not None:
            self._transport.abort()

    def sever(self, *, reset: bool) -> None:
        """Close in the middle of something, in an orderly way or with RST."""
        if not reset:
            self.close()
            return
        self._flush_cork()
        if self._transport is not None:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.abort()

    def _write_later(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._closing or transport.is_closing():
            return
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.abort()
            return
        transport.write(data)
        self._direct = transport.get_write_buffer_size() == 0

    def _flush_cork(self) -> None:
        if self._corked:
            closed, self._cork.closed = self._cork.closed, False
            self.uncork()
            self._cork.closed = closed

    def _next(self) -> None:
        """Have what came answered, as far as it can be at once."""
        framer, self._in_next, served = self._framer, True, False
        while self._request is None and framer.requests and not self._closing:
            request, served = framer.requests.popleft(), True
            self._request = request
            self._set_deadline(_IDLE_S, self._timed_out)
            self._service.handle(request, self)
        self._in_next = False
        if self._request is not None or self._closing:
            return
        if framer.failure is not None:
            self._refuse(framer.failure)
        elif served:
            self._wait()

    def _wait(self) -> None:
        """Give the client time for what it has begun, and leave to go on; or for its next request."""
        framer = self._framer
        if framer.wants_continue:
            framer.wants_continue = False
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._set_deadline(self._body_timeout_s if framer.begun else _IDLE_S, self._timed_out)

    def _refuse(self, refusal: RefusedError) -> None:
        self._service.refuse(refusal, self._framer.path, self._framer.headers, self)
        self.close(hear_out=True)

    def _timed_out(self) -> None:
        """Nothing is under way, and nothing has come for too long."""
        if self._request is not None:
            return
        if self._framer.begun:
            limit_s = self._body_timeout_s
            self._refuse(RefusedError(408, f"The request was not whole within {limit_s:g} s", kind="timeout"))
        else:
            self.close()

    def _set_deadline(self, after_s: float, then: Callable[[], None]) -> None:
        self._forget_deadline()
        self._deadline = self._loop.call_later(after_s, then)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
