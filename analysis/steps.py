"""The server's step time, read from the gaps between deliveries.

The median gap of a request is the step time of a server that decodes one batch a step: other users' prefills
stall some gaps, which moves the mean by tens of per cent and the median by a fraction of one. When most steps
carry a prefill the median is one of those, and the step time cannot be read: ``stalled`` says so.
"""

from dataclasses import dataclass

import numpy as np

from analysis import ragged
from analysis.ragged import Bools, Floats, Ints
from analysis.table import Requests

DELIVERY_NS = 200_000
"""Events closer together than this left the server together (several tokens a step, or one segment)."""
STALL_RATIO = 1.45
"""A gap this much longer than the clean step carries somebody's prefill chunk."""
FEWEST_GAPS = 5
CAUTION_STALLED, REFUSE_STALLED = 0.4, 0.6
"""Share of gaps above ``STALL_RATIO`` × the request's 10 % quantile: medians are within 3 % of the step below
the first and useless above the second (measured on simulated chunked-prefill servers)."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps between deliveries of each request. ``begin_ns`` is where a gap begins; ``tokens`` how many tokens
    ended it (one an event, where the server does not tell).
    """

    gap_ns: Ints
    begin_ns: Ints
    tokens: Floats
    offsets: Ints

    def where(self, keep: Bools) -> "Gaps":
        """Only the gaps of the requests where ``keep`` is true."""
        values, offsets = ragged.take(self.offsets, keep)
        return Gaps(self.gap_ns[values], self.begin_ns[values], self.tokens[values], offsets)


def delivery_gaps(requests: Requests) -> Gaps:
    """Merge events that came together, and take the gaps between what remains."""
    counts = np.diff(requests.offsets)
    starts = np.zeros(requests.event_ns.size, dtype=np.bool_)
    starts[requests.offsets[:-1][counts > 0]] = True
    starts[1:] |= np.diff(requests.event_ns) > DELIVERY_NS
    delivered_ns = requests.event_ns[starts]
    offsets = ragged.filter_values(starts, requests.offsets)
    each = np.where(np.isnan(requests.event_tokens), 1.0, requests.event_tokens)
    tokens = np.add.reduceat(each, np.flatnonzero(starts)) if starts.any() else np.empty(0)
    gap_ns, gap_offsets = ragged.gaps(delivered_ns, offsets)
    ends = np.ones(delivered_ns.size, dtype=np.bool_)
    ends[offsets[:-1][np.diff(offsets) > 0]] = False
    begins = np.ones(delivered_ns.size, dtype=np.bool_)
    begins[offsets[1:][np.diff(offsets) > 0] - 1] = False
    return Gaps(gap_ns, delivered_ns[begins], tokens[ends], gap_offsets)


def with_steps(requests: Requests, gaps: Gaps) -> Requests:
    """The same requests with columns deliveries, step_s (median gap), stalled_gaps (share above 1.45 × the
    median), loaded_gaps (share above 1.45 × the 10 % quantile: how much of the decode carried prefill).
    """
    counts = np.diff(gaps.offsets)
    ordered = ragged.sort_rows(gaps.gap_ns, gaps.offsets)
    enough = counts >= FEWEST_GAPS
    median = np.where(enough, ragged.quantiles(ordered, gaps.offsets, 0.5), np.nan)
    clean = np.where(enough, ragged.quantiles(ordered, gaps.offsets, 0.1), np.nan)
    frame = requests.frame.assign(
        deliveries=np.where(np.diff(requests.offsets) > 0, counts + 1, 0),
        step_s=median / 1e9,
        stalled_gaps=_share_above(gaps, STALL_RATIO * median),
        loaded_gaps=_share_above(gaps, STALL_RATIO * clean),
    )
    return Requests(frame, requests.event_ns, requests.event_tokens, requests.offsets)


def tokens_per_delivery(requests: Requests) -> float:
    """Output tokens over deliveries, the first delivery left out of both; NaN without any.

    1 for plain decoding; above 1 the server speculates, or packs several tokens into an event.
    """
    tokens, deliveries = requests.column("output_tokens"), requests.column("deliveries")
    counted = (deliveries > 1) & (tokens >= deliveries)
    if not counted.any():
        return float("nan")
    return float(np.sum(tokens[counted] - 1) / np.sum(deliveries[counted] - 1))


def _share_above(gaps: Gaps, limit_ns: Floats) -> Floats:
    above = (gaps.gap_ns > np.repeat(limit_ns, np.diff(gaps.offsets))).astype(np.float64)
    counts = np.diff(gaps.offsets).astype(np.float64)
    share = np.full(counts.size, np.nan)
    known = np.isfinite(limit_ns) & (counts > 0)
    share[known] = ragged.sums(above, gaps.offsets)[known] / counts[known]
    return share


def loaded_share(requests: Requests) -> float:
    """Median over requests of the share of gaps that carry prefill; 0 where it cannot be said."""
    loaded = requests.column("loaded_gaps")
    known = loaded[np.isfinite(loaded)]
    return float(np.median(known)) if known.size else 0.0
