"""Latencies of each request, derived from what was observed (definitions: docs/inference.md).

    TTFT = first token − sent            OTPS = (N − n_first) / (t_last − t_first)        TPOT = 1 / OTPS

N output tokens as the server's usage counts them, n_first of them in the first event. When all tokens came at
one instant, or N ≤ n_first, speed is not defined: NaN, never 0 or infinity.
"""

import numpy as np

from analysis import ragged
from analysis.ragged import Floats, Ints
from analysis.table import Requests


def with_latencies(requests: Requests) -> Requests:
    """The same requests with columns ttft_s, ttft_from_scheduled_s, first_text_s, e2e_s, lag_s, tpot_s, otps,
    first_at_s, last_at_s, events and uncached_tokens (of the prompt: what prefill had to compute).
    """
    sent = requests.column("sent_at_s")
    scheduled = requests.column("scheduled_at_s")
    first = ragged.first(requests.event_ns, requests.offsets) / 1e9
    last = ragged.last(requests.event_ns, requests.offsets) / 1e9
    otps = _per_s(
        requests.column("output_tokens"),
        first_tokens(requests.event_tokens, requests.offsets),
        last - first,
    )
    prompt = requests.column("prompt_tokens")
    prompt = np.where(np.isnan(prompt), requests.column("prompt_class_tokens"), prompt)
    frame = requests.frame.assign(
        first_at_s=first,
        last_at_s=last,
        events=np.diff(requests.offsets),
        lag_s=sent - scheduled,
        ttft_s=first - sent,
        ttft_from_scheduled_s=first - scheduled,
        first_text_s=requests.column("first_text_at_s") - sent,
        e2e_s=requests.column("ended_at_s") - sent,
        otps=otps,
        tpot_s=1 / otps,
        uncached_tokens=prompt - np.nan_to_num(requests.column("cached_tokens")),
    )
    return Requests(frame, requests.event_ns, requests.event_tokens, requests.offsets)


def first_tokens(event_tokens: Floats, offsets: Ints) -> Floats:
    """Tokens that each request's first event brought; 1 where the server did not tell."""
    known = ragged.first(event_tokens, offsets)
    return np.where(np.isnan(known), 1.0, known)


def _per_s(tokens: Floats, first: Floats, duration_s: Floats) -> Floats:
    defined = (duration_s > 0) & (tokens > first)
    speed = np.full(tokens.size, np.nan)
    speed[defined] = (tokens[defined] - first[defined]) / duration_s[defined]
    return speed
