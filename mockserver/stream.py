"""A streamed response in flight: tokens of its answers become events, and faults strike between them.

Rules for whoever edits this file:

1. An event is made from a token when the token is there, never before.
2. Once it is over nothing more is written, whoever ended it; ``on_over`` is called then, exactly once.
3. A stream that nothing befalls takes the short way in ``tokens``: it is gone sixty thousand times a second.
"""

from collections.abc import Callable

from mockserver import faults
from mockserver.answering import Answering
from mockserver.ask import Voice
from mockserver.connection import Connection
from mockserver.faults import GARBAGE, Struck
from mockserver.http_response import EVENT_STREAM, head
from mockserver.job import Finished, Started
from mockserver.outlet import Cancellable, Outlet, Timing
from mockserver.response import Headers, How, OnOver
from mockserver.wire_config import Fault, Wire

_NAMED_GARBAGE = b"event: content_block_delta\n" + GARBAGE  # Anthropic's client skips events without a name


class Streamed:
    """An answer in events."""

    def __init__(
        self,
        voice: Voice,
        answering: Answering,
        connection: Connection,
        timing: Timing,
        *,
        wire: Wire,
        struck: Struck,
        chunks: bool,
        on_break: Callable[[], None],
        on_over: OnOver,
    ) -> None:
        self.answering = answering
        self._voice, self._struck, self._on_over, self._timing = voice, struck, on_over, timing
        self._on_break = on_break  # a fault ends it: its jobs need not go on while what was sent drips out
        self._connection, self._write, self._say = connection, connection.write, voice.tokens
        self._outlet = Outlet(
            connection,
            timing,
            chunks=chunks,
            split_bytes=wire.split_bytes,
            gzip=struck.gzip,
            drip_s=struck.drip_s,
        )
        self._chunks, self._per_event, self._ping_s = chunks, wire.tokens_per_event, wire.ping_s
        self._gathered = [0] * len(answering.placed.answers)
        self._sent_tokens = 0
        self._strikes = _strikes(struck, answering.total_tokens)
        self._opened = self._over = self._ended = self._short = False
        self._ping: Cancellable | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing will be written any more."""
        return self._over

    def begin(self, headers: Headers) -> None:
        """Send the head and what follows it at once."""
        told = {"content-type": EVENT_STREAM, "cache-control": "no-cache", **headers()}
        if self._chunks:
            told["transfer-encoding"] = "chunked"
        if self._struck.gzip:
            told["content-encoding"] = "gzip"
        self._write(head(200, told))
        self._outlet.send(self._voice.greeting())
        if self._ping_s is not None and self._voice.ping():
            self._ping = self._timing.call_later(self._ping_s, self._send_ping)

    def started(self, place: int, job: Started) -> None:
        """An answer is about to get its first token."""
        self.answering.started(place, job)

    def tokens(self, place: int, count: int) -> None:
        """An answer got so many tokens."""
        self.answering.generated_tokens += count
        if self._short:
            data = self._say(place, count)
            if data:
                self._write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        if self._ended:
            return
        if not self._opened:
            self._opened = True
            self._outlet.send(self._voice.opening(self.answering.usage()))
        gathered = self._gathered[place] = self._gathered[place] + count
        if gathered >= self._per_event and self._event(place):
            self._short = self._per_event == 1 and not self._strikes and self._outlet.plain

    def finished(self, place: int, job: Finished) -> None:
        """An answer has all its tokens."""
        if self._ended:
            return
        self.answering.finished(job)
        if self._gathered[place] and not self._event(place):
            return
        with_end = not self._struck.no_end
        data = self._voice.choice_end(place) if with_end else b""
        if not self.answering.over:
            self._outlet.send(data)
            return
        with_usage = not self._struck.no_usage
        data += self._voice.closing(self.answering.usage(), with_usage=with_usage, with_end=with_end)
        self._end(data, "done")

    def gone(self) -> None:
        """The client has hung up."""
        self._stop()
        self._outlet.drop_pause()
        self._tell("gone")

    def _event(self, place: int) -> bool:
        """Send what is gathered of an answer, after whatever strikes before it; False if that was the end."""
        count, self._gathered[place] = self._gathered[place], 0
        while self._strikes and self._sent_tokens + count > self._strikes[0][0]:
            self._strike(self._strikes.pop(0)[1])
            if self._ended:
                return False
        self._sent_tokens += count
        self._outlet.send(self._say(place, count))
        return True

    def _strike(self, fault: Fault) -> None:
        if fault.kind == "stall":
            self._outlet.hold(fault.wait_s)
        elif fault.kind == "garbage":
            self._outlet.send(_NAMED_GARBAGE)
        elif fault.kind == "stream_error":
            self._on_break()
            self._end(self._voice.error(faults.refusal(fault)), "broken")
        else:
            self._stop()
            self._outlet.drop_pause()
            self._connection.sever(reset=fault.kind == "reset")
            self._tell("broken")

    def _end(self, data: bytes, how: How) -> None:
        """Nothing comes after ``data``; it is over once that has left."""
        self._stop()
        self._outlet.end(data, lambda: self._tell(how))

    def _stop(self) -> None:
        self._ended, self._short = True, False
        if self._ping is not None:
            self._ping.cancel()
            self._ping = None

    def _tell(self, how: How) -> None:
        if not self._over:
            self._over = True
            self._on_over(how)

    def _send_ping(self) -> None:
        assert self._ping_s is not None
        self._outlet.send(self._voice.ping())
        self._ping = self._timing.call_later(self._ping_s, self._send_ping)


def _strikes(struck: Struck, total_tokens: int) -> list[tuple[int, Fault]]:
    """Faults in the middle of a stream, with the tokens that go before each; a break last of its equals."""
    found = [fault for fault in (struck.garbage, struck.stall, struck.breaks) if fault is not None]
    return sorted(((faults.strikes_at(fault, total_tokens), fault) for fault in found), key=lambda at: at[0])
