"""What the pieces of a response say, folded together: all JSON of a run is read here. Pure.

Rules for whoever edits this file:

1. An event is stamped with the piece that ended it, whoever reads it and when.
2. Nothing is counted after an error or damage; what was whole before it counts.
3. Of an answer that was not streamed no token has an instant of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from loadtest.delta import DONE, Delta, Usage, folded
from loadtest.exchange import Exchange
from loadtest.records import EventKind
from loadtest.regular import regular
from loadtest.sse import Event, EventReader, EventTooLargeError
from loadtest.unreadable import UNREADABLE
from loadtest.wire import Wire


@dataclass(slots=True)
class Reading:
    """Everything that the events of one response said, folded together."""

    event_ns: list[int] = field(default_factory=list)
    """Arrival of each event that carried output."""
    kind_starts: list[tuple[EventKind, int]] = field(default_factory=list)
    """Which kind of output begins at which place of ``event_ns``."""
    totals: list[int] = field(default_factory=list)
    """Output tokens so far, from each output event that told them itself (continuous usage)."""
    coalesced: int = 0
    first_text_ns: int | None = None
    terminal: bool = False
    finish_reason: str | None = None
    echoed_tier: str | None = None
    usage: Usage = field(default_factory=Usage)
    error: str | None = None
    damage: str | None = None
    streamed: bool = True
    """False for one JSON document; the only instant is then that of its last byte."""

    def add(self, delta: Delta, stamp_ns: int) -> None:
        """Fold one event in; after an error nothing more is counted."""
        if self.error is not None:
            return
        if delta.kind is not None:
            self._add_output(delta.kind, stamp_ns)
            if delta.usage is not None and delta.usage.output_tokens is not None:
                self.totals.append(delta.usage.output_tokens)
        self.terminal = self.terminal or delta.terminal
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.echoed_tier = delta.echoed_tier or self.echoed_tier
        self.error = delta.error
        if delta.usage is not None:
            self.usage = self.usage.then(delta.usage)

    def _add_output(self, kind: EventKind, stamp_ns: int) -> None:
        if not self.kind_starts or self.kind_starts[-1][0] != kind:
            self.kind_starts.append((kind, len(self.event_ns)))
        if kind == "text" and self.first_text_ns is None:
            self.first_text_ns = stamp_ns
        self.event_ns.append(stamp_ns)

    def kind_runs(self) -> list[tuple[EventKind, int]]:
        """Run lengths of kinds over ``event_ns``."""
        ends = [*(start for _, start in self.kind_starts[1:]), len(self.event_ns)]
        return [(kind, end - start) for (kind, start), end in zip(self.kind_starts, ends, strict=False)]

    def event_tokens(self) -> list[int] | None:
        """Tokens each event brought, if every output event told the total so far and totals never fell."""
        totals = self.totals
        if not totals or len(totals) != len(self.event_ns):
            return None
        brought = [after - before for before, after in zip([0, *totals], totals, strict=False)]
        return brought if min(brought) >= 0 else None


def read(exchange: Exchange, wire: Wire) -> Reading:
    """Read the body of a response: an event stream, or a whole JSON document that was not streamed."""
    if not is_stream(exchange):
        return _read_whole(exchange, wire)
    return _read_regular(exchange, wire) or _read_stream(exchange, wire)


def answer(exchange: Exchange, wire: Wire) -> str:
    """The visible text of an answer, as far as it came and can be read."""
    try:
        if not is_stream(exchange):
            return wire.read_body(body_bytes(exchange)).text
    except UNREADABLE:
        return ""
    return "".join(delta.text for delta in _deltas(exchange, wire))


def is_stream(exchange: Exchange) -> bool:
    """Whether a body is an event stream and no JSON document.

    The content type decides, or the first character where a server gives none that is known.
    """
    content_type = exchange.headers.get("content-type", "").lower()
    if "event-stream" in content_type:
        return True
    start = next((piece.lstrip()[:1] for _, piece in exchange.pieces if not piece.isspace()), b"")
    return "json" not in content_type and start not in (b"{", b"[")


def _read_stream(exchange: Exchange, wire: Wire) -> Reading:
    """Fold all events one by one."""
    reading, reader = Reading(), EventReader()
    for stamp_ns, piece in exchange.pieces:
        before = len(reading.event_ns)
        try:
            for name, data in _events(reader, piece, reading):
                reading.add(wire.read_event(name, data), stamp_ns)
        except UNREADABLE as error:
            reading.damage = folded(f"unreadable event: {error}")
        reading.coalesced += max(0, len(reading.event_ns) - before - 1)
        if reading.damage or reading.error:
            break
    return reading


def _events(reader: EventReader, piece: bytes, reading: Reading) -> list[Event]:
    """The events that a piece completes, also where it holds one that is too large after them."""
    try:
        return reader.receive(piece)
    except EventTooLargeError as error:
        reading.damage = folded(f"unreadable event: {error}")
        return error.events


def _read_regular(exchange: Exchange, wire: Wire) -> Reading | None:
    """Fold all events of a stream whose events look alike: the same as one by one, in a third of the time.

    None if the stream is another, or anything in it needs a closer look.
    """
    found = regular(body_bytes(exchange))
    if found is None:
        return None
    events = found.data[:-1] if found.data[-1] == DONE else found.data
    try:
        deltas = wire.skim(events)
        if deltas is not None and events is not found.data:
            deltas.append(wire.read_event(b"", DONE))
    except UNREADABLE:
        return None
    return None if deltas is None else _folded(exchange, deltas, found.ends)


def _folded(exchange: Exchange, deltas: list[Delta], ends: list[int]) -> Reading:
    """Fold events that end at the offsets ``ends`` of the body, each stamped with the piece it ends in."""
    reading = Reading()
    add_instant, again, pieces = reading.event_ns.append, None, iter(exchange.pieces)
    piece_end = stamp_ns = coalesced = 0
    brought = False
    for end, delta in zip(ends, deltas, strict=True):
        if piece_end < end:
            while piece_end < end:
                stamp_ns, piece = next(pieces)
                piece_end += len(piece)
            brought = False
        if delta is again:  # it says just what the last one said, so it only adds its instant
            add_instant(stamp_ns)
            coalesced += brought
            brought = True
            continue
        reading.add(delta, stamp_ns)
        if reading.error is not None:
            break
        if delta.kind is not None:
            coalesced += brought
            brought = True
        again = delta if delta.kind else None
    reading.coalesced = coalesced
    return reading


def _deltas(exchange: Exchange, wire: Wire) -> Iterator[Delta]:
    """All events that can be read, up to an error or damage."""
    reader = EventReader()
    for _, piece in exchange.pieces:
        try:
            for name, data in reader.receive(piece):
                delta = wire.read_event(name, data)
                yield delta
                if delta.error is not None:
                    return
        except (*UNREADABLE, EventTooLargeError):
            return


def _read_whole(exchange: Exchange, wire: Wire) -> Reading:
    reading = Reading(streamed=False)
    if exchange.ending != "complete":
        return reading
    try:
        reading.add(wire.read_body(body_bytes(exchange)), exchange.pieces[-1][0] if exchange.pieces else 0)
    except UNREADABLE as error:
        reading.damage = folded(f"unreadable response: {error}")
    return reading


def body_bytes(exchange: Exchange) -> bytes:
    """The whole body."""
    return b"".join([piece for _, piece in exchange.pieces])
