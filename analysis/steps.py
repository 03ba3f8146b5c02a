"""The server's step time, read from the gaps between deliveries.

The median gap of a request is the step time of a server that decodes one batch a step: other users' prefills
stall some gaps, which moves the mean by tens of per cent and the median by a fraction of one. When most steps
carry a prefill the median is one of those, and the step time cannot be read: ``loaded_share`` tells.
"""

import numpy as np

from analysis import ragged
from analysis.deliveries import Gaps
from analysis.ragged import Floats
from analysis.table import Requests

STALL_RATIO = 1.45
"""A gap this much longer than the clean step carries somebody's prefill chunk."""
FEWEST_GAPS = 5
CAUTION_LOADED, REFUSE_LOADED = 0.4, 0.6
"""Share of gaps above ``STALL_RATIO`` × the request's 10 % quantile: medians are within 3 % of the step below
the first and useless above the second (measured on simulated chunked-prefill servers)."""


def with_steps(requests: Requests, gaps: Gaps) -> Requests:
    """The same requests with what their gaps say; ``gaps`` belong to the same rows.

    New columns: deliveries, step_s (median gap), stalled_gaps (share above 1.45 × the median) and loaded_gaps
    (share above 1.45 × the 10 % quantile: how much of the decode carried prefill).
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


def loaded_share(requests: Requests) -> float:
    """Median over requests of the share of gaps that carry prefill; 0 where it cannot be said."""
    loaded = requests.column("loaded_gaps")
    known = loaded[np.isfinite(loaded)]
    return float(np.median(known)) if known.size else 0.0


def _share_above(gaps: Gaps, limit_ns: Floats) -> Floats:
    counts = np.diff(gaps.offsets)
    above = (gaps.gap_ns > np.repeat(limit_ns, counts)).astype(np.float64)
    share = np.full(counts.size, np.nan)
    known = np.isfinite(limit_ns) & (counts > 0)
    share[known] = ragged.sums(above, gaps.offsets)[known] / counts[known]
    return share
