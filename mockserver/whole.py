"""A response that is not streamed: one body once all its answers are there, and what faults make of it.

An error inside a stream and a missing end are faults of streams alone; garbage is a body without its last
byte; what breaks off or stalls does so in the middle.
"""

import gzip

import msgspec

from mockserver.answering import Answering
from mockserver.ask import Voice
from mockserver.connection import Connection
from mockserver.faults import Struck
from mockserver.http_response import JSON, head
from mockserver.job import Finished, Started
from mockserver.outlet import Outlet, Timing
from mockserver.response import Headers, How, OnOver


class Whole:
    """An answer in one body."""

    def __init__(
        self,
        voice: Voice,
        answering: Answering,
        connection: Connection,
        timing: Timing,
        *,
        struck: Struck,
        on_over: OnOver,
    ) -> None:
        self.answering = answering
        self._voice, self._connection, self._struck, self._on_over = voice, connection, struck, on_over
        self._outlet = Outlet(connection, timing, chunks=False, drip_s=struck.drip_s)
        self._headers: Headers = dict
        self._over = False

    @property
    def is_over(self) -> bool:
        """Whether nothing will be written any more."""
        return self._over

    def begin(self, headers: Headers) -> None:
        """Keep what makes the head's fields until there is a body."""
        self._headers = headers

    def started(self, place: int, job: Started) -> None:
        """An answer is about to get its first token."""
        self.answering.started(place, job)

    def tokens(self, place: int, count: int) -> None:  # noqa: ARG002 (all count alike)
        """An answer got so many tokens."""
        self.answering.generated_tokens += count

    def finished(self, place: int, job: Finished) -> None:  # noqa: ARG002 (the last one counts)
        """An answer has all its tokens; the last one's end sends the body."""
        self.answering.finished(job)
        if not self.answering.over or self._over:
            return
        struck, told = self._struck, {"content-type": JSON, **self._headers()}
        body = self._voice.body(self.answering.usage())
        body = _without_usage(body) if struck.no_usage else body
        body = body[:-1] if struck.garbage is not None else body
        if struck.gzip:
            body, told["content-encoding"] = gzip.compress(body, mtime=0), "gzip"
        told["content-length"] = str(len(body))
        self._connection.write(head(200, told))
        self._send(body)

    def gone(self) -> None:
        """The client has hung up."""
        self._outlet.drop_pause()
        self._tell("gone")

    def _send(self, body: bytes) -> None:
        half, breaks = len(body) // 2, self._struck.breaks
        if breaks is not None and breaks.kind != "stream_error":
            self._outlet.send(body[:half])
            self._outlet.drop_pause()
            self._connection.sever(reset=breaks.kind == "reset")
            self._tell("broken")
            return
        if (stall := self._struck.stall) is not None:
            self._outlet.send(body[:half])
            self._outlet.hold(stall.wait_s)
            body = body[half:]
        self._outlet.end(body, lambda: self._tell("done"))

    def _tell(self, how: How) -> None:
        if not self._over:
            self._over = True
            self._on_over(how)


def _without_usage(body: bytes) -> bytes:
    document = msgspec.json.decode(body)
    document.pop("usage", None)
    return msgspec.json.encode(document)
