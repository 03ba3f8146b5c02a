"""What the transport saw of one HTTP attempt: stamped pieces of a body, and how it ended. Pure data."""

from dataclasses import dataclass, field
from typing import Literal

from loadtest.records import StampSource

Ending = Literal[
    "complete",  # the body ended where HTTP said it would
    "cut",  # the connection closed or broke inside the response
    "unanswered",  # the connection closed or broke before the first byte of a response
    "unconnected",  # no connection, or no TLS session
    "timeout",
    "malformed",  # not HTTP, or a content encoding that cannot be undone
    "too_large",
    "cancelled",
]


@dataclass(slots=True)
class Exchange:
    """One attempt. Instants are ns since the run's start; ``pieces`` are (arrival, body bytes) in order.

    A piece is what one read of the socket added to the body after HTTP framing and decompression. Header
    names are in lower case.
    """

    stamp_source: StampSource
    ending: Ending = "complete"
    detail: str = ""
    connected_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    ended_ns: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
