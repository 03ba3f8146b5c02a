"""How an attempt ended: one table, first row wins. Pure.

Damage is never a success: whatever is not understood lands in an outcome other than ``ok``.
"""

from collections.abc import Callable

import msgspec

from loadtest.delta import error_line, folded
from loadtest.exchange import Ending, Exchange
from loadtest.reading import Reading, body_bytes
from loadtest.records import Outcome
from loadtest.unreadable import UNREADABLE

_MESSAGE_BYTES = 65536

# The outcome is the first row whose condition holds; detail says in one line what happened.
_Condition = Callable[[Exchange, Reading], bool]


def _ended(*endings: Ending) -> _Condition:
    return lambda exchange, _: exchange.ending in endings


def _status(*statuses: int) -> _Condition:
    return lambda exchange, _: exchange.status in statuses


def refused(exchange: Exchange, _: Reading | None = None) -> bool:
    """Whether a status came and it was no success."""
    return exchange.status is not None and not 200 <= exchange.status < 300


_OUTCOMES: tuple[tuple[_Condition, Outcome], ...] = (
    (_ended("cancelled"), "cancelled"),
    (_ended("unconnected", "unanswered"), "connect_error"),
    (_status(429), "rate_limited"),
    (_status(503, 529), "overloaded"),
    (refused, "http_error"),
    (_ended("timeout"), "timeout"),
    (_ended("malformed", "too_large"), "stream_error"),
    (lambda _, reading: reading.error is not None or reading.damage is not None, "stream_error"),
    (_ended("cut"), "truncated"),
    (lambda _, reading: not reading.terminal, "truncated"),
    (lambda _, reading: not reading.event_ns, "no_output"),
)


def outcome_of(exchange: Exchange, reading: Reading) -> Outcome:
    """Decide the outcome of an attempt."""
    return next((outcome for holds, outcome in _OUTCOMES if holds(exchange, reading)), "ok")


def detail_of(exchange: Exchange, reading: Reading, outcome: Outcome) -> str:
    """Say in one line, of any length, what happened; empty for ``ok``."""
    if outcome == "ok":
        return ""
    if outcome in ("http_error", "rate_limited", "overloaded"):
        return folded(f"HTTP {exchange.status}: {_message(exchange)}")
    if outcome == "stream_error" and exchange.ending not in ("malformed", "too_large"):
        return reading.error or reading.damage or ""
    if outcome == "truncated" and exchange.ending == "complete":
        return _unended(exchange)
    if outcome == "no_output":
        return "the stream ended well and brought no token"
    return folded(exchange.detail)


def _unended(exchange: Exchange) -> str:
    """A response that ended in order and yet brought no end of a stream: often it was none to begin with."""
    content_type = exchange.headers.get("content-type", "")
    if content_type.startswith("text/html"):
        page = body_bytes(exchange)[:_MESSAGE_BYTES].decode("utf-8", "replace")
        return folded(f"a web page came, no stream: {page}")
    return "the stream ended without a finish reason or end mark"


def _message(exchange: Exchange) -> str:
    """The server's own words on a refusal."""
    location = exchange.headers.get("location")
    if location and exchange.status is not None and exchange.status < 400:
        return f"redirect to {location}, which is not followed"
    body = body_bytes(exchange)[:_MESSAGE_BYTES]
    try:
        document = msgspec.json.decode(body)
    except UNREADABLE:
        return folded(body.decode("utf-8", "replace")) or "no message"
    if isinstance(document, dict):
        found = document.get("error") or document.get("detail") or document.get("message")
        return error_line(found or document)
    return folded(str(document))
