"""The figures that are shown while a run lasts, against numpy over the same records."""

import itertools

import numpy as np
import pytest

from loadtest import derive, progress
from loadtest.counts import StageCounts
from loadtest.plan import Closed, Plan, Poisson, Stage, Tier, Workload
from loadtest.progress import StageFigures
from loadtest.records import OUTCOMES, RequestRecord
from loadtest.status import ClientStatus, Status, decode_line, encode_line

MS = 1_000_000
S = 1_000_000_000
CLIENT = ClientStatus(
    cpu_ratio=0.1, worst_lag_s=0.0, hub_late_s=0.001, stamp_source="kernel", coalesced_ratio=0.0
)
PLAN = Plan(
    name="p",
    tiers=(Tier(name="standard"), Tier(name="fast")),
    stages=(
        Stage(name="warmup", arrivals=Closed(streams=1), requests=2, warmup=True),
        Stage(name="compare", arrivals=Closed(streams=4), requests=90),
        Stage(name="open", arrivals=Poisson(rate_per_s=2), duration_s=30),
    ),
    workload=Workload(prompt_tokens=(64,), output_tokens=8),
)
RNG = np.random.default_rng(4)


def record(index: int, **more: object) -> RequestRecord:
    gaps = RNG.integers(5, 40, size=7) * MS
    fields: dict[str, object] = {
        "index": index, "stage": "compare", "requested_tier": ("standard", "fast")[index % 2], "model": "m",
        "prompt_class_tokens": 64, "max_tokens": 8, "scheduled_ns": 0, "sent_ns": MS, "ended_ns": 900 * MS,
        "outcome": "ok", "stamp_source": "kernel", "output_tokens": 8, "coalesced_events": 1,
        "event_ns": list(itertools.accumulate(gaps.tolist(), initial=int(RNG.integers(20, 99)) * MS)),
    }  # fmt: skip
    return RequestRecord(**(fields | more))  # type: ignore[arg-type]


def counts(number: int = 1, **more: int) -> StageCounts:
    made = StageCounts(PLAN.stages[number])
    made.began_ns = 10 * S
    for name, value in more.items():
        setattr(made, name, value)
    return made


def figures(*records: RequestRecord) -> StageFigures:
    made = StageFigures([tier.name for tier in PLAN.tiers])
    for one in records:
        made.add(one)
    return made


def test_quantiles_are_those_of_the_good_records_of_each_tier() -> None:
    good = [record(index) for index in range(40)]
    failed = [record(index, outcome="timeout", event_ns=[]) for index in range(40, 43)]
    for shown in figures(*good, *failed).statuses():
        mine = [one for one in good if one.requested_tier == shown.tier]
        assert shown.ended == 20 + shown.failed
        for quantiles, derived in ((shown.ttft_s, derive.ttft_s), (shown.otps_per_s, derive.otps_per_s)):
            values = [value for one in mine if (value := derived(one)) is not None]
            assert quantiles is not None
            assert (quantiles.p50, quantiles.p95, quantiles.p99) == pytest.approx(
                tuple(np.quantile(values, (0.5, 0.95, 0.99)))
            )


def test_itl_counts_each_token_of_the_latest_records() -> None:
    good = [record(index) for index in range(20)]
    for shown in figures(*good).statuses():
        gaps = np.concatenate([np.diff(one.event_ns) for one in good if one.requested_tier == shown.tier])
        assert shown.itl_s is not None
        assert shown.itl_s.p50 == pytest.approx(np.quantile(gaps, 0.5) / S)


def test_several_tokens_in_one_gap_weigh_as_many() -> None:
    one = record(0, event_ns=[0, 10 * MS, 50 * MS], event_tokens=[1, 1, 4], output_tokens=6)
    (shown, _) = figures(one).statuses()
    assert shown.itl_s is not None
    assert shown.itl_s.p50 == pytest.approx(0.010)  # five gaps, all of 10 ms


def test_errors_are_counted_by_outcome_and_coalesced_events_as_a_share() -> None:
    made = figures(
        record(0),
        record(1, outcome="rate_limited", event_ns=[], coalesced_events=0),
        record(2, outcome="timeout", event_ns=[], coalesced_events=0),
        record(3, outcome="rate_limited", event_ns=[], coalesced_events=0),
        record(4, outcome="cancelled", event_ns=[], coalesced_events=0),
    )
    assert [shown.failed for shown in made.statuses()] == [1, 2]
    assert made.errors == {"rate_limited": 2, "timeout": 1}
    assert set(made.errors) <= set(OUTCOMES)
    assert made.coalesced_ratio == 1 / 8


def test_memory_is_bounded_however_many_records_come() -> None:
    made = StageFigures(["standard"])
    same = record(0)
    for _ in range(5000):
        made.add(same)
    (tier,) = made.tiers.values()
    assert len(tier.ttft_s) == len(tier.otps_per_s) == 2000
    assert len(tier.records) <= 24
    assert tier.ended == 5000


def test_a_record_of_a_tier_that_is_not_shown_is_no_failure() -> None:
    made = StageFigures(())
    made.add(record(0))
    assert made.statuses() == []


def test_rates_are_over_the_last_five_seconds() -> None:
    made, seen = StageFigures(()), []
    for second in range(12):
        state = counts(started=3 * second, ended=sum(2 if k < 6 else 10 for k in range(second)))
        seen.append(made.rates(second * S, state))
    assert seen[0] == (0.0, 0.0)
    assert seen[3] == pytest.approx((3, 2))
    assert seen[-1] == pytest.approx((3, 10))


def test_a_status_says_where_the_stage_is_and_survives_its_line() -> None:
    made = figures(*(record(index) for index in range(6)))
    shown = progress.status(
        counts(started=9, ended=6), made, PLAN, now_ns=14 * S, rates=(2.0, 1.5), client=CLIENT
    )
    assert (shown.stage, shown.stage_number, shown.stages, shown.warmup) == ("compare", 2, 3, False)
    assert (shown.ended, shown.requests, shown.in_flight, shown.elapsed_s) == (6, 90, 3, 4.0)
    assert (shown.open_loop, shown.duration_s) == (False, None)
    assert decode_line(encode_line(shown)) == shown
    assert len(encode_line(shown)) < 4096  # so that a pipe takes it whole or not at all (pipe(7), PIPE_BUF)


def test_an_open_loop_that_ends_by_time_says_so() -> None:
    shown = progress.status(counts(2), figures(), PLAN, now_ns=14 * S, rates=(2.0, 1.5), client=CLIENT)
    assert (shown.open_loop, shown.requests, shown.duration_s) == (True, None, 30.0)
    assert isinstance(shown, Status)
    assert all(tier.ttft_s is None for tier in shown.tiers)


def test_a_line_says_done_of_total_failures_by_outcome_and_medians() -> None:
    made = figures(
        record(0, event_ns=[51 * MS, 61 * MS], output_tokens=2), record(1, outcome="timeout", event_ns=[])
    )
    state = counts(started=4, ended=2, failed=1)
    expected = (
        "compare: 2/90 requests, 2 in flight, 1 failed (1 timeout) | standard: TTFT 50 ms, 100.0 tokens/s"
    )
    assert progress.line(state, made) == expected
    assert "in flight" not in progress.line(state, made, ended=True)
    assert progress.line(counts(0), figures()) == "warmup (warm-up): 0/2 requests, 0 in flight"
