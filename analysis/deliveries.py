"""What came together, and the gaps between: the array form of ``loadtest.derive``'s deliveries.

A delivery is what left the server together. Two scales of "together" are used: one stamp (one read of the
socket) for inter-token latency, as the load generator's histograms count it, and ``STEP_NS`` for step times.
"""

from dataclasses import dataclass

import numpy as np

from analysis import ragged
from analysis.ragged import Bools, Floats, Ints
from analysis.table import Requests

STEP_NS = 200_000
"""Events closer together than this came out of one step (speculation, or several segments of one)."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between the deliveries of each request: row i is ``gap_ns[offsets[i]:offsets[i + 1]]``."""

    gap_ns: Ints
    begin_ns: Ints
    """When each gap began."""
    tokens: Floats
    """How many tokens ended it: as told, else one an event and a share of those that usage counts beyond."""
    offsets: Ints

    def where(self, keep: Bools) -> "Gaps":
        """Only the gaps of the requests where ``keep`` is true."""
        values, offsets = ragged.take(self.offsets, keep)
        return Gaps(self.gap_ns[values], self.begin_ns[values], self.tokens[values], offsets)

    def of_only(self, told: Bools) -> "Gaps":
        """The same rows, empty where ``told`` is false."""
        counts = np.diff(self.offsets)
        values = np.repeat(told, counts)
        offsets = ragged.offsets_of(np.where(told, counts, 0))
        return Gaps(self.gap_ns[values], self.begin_ns[values], self.tokens[values], offsets)


def gaps(requests: Requests, *, together_ns: int = 0) -> Gaps:
    """Gaps between deliveries; an event at most ``together_ns`` after another belongs to its delivery."""
    at_ns, told, offsets = _with_tokens(requests)
    starts = np.zeros(at_ns.size, dtype=np.bool_)
    starts[offsets[:-1][np.diff(offsets) > 0]] = True
    starts[1:] |= np.diff(at_ns) > together_ns
    places = np.flatnonzero(starts)
    tokens = np.add.reduceat(np.where(np.isnan(told), 1.0, told), places) if places.size else np.empty(0)
    delivered = ragged.filter_values(starts, offsets)
    tokens = _spread(tokens, delivered, requests.column("output_tokens"), ragged.first(told, offsets))
    gap_ns, gap_offsets = ragged.gaps(at_ns[starts], delivered)
    filled = np.diff(delivered) > 0
    ends = np.ones(places.size, dtype=np.bool_)
    ends[delivered[:-1][filled]] = False
    begins = np.ones(places.size, dtype=np.bool_)
    begins[delivered[1:][filled] - 1] = False
    return Gaps(gap_ns, at_ns[starts][begins], tokens[ends], gap_offsets)


def first_tokens(requests: Requests) -> Floats:
    """Tokens of each request's first delivery (all events with its stamp): as told, else one an event."""
    first_ns = np.repeat(ragged.first(requests.event_ns, requests.offsets), np.diff(requests.offsets))
    each = np.where(np.isnan(requests.event_tokens), 1.0, requests.event_tokens)
    return ragged.sums(each * (requests.event_ns == first_ns), requests.offsets)


def _with_tokens(requests: Requests) -> tuple[Ints, Floats, Ints]:
    """Events, their tokens as told (NaN: not), and offsets, without events that are told to bring none.

    The first event stays: it is the first token's instant in any case.
    """
    keep = ~(requests.event_tokens == 0)
    keep[requests.offsets[:-1][np.diff(requests.offsets) > 0]] = True
    if keep.all():
        return requests.event_ns, requests.event_tokens, requests.offsets
    offsets = ragged.filter_values(keep, requests.offsets)
    return requests.event_ns[keep], requests.event_tokens[keep], offsets


def _spread(tokens: Floats, offsets: Ints, total: Floats, told: Floats) -> Floats:
    """Share tokens that usage counts beyond the events over all deliveries but the first.

    In proportion to their events, rounded so that the sum is right; only where the server did not tell.
    """
    counted, first = ragged.sums(tokens, offsets), np.nan_to_num(ragged.first(tokens, offsets))
    later = counted - first
    short = np.isnan(told) & (total > counted) & (later > 0)
    if not short.any():
        return tokens
    ratio = np.ones(short.size)
    ratio[short] = (total[short] - first[short]) / later[short]
    rows = ragged.row_of(offsets)
    running = np.cumsum(tokens) - (np.cumsum(np.concatenate(([0.0], counted)))[:-1] + first)[rows]
    shares = np.diff(np.rint(running * ratio[rows]), prepend=0.0)
    leads = np.zeros(tokens.size, dtype=np.bool_)
    leads[offsets[:-1][np.diff(offsets) > 0]] = True
    return np.where(short[rows] & ~leads, shares, tokens)
