"""Server-sent events out of bytes, however the bytes are cut. No I/O, no JSON, no clock.

After the WHATWG HTML standard, section "Server-sent events" (2026). Rules for whoever edits this file:

1. A line ends at CR, LF or CRLF and nowhere else. U+2028 inside JSON is data, so lines are bytes.
2. Any split of the same bytes gives the same events, each out of the piece that holds the byte that ends it.
3. Memory is bounded by ``max_event_bytes`` whatever the server sends: a line and the data lines before it in
   the same event may not be longer together. What was whole before that is kept.
"""

_BOM = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 4 * 2**20


Event = tuple[bytes, bytes]
"""One dispatched event: its name (empty when the server gave none) and its data lines joined by LF."""


class EventTooLargeError(Exception):
    """An event or a line grew past the bound; the stream cannot be read on.

    ``events`` are those that the same piece completed before.
    """

    def __init__(self, max_event_bytes: int) -> None:
        super().__init__(f"an event is larger than {max_event_bytes} bytes")
        self.events: list[Event] = []


class EventReader:
    """Turns pieces of a stream into events. ``comments`` counts comment lines (keep-alives).

    An event that the stream's end leaves without its blank line is not dispatched, as the standard says;
    ``unfinished`` tells that there is one.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.comments = 0
        self._max_bytes = max_event_bytes
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name = b""
        self._started = False
        self._after_cr = False

    @property
    def unfinished(self) -> bool:
        """Whether bytes of an event that has not been dispatched are held."""
        return bool(self._data or self._name or self._parts_bytes)

    def receive(self, piece: bytes) -> list[Event]:
        """Take the next bytes; give the events they complete. Raises EventTooLargeError past the bound."""
        events: list[Event] = []
        try:
            self._receive(piece, events)
        except EventTooLargeError as error:
            error.events = events
            raise
        return events

    def _receive(self, piece: bytes, events: list[Event]) -> None:
        if self._after_cr and piece:
            self._after_cr = False
            if piece.startswith(b"\n"):
                piece = piece[1:]
        if not (b"\n" in piece or b"\r" in piece):
            self._hold(piece)
            return
        if self._parts_bytes:
            piece = b"".join((*self._parts, piece))
        self._parts, self._parts_bytes = [], 0
        if not self._started:
            piece = piece.removeprefix(_BOM)
            self._started = True
        lines = piece.splitlines()
        ending = piece[-1]
        if ending == 13:  # CR: an LF that opens the next piece belongs to this line end
            self._after_cr = True
        rest = lines.pop() if ending not in (10, 13) else b""
        for line in lines:
            self._take(line, events)
        self._hold(rest)

    def _take(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._data:
                events.append((self._name, b"\n".join(self._data)))
                self._data, self._data_bytes = [], 0
            self._name = b""
            return
        self._check(self._data_bytes + len(line))
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._data_bytes += len(value) + 1
        elif field == b"event":
            self._name = value
        elif not field:
            self.comments += 1
        # id, retry and unknown fields produce nothing

    def _hold(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._parts_bytes += len(part)
            self._check(self._data_bytes + self._parts_bytes)

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise EventTooLargeError(self._max_bytes)
