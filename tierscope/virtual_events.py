"""When the events of an answer leave the server and when a client sees them. Pure.

Tokens become events as the real server sends them: smoothed or not, gathered, kept back by a stall. Events
that leave at one instant are one write; a write takes its time through the network, and what a read brings
is stamped once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadtest.plan import Network
from mockserver import faults
from mockserver.config import ServerConfig
from mockserver.server_config import engine_tier
from mockserver.speculation import smoothed
from tierscope.virtual_door import Served

_SALT_NETWORK = 5
SEVERED = ("cut", "reset")
"""Faults that close the connection."""

Instants = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """Events as the server sends them, in order, and when their stream ends."""

    sent_ns: Instants
    tokens: Instants
    """Tokens that each one brings."""
    reasoning: int
    """How many of the events are reasoning: the first ones."""
    end_ns: int


def sent(served: Served, config: ServerConfig) -> Events:
    """The events of a stream as they leave the server."""
    visit, finished = served.visit, served.finished
    sent_ns, counts = moments(finished.done.token_ns)
    speculation = engine_tier(config, visit.choice.tier).speculation
    if speculation is not None and speculation.smoothed and len(sent_ns):
        sent_ns = smoothed(sent_ns, counts)
        counts = np.ones_like(sent_ns)
        if finished.cut_ns is not None:
            sent_ns = np.minimum(sent_ns, finished.cut_ns)
    sent_ns, counts = _gathered(sent_ns, counts, config.wire.tokens_per_event)
    end_ns = int(sent_ns[-1]) if finished.cut_ns is None else finished.cut_ns
    if visit.struck.stall is not None:
        sent_ns, counts, end_ns = _stalled(served, sent_ns, counts, end_ns)
    return _split(sent_ns, counts, visit.answer.reasoning_tokens, end_ns)


def moments(sorted_ns: Instants) -> tuple[Instants, Instants]:
    """The different instants among some that never fall, and how often each is there."""
    starts = np.flatnonzero(np.append(True, sorted_ns[1:] != sorted_ns[:-1])[: len(sorted_ns)])
    return sorted_ns[starts], np.diff(starts, append=len(sorted_ns))


def _gathered(sent_ns: Instants, counts: Instants, per_event: int) -> tuple[Instants, Instants]:
    """Events of at least ``per_event`` tokens, the last one of what is left."""
    if per_event == 1:
        return sent_ns, counts
    places, sizes, size = [], [], 0
    for place, count in enumerate(counts.tolist()):
        size += count
        if size >= per_event or place == len(counts) - 1:
            places.append(place)
            sizes.append(size)
            size = 0
    return sent_ns[places], np.array(sizes, dtype=np.int64)


def _stalled(
    served: Served, sent_ns: Instants, counts: Instants, end_ns: int
) -> tuple[Instants, Instants, int]:
    """The same where the server sends nothing for a while and then all that was due.

    An error that ends the stream waits like an event; who closes the connection waits for nothing.
    """
    stall, breaks = served.visit.struck.stall, served.visit.struck.breaks
    assert stall is not None
    total = served.visit.answer.output_tokens
    first = int(np.searchsorted(np.cumsum(counts), faults.strikes_at(stall, total), side="right"))
    if first == len(sent_ns) and (
        breaks is None or faults.strikes_at(stall, total) > faults.strikes_at(breaks, total)
    ):
        return sent_ns, counts, end_ns
    from_ns = int(sent_ns[first]) if first < len(sent_ns) else end_ns
    until_ns = from_ns + round(stall.wait_s * 1e9)
    severed = breaks is not None and breaks.kind in SEVERED and served.finished.cut_ns is not None
    if severed and end_ns < until_ns:
        return sent_ns[:first], counts[:first], end_ns
    held = np.where((np.arange(len(sent_ns)) >= first) & (sent_ns < until_ns), until_ns, sent_ns)
    return held, counts, max(end_ns, until_ns)


def _split(sent_ns: Instants, counts: Instants, reasoning_tokens: int, end_ns: int) -> Events:
    """Make two events of one in which reasoning ends."""
    ends = np.cumsum(counts)
    place = int(np.searchsorted(ends, reasoning_tokens, side="left"))
    if not reasoning_tokens or place == len(ends):
        return Events(sent_ns, counts, len(ends) if reasoning_tokens else 0, end_ns)
    over = int(ends[place]) - reasoning_tokens
    if over:
        sent_ns = np.insert(sent_ns, place, sent_ns[place])
        counts = np.insert(counts, place, counts[place] - over)
        counts[place + 1] = over
    return Events(sent_ns, counts, place + 1, end_ns)


def delivered(events: Events, network: Network, seed: int, index: int) -> tuple[Instants, int]:
    """Instants at which the client sees events and end: latency, exponential jitter a write, order kept."""
    written_ns, counts = moments(np.append(events.sent_ns, events.end_ns))
    rng = np.random.default_rng((seed, _SALT_NETWORK, index))
    delay_s = network.latency_s + rng.exponential(network.jitter_s, size=len(written_ns))
    arrived_ns = np.maximum.accumulate(written_ns + np.rint(delay_s * 1e9).astype(np.int64))
    seen_ns = np.repeat(arrived_ns, counts)
    return seen_ns[:-1], int(seen_ns[-1])


def broken_before_garbage(served: Served) -> bool:
    """Whether the answer breaks off before the event that cannot be read."""
    garbage, breaks = served.visit.struck.garbage, served.visit.struck.breaks
    if garbage is None or breaks is None:
        return False
    total = served.visit.answer.output_tokens
    return faults.strikes_at(breaks, total) < faults.strikes_at(garbage, total)


def readable(served: Served, events: Events) -> int:
    """How many events are read: all, or those before one that cannot be."""
    garbage = served.visit.struck.garbage
    if garbage is None or broken_before_garbage(served):
        return len(events.sent_ns)
    strikes_at = faults.strikes_at(garbage, served.visit.answer.output_tokens)
    return int(np.searchsorted(np.cumsum(events.tokens), strikes_at, side="right"))
