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
from mockserver.server_config import smooths
from mockserver.speculation import smoothed
from mockserver.virtual import Finished
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
    readable: int
    """How many can be read: those before one that is garbage."""
    end_ns: int


def sent(served: Served, config: ServerConfig) -> Events:
    """The events of a stream as they leave the server."""
    visit, finished = served.visit, served.finished
    if smooths(config, visit.choice.tier):
        sent_ns, end_ns = _smoothed(finished, config.wire.tokens_per_event)
        counts = np.ones_like(sent_ns)
    else:
        sent_ns, counts = moments(finished.done.token_ns)
        end_ns = finished.ended_ns
    sent_ns, counts = _gathered(sent_ns, counts, config.wire.tokens_per_event)
    if visit.struck.stall is not None:
        sent_ns, counts, end_ns = _stalled(served, sent_ns, counts, end_ns)
    readable_tokens = _readable_tokens(served, counts)
    return _split(sent_ns, counts, visit.answer.reasoning_tokens, readable_tokens, end_ns)


def _smoothed(finished: Finished, per_event: int) -> tuple[Instants, int]:
    """When each token leaves a server that spreads those of a step, and when the answer ends."""
    token_ns, ended_ns = finished.done.token_ns, finished.ended_ns
    whole_ns = smoothed(*moments(np.append(token_ns, [ended_ns] * finished.lost_tokens)))
    last = len(whole_ns)
    if finished.cut_ns is not None:  # it breaks off when the event that is too many would leave
        last = min(len(token_ns) + per_event, finished.done.job.output_tokens)
    return whole_ns[: len(token_ns)], int(whole_ns[last - 1])


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


def _readable_tokens(served: Served, counts: Instants) -> int:
    """Tokens of the events that can be read: all, or those before one that is garbage."""
    garbage, ends = served.visit.struck.garbage, np.cumsum(counts)
    whole = int(ends[-1]) if len(ends) else 0
    if garbage is None or broken_before_garbage(served):
        return whole
    strikes_at = faults.strikes_at(garbage, served.visit.answer.output_tokens)
    events = int(np.searchsorted(ends, strikes_at, side="right"))
    return int(ends[events - 1]) if events else 0


def _split(
    sent_ns: Instants, counts: Instants, reasoning_tokens: int, readable_tokens: int, end_ns: int
) -> Events:
    """Make two events of one in which reasoning ends."""
    ends = np.cumsum(counts)
    place = int(np.searchsorted(ends, reasoning_tokens, side="left"))
    reasoning = place + 1 if reasoning_tokens else 0
    if place < len(ends) and 0 < reasoning_tokens < ends[place]:
        over = int(ends[place]) - reasoning_tokens
        sent_ns = np.insert(sent_ns, place, sent_ns[place])
        counts = np.insert(counts, place, counts[place] - over)
        counts[place + 1] = over
    readable = int(np.searchsorted(np.cumsum(counts), readable_tokens, side="right"))
    return Events(sent_ns, counts, min(reasoning, len(counts)), readable, end_ns)


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
