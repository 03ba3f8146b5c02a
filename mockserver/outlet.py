"""How the body of one response leaves: in chunks or not, compressed, in pieces, held back, drop by drop.

The order is: compress, cut into pieces, frame each as a chunk, and then wait. What has no effect on bytes or
time is not there: ``plain`` says that a body is only framed, which the caller may then do by itself.
"""

import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

from mockserver.connection import MAX_UNSENT_BYTES, Connection
from mockserver.http_response import LAST_CHUNK, chunk

_GZIP = 16 + zlib.MAX_WBITS


class Timing(Protocol):
    """What outlets and streams need of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> "Cancellable":
        """Call once, so many seconds from now."""


class Cancellable(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come."""


class Outlet:
    """The body of one response on its connection. ``send`` what there is, then ``end``."""

    def __init__(
        self,
        connection: Connection,
        timing: Timing,
        *,
        chunks: bool,
        split_bytes: int | None = None,
        gzip: bool = False,
        drip_s: float | None = None,
    ) -> None:
        self.connection = connection
        self.plain = chunks and split_bytes is None and not gzip and drip_s is None
        """Whether a body is framed as chunks and nothing else happens to it."""
        self._timing, self._chunks, self._drip_s = timing, chunks, drip_s
        self._piece_bytes = 1 if drip_s is not None else split_bytes
        self._squeeze = zlib.compressobj(wbits=_GZIP) if gzip else None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._pause: Cancellable | None = None
        self._then: Callable[[], None] | None = None

    def send(self, data: bytes) -> None:
        """Send a part of the body; empty ones are nothing."""
        if self._squeeze is not None and data:
            data = self._squeeze.compress(data) + self._squeeze.flush(zlib.Z_SYNC_FLUSH)
        for piece in self._pieces(data):
            self._put(chunk(piece) if self._chunks else piece)

    def end(self, data: bytes, then: Callable[[], None]) -> None:
        """Send the last part and end the body; ``then`` is called when all of it has left."""
        if self.plain and self._pause is None:
            self.connection.write((chunk(data) if data else b"") + LAST_CHUNK)
            then()
            return
        self.send(data)
        if self._squeeze is not None:
            rest = self._squeeze.flush()
            for piece in self._pieces(rest):
                self._put(chunk(piece) if self._chunks else piece)
        if self._chunks:
            self._put(LAST_CHUNK)
        if self._pause is None:
            then()
        else:
            self._then = then

    def hold(self, seconds: float) -> None:
        """Send nothing for a while; what falls due meanwhile goes at the end of it, in one piece."""
        self.plain = False
        self.drop_pause()
        self._pause = self._timing.call_later(seconds, self._release)

    def drop_pause(self) -> None:
        """Wait no longer, and send nothing for it: the client is gone, or the body is given up."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _pieces(self, data: bytes) -> list[bytes]:
        size = self._piece_bytes or len(data)
        return [data[start : start + size] for start in range(0, len(data), size)] if data else []

    def _put(self, framed: bytes) -> None:
        if self._pause is None:
            self.connection.write(framed)
            if self._drip_s is not None:
                self._pause = self._timing.call_later(self._drip_s, self._drop)
            return
        self._queue.append(framed)
        self._queued_bytes += len(framed)
        if self._queued_bytes > MAX_UNSENT_BYTES:
            self.connection.abort()

    def _release(self) -> None:
        """The stall is over."""
        self._pause = None
        if self._drip_s is not None:
            self._drop()
            return
        data = b"".join(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        if data:
            self.connection.write(data)
        self._over()

    def _drop(self) -> None:
        """Send the next drop."""
        self._pause = None
        if self._queue:
            framed = self._queue.popleft()
            self._queued_bytes -= len(framed)
            self._put(framed)
        else:
            self._over()

    def _over(self) -> None:
        if (then := self._then) is not None:
            self._then = None
            then()
