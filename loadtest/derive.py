"""Latencies and speeds out of a record: every figure that is derived and never stored. Pure.

Symbols: t instants of deliveries, N output tokens, n₁ tokens of the first delivery.
A *delivery* is what one read of the socket brought: events with one stamp belong to one delivery. What is not
defined is None (or an empty array), never 0 and never infinite.
"""

import numpy as np
from numpy.typing import NDArray

from loadtest.records import RequestRecord

_NS_PER_S = 1e9


def lag_s(record: RequestRecord) -> float | None:
    """How late the request left: sent − scheduled."""
    return _between(record.scheduled_ns, record.sent_ns)


def ttft_s(record: RequestRecord) -> float | None:
    """Time to the first token of any kind, from when the request had been sent."""
    return _between(record.sent_ns, _first(record))


def ttft_from_scheduled_s(record: RequestRecord) -> float | None:
    """Time to the first token from when the request should have left: hides no lateness of the client."""
    return _between(record.scheduled_ns, _first(record))


def first_text_s(record: RequestRecord) -> float | None:
    """Time to the first visible text, from when the request had been sent: after any reasoning."""
    return _between(record.sent_ns, record.first_text_ns)


def e2e_s(record: RequestRecord) -> float | None:
    """Time to the end of the response, from when the request had been sent."""
    return _between(record.sent_ns, record.ended_ns)


def tpot_s(record: RequestRecord) -> float | None:
    """Time per output token after the first delivery: (t_last − t_first) / (N − n₁).

    None if all tokens came in one read or N ≤ n₁.
    """
    if record.output_tokens is None or not record.event_ns:
        return None
    span_ns = record.event_ns[-1] - record.event_ns[0]
    tokens = record.output_tokens - _first_tokens(record)
    return span_ns / tokens / _NS_PER_S if span_ns > 0 and tokens > 0 else None


def otps_per_s(record: RequestRecord) -> float | None:
    """Output tokens per second of one stream: 1 / TPOT, None where that is."""
    tpot = tpot_s(record)
    return None if tpot is None else 1.0 / tpot


def deliveries(record: RequestRecord) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Instants (ns since the run's start) at which tokens arrived, and how many tokens each brought.

    Tokens are exact where the server told them event by event. Elsewhere each event counts as one token, and
    if ``output_tokens`` says there were more, the rest is spread over the deliveries after the first in
    proportion to their events (rounded so that the sum is right).
    """
    events = np.array(record.event_ns, dtype=np.int64)
    if events.size == 0:
        return events, events
    if record.event_tokens is None and (events[1:] != events[:-1]).all():  # as nearly always
        return events, _spread(np.ones(events.size, dtype=np.int64), record.output_tokens)
    starts = np.flatnonzero(np.diff(events, prepend=events[0] - 1))
    if record.event_tokens is not None:
        tokens = np.add.reduceat(np.array(record.event_tokens, dtype=np.int64), starts)
        kept = tokens > 0
        kept[0] = True
        return events[starts][kept], tokens[kept]
    tokens = np.diff(starts, append=events.size)
    return events[starts], _spread(tokens, record.output_tokens)


def itl(record: RequestRecord) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Inter-token latencies in seconds, and how many tokens each stands for.

    A gap that delivered k tokens counts as k gaps of gap/k.
    """
    instants, tokens = deliveries(record)
    counts = tokens[1:]
    return (instants[1:] - instants[:-1]) / (counts * _NS_PER_S), counts


def _spread(tokens: NDArray[np.int64], total: int | None) -> NDArray[np.int64]:
    counted = int(tokens.sum())
    later = counted - int(tokens[0])
    if total is None or total <= counted or later == 0:
        return tokens
    shares = np.cumsum(tokens[1:]) * ((total - int(tokens[0])) / later)
    return np.concatenate((tokens[:1], np.diff(np.rint(shares).astype(np.int64), prepend=0)))


def _first_tokens(record: RequestRecord) -> int:
    """Tokens of the first delivery: as told, else one an event."""
    first = record.event_ns.count(record.event_ns[0])
    return first if record.event_tokens is None else sum(record.event_tokens[:first])


def _first(record: RequestRecord) -> int | None:
    return record.event_ns[0] if record.event_ns else None


def _between(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / _NS_PER_S
