"""What the pieces of a response say, folded together: all JSON of a run is read here. Pure.

Rules for whoever edits this file:

1. An event is stamped with the piece that ended it, whoever reads it and when.
2. Nothing is counted after an error or damage.
"""

from dataclasses import dataclass, field

from loadtest.delta import UNREADABLE, Delta, Usage, folded
from loadtest.exchange import Exchange
from loadtest.records import EventKind
from loadtest.sse import EventReader, EventTooLargeError
from loadtest.wire import Wire


@dataclass(slots=True)
class Reading:
    """Everything that the events of one response said, folded together."""

    event_ns: list[int] = field(default_factory=list)
    kinds: list[EventKind] = field(default_factory=list)
    totals: list[int | None] = field(default_factory=list)
    """Output tokens so far, as each output event itself told them (continuous usage); None: it was silent."""
    coalesced: int = 0
    first_text_ns: int | None = None
    terminal: bool = False
    finish_reason: str | None = None
    echoed_tier: str | None = None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    damage: str | None = None

    def add(self, delta: Delta, stamp_ns: int) -> None:
        """Fold one event in; after an error nothing more is counted."""
        if self.error is not None:
            return
        if delta.kind is not None:
            self.event_ns.append(stamp_ns)
            self.kinds.append(delta.kind)
            self.totals.append(delta.usage.output_tokens if delta.usage else None)
            if delta.text and self.first_text_ns is None:
                self.first_text_ns = stamp_ns
        self.terminal = self.terminal or delta.terminal
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.echoed_tier = delta.echoed_tier or self.echoed_tier
        self.error = delta.error
        if delta.usage is not None:
            self.usage = _later(self.usage, delta.usage)


def read(exchange: Exchange, wire: Wire) -> Reading:
    """Read the body of a response: an event stream, or a whole JSON document that was not streamed.

    The content type decides, or the first character where a server gives none that is known.
    """
    content_type = exchange.headers.get("content-type", "")
    if "event-stream" in content_type:
        return _read_stream(exchange, wire)
    start = next((piece.lstrip()[:1] for _, piece in exchange.pieces if not piece.isspace()), b"")
    if "json" in content_type or start in (b"{", b"["):
        return _read_whole(exchange, wire)
    return _read_stream(exchange, wire)


def _read_stream(exchange: Exchange, wire: Wire) -> Reading:
    reading, reader, read_event = Reading(), EventReader(), wire.read_event
    for stamp_ns, piece in exchange.pieces:
        before = len(reading.event_ns)
        try:
            for name, data in reader.receive(piece):
                reading.add(read_event(name, data), stamp_ns)
        except (*UNREADABLE, EventTooLargeError) as error:
            reading.damage = folded(f"unreadable event: {error}")
        reading.coalesced += max(0, len(reading.event_ns) - before - 1)
        if reading.damage or reading.error:
            break
    return reading


def _read_whole(exchange: Exchange, wire: Wire) -> Reading:
    reading = Reading()
    if exchange.ending != "complete":
        return reading
    try:
        reading.add(wire.read_body(body_bytes(exchange)), exchange.pieces[-1][0] if exchange.pieces else 0)
    except UNREADABLE as error:
        reading.damage = folded(f"unreadable response: {error}")
    return reading


def body_bytes(exchange: Exchange) -> bytes:
    """The whole body."""
    return b"".join(piece for _, piece in exchange.pieces)


def _later(before: Usage, after: Usage) -> Usage:
    """Usage is cumulative: each later figure replaces the earlier one, and silence leaves it."""
    return Usage(
        prompt_tokens=_or(after.prompt_tokens, before.prompt_tokens),
        output_tokens=_or(after.output_tokens, before.output_tokens),
        cached_tokens=_or(after.cached_tokens, before.cached_tokens),
        cache_write_tokens=_or(after.cache_write_tokens, before.cache_write_tokens),
    )


def _or(value: int | None, otherwise: int | None) -> int | None:
    return otherwise if value is None else value
