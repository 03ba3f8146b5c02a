"""Streams whose events all look alike, as nearly all do: taken apart at once instead of byte by byte. Pure.

Two shapes are known: a data line and a blank one; and an event line, a data line and a blank one; all lines
end with LF, or all with CRLF. What is not of one of them from the first byte to the last is left to
``loadtest.sse``, which reads everything; what is read here is read there alike.
"""

from dataclasses import dataclass
from itertools import accumulate

from loadtest.sse import MAX_EVENT_BYTES

_DATA, _EVENT, _END = b"data: ", b"event: ", b"\n\n"


@dataclass(frozen=True, slots=True)
class Regular:
    """The events of one body. Their names tell nothing that their data does not."""

    data: list[bytes]
    ends: list[int]
    """Offset of the first byte after each event."""


def regular(body: bytes) -> Regular | None:
    """Take a body apart; None if it has another shape, names an error, or may hold an event too large."""
    carriage = 0
    if b"\r" in body:
        carriage = 1
        if not body.count(b"\r\n") == body.count(b"\n") == body.count(b"\r"):
            return None
        body = body.replace(b"\r\n", b"\n")
    if not body.endswith(_END):
        return None
    if body.startswith(_DATA):
        data = body[len(_DATA) : -len(_END)].split(_END + _DATA)
        lengths = [len(one) + 8 + 2 * carriage for one in data]  # with the field's name and the line ends
        line_ends = 2 * len(data)
    elif body.startswith(_EVENT):
        events = body[len(_EVENT) : -len(_END)].split(_END + _EVENT)
        parts = [event.partition(b"\n" + _DATA) for event in events]
        if any(name == b"error" or not found for name, found, _ in parts):
            return None
        data = [one for _, _, one in parts]
        lengths = [len(event) + 9 + 3 * carriage for event in events]
        line_ends = 3 * len(data)
    else:
        return None
    if body.count(b"\n") != line_ends or max(lengths) > MAX_EVENT_BYTES:
        return None
    return Regular(data, _ends(lengths, carriage))


def _ends(lengths: list[int], carriage: int) -> list[int]:
    """Where events end; a line that ends with CRLF has ended with its CR."""
    ends = list(accumulate(lengths))
    return [end - 1 for end in ends] if carriage else ends
