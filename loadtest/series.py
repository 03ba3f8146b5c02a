"""One label set's histograms and counters, and how a request fills them. Pure: no Prometheus in here.

Rules for whoever edits this file:

1. Units are in the names, labels are exact classes of low cardinality, never ranges.
2. Only good requests outside of warm-up feed the histograms; the counters count everything.
3. Nothing is computed per token in Python: one vectorised call a request.
"""

from dataclasses import dataclass
from typing import NamedTuple

from loadtest import derive
from loadtest.histogram import (
    E2E_EDGES_S,
    EVENT_TOKENS_EDGES,
    GAP_EDGES_S,
    LATENESS_EDGES_S,
    SPEED_EDGES_PER_S,
    TTFT_EDGES_S,
    Histogram,
)
from loadtest.plan import Closed, Stage
from loadtest.records import RequestRecord


class Labels(NamedTuple):
    """The labels of every histogram and counter."""

    model: str
    requested_tier: str
    served_tier: str
    stage: str
    prompt_class: str


_LAG = "schedule_lag_seconds"
HISTOGRAMS = {
    "ttft_seconds": (TTFT_EDGES_S, "Time from sending a request to its first output token."),
    "ttft_from_scheduled_seconds": (
        TTFT_EDGES_S,
        "Time from when a request should have left to its first output token.",
    ),
    "tpot_seconds": (GAP_EDGES_S, "Time per output token after the first delivery, one value a request."),
    "itl_seconds": (
        GAP_EDGES_S,
        "Time between output tokens; a gap that brought k tokens counts k times gap/k.",
    ),
    "otps_tokens_per_second": (
        SPEED_EDGES_PER_S,
        "Output tokens per second of one stream, one value a request.",
    ),
    "e2e_seconds": (E2E_EDGES_S, "Time from sending a request to the end of its response."),
    "tokens_per_event": (
        EVENT_TOKENS_EDGES,
        "Output tokens per event that carried any, one value a request whose tokens the server counted.",
    ),
    _LAG: (LATENESS_EDGES_S, "How late a request of an open loop left: sent minus scheduled."),
}
COUNTERS = {
    "prompt_tokens": "Prompt tokens as the server counted them.",
    "cached_tokens": "Prompt tokens that the server read from its cache.",
    "output_tokens": "Output tokens as the server counted them.",
    "coalesced_events": "Output events that came in one read with an earlier one.",
}


@dataclass(slots=True)
class Series:
    """All histograms and counters of one label set; a warm-up stage has no histograms."""

    histograms: dict[str, Histogram]
    counters: dict[str, int]

    def copy(self) -> "Series":
        """A copy that later requests leave alone."""
        return Series({name: made.copy() for name, made in self.histograms.items()}, dict(self.counters))


def fresh(stage: Stage | None, *, warmup: bool = False) -> Series:
    """Series at 0: no histograms for a warm-up, and lag for open loops only."""
    names = set() if warmup or (stage is not None and stage.warmup) else set(HISTOGRAMS)
    if stage is None or isinstance(stage.arrivals, Closed):
        names -= {_LAG}
    histograms = {name: Histogram(edges) for name, (edges, _) in HISTOGRAMS.items() if name in names}
    return Series(histograms, dict.fromkeys(COUNTERS, 0))


def fill(histograms: dict[str, Histogram], record: RequestRecord) -> None:
    """Count one good request in the histograms there are."""
    for name, value in (
        ("ttft_seconds", derive.ttft_s(record)),
        ("ttft_from_scheduled_seconds", derive.ttft_from_scheduled_s(record)),
        ("tpot_seconds", derive.tpot_s(record)),
        ("otps_tokens_per_second", derive.otps_per_s(record)),
        ("e2e_seconds", derive.e2e_s(record)),
    ):
        if value is not None:
            histograms[name].observe(value)
    if record.event_ns and record.output_tokens and record.tokens_source == "usage":
        histograms["tokens_per_event"].observe(record.output_tokens / len(record.event_ns))
    if _LAG in histograms and (lag_s := derive.lag_s(record)) is not None:
        histograms[_LAG].observe(lag_s)
    gaps_s, tokens = derive.itl(record)
    if gaps_s.size:
        histograms["itl_seconds"].observe_many(gaps_s, tokens)
