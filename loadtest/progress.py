"""A line now and then for the person who waits. Pure: numbers in, text out."""

import statistics
from collections import deque
from collections.abc import Sequence

from loadtest import derive
from loadtest.counts import StageCounts
from loadtest.records import RequestRecord

_KEPT = 2000


class TierFigures:
    """The latest TTFT and output speeds of each tier in one stage."""

    def __init__(self, tiers: Sequence[str]) -> None:
        self._ttft_s: dict[str, deque[float]] = {tier: deque(maxlen=_KEPT) for tier in tiers}
        self._otps: dict[str, deque[float]] = {tier: deque(maxlen=_KEPT) for tier in tiers}

    def add(self, record: RequestRecord) -> None:
        """Take in a request that ended; only good ones count."""
        if record.outcome != "ok":
            return
        ttft, otps = derive.ttft_s(record), derive.otps_per_s(record)
        if ttft is not None:
            self._ttft_s[record.requested_tier].append(ttft)
        if otps is not None:
            self._otps[record.requested_tier].append(otps)

    def describe(self) -> str:
        """Medians of each tier that has any."""
        return " | ".join(self._one(tier) for tier in self._ttft_s if self._ttft_s[tier])

    def _one(self, tier: str) -> str:
        ttft_ms = statistics.median(self._ttft_s[tier]) * 1e3  # milliseconds: for reading only
        speeds = self._otps[tier]
        speed = f", {statistics.median(speeds):.1f} tokens/s" if speeds else ""
        return f"{tier}: TTFT {ttft_ms:.0f} ms{speed}"


def line(counts: StageCounts, figures: TierFigures, *, ended: bool = False) -> str:
    """One line: stage, done of total, in flight, failed, medians of each tier."""
    stage = counts.stage
    total = f"/{stage.requests}" if stage.requests is not None else ""
    shown = [f"{counts.ended}{total} requests"]
    if not ended:
        shown.append(f"{counts.in_flight} in flight")
    if counts.failed:
        shown.append(f"{counts.failed} failed")
    parts = [", ".join(shown), figures.describe()]
    return f"{stage.name}{' (warm-up)' if stage.warmup else ''}: {' | '.join(part for part in parts if part)}"
