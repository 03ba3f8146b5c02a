"""What every word of a report means, plainly. Pure text, shared by HTML, Markdown and docs/report.md."""

from analysis.model import Metric
from loadtest.records import Outcome

METRIC_NAMES: dict[Metric, str] = {
    "ttft": "TTFT",
    "ttft_from_scheduled": "TTFT from scheduled",
    "first_text": "First text",
    "itl": "ITL",
    "tpot": "TPOT",
    "otps": "OTPS",
    "e2e": "E2E",
    "lag": "Lag",
}

METRICS: dict[Metric, str] = {
    "ttft": "Time to first token: from the last byte of the request leaving to the arrival of the first "
    "output token, reasoning included. It holds network, queue and prefill.",
    "ttft_from_scheduled": "The same from the instant at which the request should have left. Larger than "
    "TTFT where the load generator was late; equal to it in a closed loop.",
    "first_text": "Time to the first token of the visible answer; later than TTFT if a model reasons first.",
    "itl": "Inter-token latency: the gap between one delivery of tokens and the next, per token, over all "
    "gaps of all requests.",
    "tpot": "Time per output token: the mean gap of one request, so that stalls are part of it.",
    "otps": "Output tokens per second of one request, first token left out: 1 / TPOT.",
    "e2e": "End to end: from the request leaving to the end of its response.",
    "lag": "How late the load generator sent: sent minus scheduled. Ours, not the server's.",
}

TERMS: dict[str, str] = {
    "Interval": (
        "The range in parentheses holds the true value with a probability of 95 % if the same server "
        "were measured again, as far as the method knows its own errors."
    ),
    "Not identified": ("The data cannot tell this number apart from others; a guess would be worth nothing."),
    "Decode step": (
        "One pass of the model that gives each running stream its next token. Measured as the median "
        "over requests of the median gap between deliveries, which other users' prefills do not move."
    ),
    "Decode speed": "Tokens per second that one stream gets: tokens per delivery / decode step.",
    "Tokens per delivery": (
        "Output tokens that arrive together. Above 1 where a server guesses ahead (speculative "
        "decoding) or packs several tokens into one event."
    ),
    "Stalled gaps": (
        "Gaps longer than 1.45 × the request's median: steps that also carried somebody's prompt."
    ),
    "Prefill": "Reading the prompt. It makes TTFT grow with the prompt's length.",
    "Prefill increment": (
        "How much longer the fitted law says the longest prompts take than the shortest. Network, "
        "queue and fixed costs cancel, which is why tiers are compared by it."
    ),
    "Speed ratio": (
        "Time on the baseline tier / time on the compared tier: above 1 the compared tier is faster."
    ),
    "Unchanged": (
        "Shown to lie within the margin, by an equivalence test. Not having found a difference is not "
        "enough; that is called inconclusive."
    ),
    "Batch": ("Sequences that share one step. All tiers' users on the same machine count, not only ours."),
    "Sensitivity ε": (
        "By what share the step time changes per share of batch. Near 0 timing hardly sees the batch, "
        "and an estimate from timing is worth little."
    ),
    "White box": "Batch from the step law of named hardware and model: step time in, batch out.",
    "Two tiers": ("Bounds on the ratio of two tiers' batches, if only the batch differs between them."),
    "Warm-up": "Requests of a stage marked so; recorded, and left out of every statistic.",
}

OUTCOMES: dict[Outcome, str] = {
    "ok": "ended as it should, with at least one token",
    "http_error": "a status of 400 or more other than the next two",
    "rate_limited": "status 429",
    "overloaded": "status 503 or 529",
    "stream_error": "an error inside a stream that had begun well",
    "truncated": "the stream stopped before its end was said",
    "no_output": "ended well and brought no token",
    "timeout": "one of the plan's time limits struck",
    "connect_error": "no connection",
    "cancelled": "stopped by us, as the run ended",
}
