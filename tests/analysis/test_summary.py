"""Numbers of one tier against what they were drawn from."""

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from analysis.analyze import analyze
from analysis.model import QuantileRow, TierSummary
from loadtest.records import RequestRecord

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Folder, Server


def summary_of(folder: "Folder", records: list[RequestRecord]) -> TierSummary:
    return analyze([folder(records)]).tiers[0]


def row(tier: TierSummary, metric: str) -> QuantileRow:
    return next(one for one in tier.quantiles if one.metric == metric)


@pytest.fixture
def drawn(draw: "type[Draw]", server: "type[Server]") -> Any:
    def make(**changes: float) -> list[RequestRecord]:
        return draw({"standard": server(**changes)}, per_tier=120).records()

    return make


def test_step_time_is_that_of_the_server_in_spite_of_stalls(folder: "Folder", drawn: Any) -> None:
    """A fifth of all gaps carry 60 ms of somebody's prefill: the mean doubles, the median stays."""
    tier = summary_of(folder, drawn(stalled=0.2))
    assert tier.step_s.value == pytest.approx(0.02, rel=0.01)
    assert tier.tokens_per_s.value == pytest.approx(50, rel=0.01)
    assert row(tier, "tpot").mean == pytest.approx(0.02 + 0.2 * 0.06, rel=0.05)
    assert tier.stalled_gap_ratio == pytest.approx(0.2, abs=0.02)


def test_quantiles_of_ttft_are_numpys_over_the_records(folder: "Folder", drawn: Any) -> None:
    records = drawn()
    ttft = np.array([(record.event_ns[0] - record.sent_ns) / 1e9 for record in records])
    found = row(summary_of(folder, records), "ttft")
    assert found.count == 120
    assert found.mean == pytest.approx(ttft.mean())
    for q, estimate in ((0.5, found.p50), (0.9, found.p90), (0.99, found.p99)):
        assert estimate.value == pytest.approx(np.quantile(ttft, q))
    assert found.p99.high is None  # 120 requests cannot bound a 99th percentile from above


def test_gaps_are_counted_by_token(folder: "Folder", drawn: Any) -> None:
    tier = summary_of(folder, drawn())
    assert row(tier, "itl").count == 120 * 32
    assert row(tier, "itl").p50.value == pytest.approx(0.02, rel=0.02)


def test_two_tokens_an_event_halve_the_gap_and_leave_the_step(folder: "Folder", drawn: Any) -> None:
    records = [
        msgspec.structs.replace(record, event_tokens=[1] + [2] * 32, output_tokens=65) for record in drawn()
    ]
    tier = summary_of(folder, records)
    assert tier.step_s.value == pytest.approx(0.02, rel=0.01)
    assert tier.tokens_per_delivery == pytest.approx(2.0)
    assert tier.tokens_per_s.value == pytest.approx(100, rel=0.01)
    assert row(tier, "itl").p50.value == pytest.approx(0.01, rel=0.02)


def test_latency_is_of_those_that_succeeded_and_counts_are_of_all(folder: "Folder", drawn: Any) -> None:
    records = drawn()
    records[:10] = [
        msgspec.structs.replace(record, outcome="timeout", event_ns=[], output_tokens=None)
        for record in records[:10]
    ]
    tier = summary_of(folder, records)
    assert tier.requests == 120
    assert tier.outcomes == {"ok": 110, "timeout": 10}
    assert row(tier, "ttft").count == 110
    assert tier.output_tokens == 110 * 33
    assert tier.echoed_tiers == {"default": 110}


def test_a_late_generator_shows_in_lag_and_in_ttft_from_scheduled_only(folder: "Folder", drawn: Any) -> None:
    records = drawn()
    late = [
        msgspec.structs.replace(record, scheduled_ns=record.scheduled_ns - 30_000_000) for record in records
    ]
    tier = summary_of(folder, late)
    assert row(tier, "lag").p50.value == pytest.approx(0.03)
    shift = (row(tier, "ttft_from_scheduled").mean or 0) - (row(tier, "ttft").mean or 0)
    assert shift == pytest.approx(0.03)
