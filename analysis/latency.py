"""Latencies of each request in columns: the array form of ``loadtest.derive``, same definitions.

    TTFT = first token − sent        OTPS = (N − n₁) / (t_last − t_first)        TPOT = 1 / OTPS

N output tokens as the server's usage counts them, n₁ those of the first delivery. When all tokens came at one
instant, or N ≤ n₁, speed is not defined: NaN, never 0 or infinity.
"""

import numpy as np

from analysis import ragged
from analysis.deliveries import first_tokens
from analysis.lengths import prompt_tokens
from analysis.ragged import Floats
from analysis.table import Requests


def with_latencies(requests: Requests) -> Requests:
    """The same requests with their latencies.

    New columns: first_at_s, last_at_s, ttft_s, ttft_from_scheduled_s, first_text_s, e2e_s, lag_s, tpot_s,
    otps, and uncached_tokens (of the prompt: what prefill had to compute).
    """
    sent, scheduled = requests.column("sent_at_s"), requests.column("scheduled_at_s")
    first = ragged.first(requests.event_ns, requests.offsets) / 1e9
    last = ragged.last(requests.event_ns, requests.offsets) / 1e9
    otps = _per_s(requests.column("output_tokens"), first_tokens(requests), last - first)
    frame = requests.frame.assign(
        first_at_s=first,
        last_at_s=last,
        lag_s=sent - scheduled,
        ttft_s=first - sent,
        ttft_from_scheduled_s=first - scheduled,
        first_text_s=requests.column("first_text_at_s") - sent,
        e2e_s=requests.column("ended_at_s") - sent,
        otps=otps,
        tpot_s=1 / otps,
        uncached_tokens=prompt_tokens(requests) - np.nan_to_num(requests.column("cached_tokens")),
    )
    return Requests(frame, requests.event_ns, requests.event_tokens, requests.offsets)


def _per_s(tokens: Floats, first: Floats, duration_s: Floats) -> Floats:
    defined = (duration_s > 0) & (tokens > first)
    speed = np.full(tokens.size, np.nan)
    speed[defined] = (tokens[defined] - first[defined]) / duration_s[defined]
    return speed
