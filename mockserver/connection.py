"""The way out to one client: bytes are written straight to its socket, and nobody is waited for without end.

Writing to the socket and past the event loop is what makes tens of thousands of events a second possible.
What the socket does not take at once goes through the transport, and while that holds something all does.
Requests come in elsewhere (``http_server``); this is what answers them write to.
"""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_UNSENT_BYTES = 4 * 2**20
"""A client that falls further behind with reading is cut off."""
write_now = os.write
OnHangUp = Callable[[], None]
_LINGER_S = 2.0
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER without time: closing sends RST


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


class Connection:
    """Belongs to one client. ``on_hang_up`` is called if it goes away before its answer has ended.

    A client that is to be closed has ``patience_s`` to read what was sent.
    """

    def __init__(self, transport: asyncio.Transport, cork: Cork, *, patience_s: float) -> None:
        self.on_hang_up: OnHangUp | None = None
        self._transport, self._cork, self._patience_s = transport, cork, patience_s
        self._fd = transport.get_extra_info("socket").fileno()
        self._direct = True  # whether the transport holds nothing, so that the socket may be written to
        self._corked: list[bytes] = []
        self._closing = self._lost = False
        self._deadline: asyncio.TimerHandle | None = None
        self._answered: asyncio.Future[None] | None = None
        self._under_way = False

    @property
    def open(self) -> bool:
        """Whether what is written can still arrive."""
        return not self._closing

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

    def begin(self) -> None:
        """An answer is under way from here on, until ``answered``."""
        self._under_way = True

    def answered(self, *, keep: bool) -> None:
        """The answer is complete; ``keep`` no connection whose end is the end of the body."""
        self.on_hang_up = None
        if not keep:
            self.close()
        self._end()

    async def ended(self) -> None:
        """Wait until the answer that is under way has ended, in whatever way."""
        if self._under_way:
            self._answered = asyncio.get_running_loop().create_future()
            await self._answered
            self._answered = None

    def lost(self) -> None:
        """The client is gone: forget everything, and say so to who was answering."""
        self._closing, self._lost, self._direct = True, True, False
        self._forget_deadline()
        self._corked.clear()
        if (hang_up := self.on_hang_up) is not None:
            self.on_hang_up = None
            hang_up()
        self._end()

    def close(self) -> None:
        """Close once everything is sent, or is not read for too long."""
        self._flush_cork()
        if not self._closing:
            self._closing, self._direct = True, False
            self._transport.close()
            self._deadline = asyncio.get_running_loop().call_later(self._patience_s, self.abort)

    def hear_out(self) -> None:
        """Say that nothing more comes, and close after the client has stopped sending, or a while.

        Closing at once would reset the connection of a client that still sends, and with it the answer.
        """
        self._flush_cork()
        if not self._closing:
            self._closing, self._direct = True, False
            self._transport.resume_reading()
            self._deadline = asyncio.get_running_loop().call_later(_LINGER_S, self.abort)
            try:
                self._transport.write_eof()
            except OSError:  # the client is gone; the loop will tell
                self.abort()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._closing, self._direct = True, False
        self._forget_deadline()
        if not self._lost:
            self._transport.abort()

    def sever(self, *, reset: bool) -> None:
        """Close in the middle of something, in an orderly way or with RST."""
        if not reset:
            self.close()
            return
        self._flush_cork()
        if not self._lost:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.abort()

    def _write_later(self, data: bytes) -> None:
        transport = self._transport
        if self._closing or transport.is_closing():
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

    def _end(self) -> None:
        self._under_way = False
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
