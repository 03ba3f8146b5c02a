"""Stamped pieces of a response in, one RequestRecord out. Pure: no clock, no socket.

Counts of tokens come from ``usage``; the count of events stands in for it only under ``tokens_source``.
"""

import functools
from urllib.parse import quote

from loadtest.delta import folded
from loadtest.exchange import Exchange
from loadtest.outcome import detail_of, outcome_of, refused
from loadtest.reading import Reading, read
from loadtest.records import RequestRecord
from loadtest.retry_after import retry_after_s
from loadtest.wire import Wire
from loadtest.workload import Request

_REQUEST_ID_HEADERS = ("x-request-id", "request-id")
_DETAIL_LENGTH = 300
_WORD_LENGTH = 128


def record(
    request: Request, exchange: Exchange, wire: Wire, *, model: str, scheduled_ns: int, secret: str = ""
) -> RequestRecord:
    """Make the record of one attempt.

    ``secret`` is the key that was sent: a server that echoes it finds it blotted out of whatever is kept of
    its words.
    """

    def word(text: str | None) -> str | None:
        return None if text is None else _word(blotted(text, secret))

    reading = Reading() if refused(exchange) else read(exchange, wire)
    outcome = outcome_of(exchange, reading)
    headers, usage, seen = exchange.headers, reading.usage, reading.streamed
    told, events = usage.output_tokens is not None, len(reading.event_ns) if seen else 0
    return RequestRecord(
        index=request.index,
        stage=request.stage,
        warmup=request.warmup,
        session=request.session,
        turn=request.turn,
        requested_tier=request.tier.name,
        model=model,
        prompt_class_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens,
        scheduled_ns=scheduled_ns,
        connected_ns=exchange.connected_ns,
        sent_ns=exchange.sent_ns,
        headers_ns=exchange.headers_ns,
        first_text_ns=reading.first_text_ns if seen else None,
        event_ns=reading.event_ns if seen else [],
        event_kinds=reading.kind_runs() if seen else [],
        event_tokens=reading.event_tokens() if seen else None,
        coalesced_events=reading.coalesced,
        streamed=seen,
        ended_ns=exchange.ended_ns,
        status=exchange.status,
        outcome=outcome,
        detail=_cut(blotted(detail_of(exchange, reading, outcome), secret)),
        finish_reason=word(reading.finish_reason),
        echoed_tier=word(reading.echoed_tier),
        prompt_tokens=usage.whole_prompt_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens if told else events or None,
        tokens_source="usage" if told else "events" if events else None,
        request_id=word(next((headers[name] for name in _REQUEST_ID_HEADERS if name in headers), None)),
        retry_after_s=retry_after_s(headers),
        rate_limit_headers={
            blotted(name, secret): blotted(value, secret)
            for name, value in headers.items()
            if _of_rate_limits(name)
        },
        stamp_source=exchange.stamp_source,
    )


def blotted(text: str, secret: str) -> str:
    """Take the secret out, also as a URL or a header's name would write it; to be done before any cut."""
    if secret and text:
        for form in _forms(secret):
            text = text.replace(form, "[key]")
    return text


@functools.cache
def _forms(secret: str) -> frozenset[str]:
    return frozenset((secret, quote(secret), quote(secret, safe=""), secret.lower()))


def _cut(detail: str) -> str:
    return detail if len(detail) <= _DETAIL_LENGTH else detail[: _DETAIL_LENGTH - 1] + "…"


def _word(said: str) -> str:
    """A server's word for something, of a length and kind that a label and a table can bear."""
    short = said[:_WORD_LENGTH]
    return short if short.isprintable() else folded(short)


def _of_rate_limits(header: str) -> bool:
    return "ratelimit" in header or header.startswith("anthropic-fast-")
