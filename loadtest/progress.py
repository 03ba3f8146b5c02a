"""The figures of the stage under way, for the person who waits. Pure: records in, figures and a line out.

Each request costs two appends; quantiles are made of bounded windows when somebody asks.
"""

import statistics
from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loadtest import derive
from loadtest.counts import StageCounts
from loadtest.plan import Closed, Plan
from loadtest.records import RequestRecord
from loadtest.status import ClientStatus, Quantiles, Status, TierStatus, cautions, shown_errors

_KEPT = 2000
_KEPT_RECORDS = 24  # over all tiers: their gaps are derived anew each second, which takes about a millisecond
_RATE_MARKS = 6  # one a second: rates are over five


class TierFigures:
    """The latest latencies and speeds of one tier, and how many of its requests have ended."""

    def __init__(self, records: int) -> None:
        self.ttft_s: deque[float] = deque(maxlen=_KEPT)
        self.otps_per_s: deque[float] = deque(maxlen=_KEPT)
        self.records: deque[RequestRecord] = deque(maxlen=records)
        self.ended = self.failed = 0

    def add(self, record: RequestRecord) -> None:
        """Take in a request that ended; latencies are of good ones only."""
        self.ended += 1
        if record.outcome != "ok":
            self.failed += record.outcome != "cancelled"
            return
        ttft, otps = derive.ttft_s(record), derive.otps_per_s(record)
        if ttft is not None:
            self.ttft_s.append(ttft)
        if otps is not None:
            self.otps_per_s.append(otps)
        self.records.append(record)

    def itl_s(self) -> Quantiles | None:
        """Quantiles over the tokens of the latest records: a gap that brought k tokens counts k times."""
        found = [derive.itl(record) for record in self.records]
        if not any(gaps.size for gaps, _ in found):
            return None
        return _quantiles(np.concatenate([np.repeat(gaps, tokens) for gaps, tokens in found]))


class StageFigures:
    """The figures of one stage: latencies by tier, errors by outcome, rates."""

    def __init__(self, tiers: Sequence[str]) -> None:
        records = max(4, _KEPT_RECORDS // max(1, len(tiers)))
        self.tiers = {tier: TierFigures(records) for tier in tiers}
        self.errors: Counter[str] = Counter()
        self._events = self._coalesced = 0
        self._marks: deque[tuple[int, int, int]] = deque(maxlen=_RATE_MARKS)

    @property
    def coalesced_ratio(self) -> float:
        """Share of events that came in one read with an earlier one."""
        return self._coalesced / self._events if self._events else 0.0

    def add(self, record: RequestRecord) -> None:
        """Take in a request that ended."""
        if (tier := self.tiers.get(record.requested_tier)) is not None:
            tier.add(record)
        if record.outcome not in ("ok", "cancelled"):  # the latter is our own doing
            self.errors[record.outcome] += 1
        self._events += len(record.event_ns)
        self._coalesced += record.coalesced_events

    def rates(self, now_ns: int, counts: StageCounts) -> tuple[float, float]:
        """Requests started and ended per second, over the calls of the last five seconds (0 at first)."""
        self._marks.append((now_ns, counts.started, counts.ended))
        then_ns, started, ended = self._marks[0]
        took_s = (now_ns - then_ns) / 1e9
        if took_s <= 0:
            return 0.0, 0.0
        return (counts.started - started) / took_s, (counts.ended - ended) / took_s

    def statuses(self) -> list[TierStatus]:
        """What is shown of each tier."""
        return [
            TierStatus(
                tier=name,
                ended=tier.ended,
                failed=tier.failed,
                ttft_s=_quantiles(np.array(tier.ttft_s)),
                itl_s=tier.itl_s(),
                otps_per_s=_quantiles(np.array(tier.otps_per_s)),
            )
            for name, tier in self.tiers.items()
        ]

    def describe(self) -> str:
        """Medians of each tier that has any."""
        return " | ".join(_medians(name, tier) for name, tier in self.tiers.items() if tier.ttft_s)


def status(
    counts: StageCounts,
    figures: StageFigures,
    plan: Plan,
    *,
    now_ns: int,
    rates: tuple[float, float],
    client: ClientStatus,
) -> Status:
    """Everything that is shown of a run, with the stage ``counts`` is of under way."""
    stage = counts.stage
    return Status(
        at_s=now_ns / 1e9,
        stage=stage.name,
        stage_number=next((k for k, one in enumerate(plan.stages, 1) if one.name == stage.name), 0),
        stages=len(plan.stages),
        warmup=stage.warmup,
        ended=counts.ended,
        requests=stage.requests,
        elapsed_s=(now_ns - (counts.began_ns or now_ns)) / 1e9,
        duration_s=stage.duration_s,
        started_per_s=rates[0],
        ended_per_s=rates[1],
        open_loop=not isinstance(stage.arrivals, Closed),
        in_flight=counts.in_flight,
        tiers=figures.statuses(),
        errors=dict(figures.errors),
        client=client,
        cautions=cautions(client),
    )


def line(counts: StageCounts, figures: StageFigures, *, ended: bool = False) -> str:
    """One line: stage, done of total, in flight, failed, medians of each tier."""
    stage = counts.stage
    total = f"/{stage.requests}" if stage.requests is not None else ""
    shown = [f"{counts.ended}{total} requests"]
    if not ended:
        shown.append(f"{counts.in_flight} in flight")
    if counts.failed:
        why = shown_errors(figures.errors)
        shown.append(f"{counts.failed} failed" + (f" ({why})" if why else ""))
    parts = [", ".join(shown), figures.describe()]
    return f"{stage.name}{' (warm-up)' if stage.warmup else ''}: {' | '.join(part for part in parts if part)}"


def _quantiles(values: NDArray[np.float64]) -> Quantiles | None:
    return Quantiles(*np.quantile(values, (0.5, 0.95, 0.99)).tolist()) if values.size else None


def _medians(name: str, tier: TierFigures) -> str:
    ttft_ms = statistics.median(tier.ttft_s) * 1e3  # milliseconds: for reading only
    speed = f", {statistics.median(tier.otps_per_s):.1f} tokens/s" if tier.otps_per_s else ""
    return f"{name}: TTFT {ttft_ms:.0f} ms{speed}"
