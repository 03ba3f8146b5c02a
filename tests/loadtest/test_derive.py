"""Latencies and speeds in closed form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import derive
from loadtest.records import RequestRecord

MS = 1_000_000


def record(event_ms: list[float], **more: object) -> RequestRecord:
    fields: dict[str, object] = {
        "index": 0,
        "stage": "s",
        "requested_tier": "t",
        "model": "m",
        "prompt_class_tokens": 8,
        "max_tokens": 8,
        "scheduled_ns": 1 * MS,
        "sent_ns": 3 * MS,
        "ended_ns": 100 * MS,
        "outcome": "ok",
        "stamp_source": "virtual",
        "event_ns": [round(instant * MS) for instant in event_ms],
    }
    return RequestRecord(**(fields | more))  # type: ignore[arg-type]


def test_latencies_are_kept_from_sent_and_from_scheduled() -> None:
    seen = record([13, 20], first_text_ns=20 * MS)
    assert derive.lag_s(seen) == pytest.approx(0.002)
    assert derive.ttft_s(seen) == pytest.approx(0.010)
    assert derive.ttft_from_scheduled_s(seen) == pytest.approx(0.012)
    assert derive.first_text_s(seen) == pytest.approx(0.017)
    assert derive.e2e_s(seen) == pytest.approx(0.097)


def test_what_did_not_happen_has_no_latency() -> None:
    seen = record([], sent_ns=None)
    assert derive.lag_s(seen) is None
    assert derive.e2e_s(seen) is None
    assert derive.ttft_s(seen) is None
    assert derive.ttft_from_scheduled_s(seen) is None
    assert derive.tpot_s(seen) is None
    assert derive.otps_per_s(seen) is None
    assert derive.itl(seen)[0].size == 0


def test_an_answer_in_one_piece_has_an_end_to_end_time_and_nothing_else() -> None:
    seen = record([], streamed=False, output_tokens=50)
    assert derive.e2e_s(seen) == pytest.approx(0.097)
    assert derive.lag_s(seen) == pytest.approx(0.002)
    undefined = (
        derive.ttft_s,
        derive.ttft_from_scheduled_s,
        derive.first_text_s,
        derive.tpot_s,
        derive.otps_per_s,
    )
    assert [metric(seen) for metric in undefined] == [None] * 5
    assert derive.itl(seen)[0].size == 0


@given(st.integers(2, 200), st.floats(0.1, 1000), st.integers(0, 10**6))
def test_an_even_stream_has_its_gap_for_tpot_and_every_itl(count: int, gap_ms: float, start: int) -> None:
    events = [start + k * gap_ms for k in range(count)]
    seen = record(events, output_tokens=count)
    assert derive.tpot_s(seen) == pytest.approx(gap_ms / 1e3, rel=1e-4)
    gaps, tokens = derive.itl(seen)
    assert gaps == pytest.approx(np.full(count - 1, gap_ms / 1e3), rel=1e-4)
    assert tokens.tolist() == [1] * (count - 1)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 6)), min_size=1, max_size=40))
def test_gaps_weighted_by_their_tokens_add_up_to_the_span_and_to_tpot(steps: list[tuple[int, int]]) -> None:
    instants = np.cumsum([gap for gap, _ in steps]).tolist()
    tokens = [count for _, count in steps]
    seen = record(instants, event_tokens=tokens, output_tokens=sum(tokens))
    gaps, counts = derive.itl(seen)
    assert (counts > 0).all()
    assert float(gaps @ counts) == pytest.approx((instants[-1] - instants[0]) / 1e3)
    tpot = derive.tpot_s(seen)
    if tpot is None:
        assert instants[0] == instants[-1]
    else:
        assert float(gaps @ counts) / counts.sum() == pytest.approx(tpot)
        assert derive.otps_per_s(seen) == pytest.approx(1 / tpot)
        assert math.isfinite(tpot)


@pytest.mark.parametrize(
    ("events", "tokens"),
    [([10], 1), ([10], 5), ([10, 10, 10], 3), ([10, 20], 1), ([10, 20], None), ([10, 20], 0)],
)
def test_a_speed_that_is_not_defined_is_none_never_zero_or_infinite(
    events: list[float], tokens: int | None
) -> None:
    seen = record(events, output_tokens=tokens)
    assert derive.tpot_s(seen) is None
    assert derive.otps_per_s(seen) is None


def test_events_of_one_read_are_one_delivery_of_their_tokens() -> None:
    seen = record([10, 10, 30, 30, 40], output_tokens=5)
    instants, tokens = derive.deliveries(seen)
    assert (instants // MS).tolist() == [10, 30, 40]
    assert tokens.tolist() == [2, 2, 1]
    gaps, counts = derive.itl(seen)
    assert gaps.tolist() == pytest.approx([0.010, 0.010])
    assert counts.tolist() == [2, 1]
    assert derive.tpot_s(seen) == pytest.approx(0.010)


def test_tokens_that_only_usage_knows_of_are_spread_over_later_deliveries() -> None:
    seen = record([85, 111, 137, 163, 189], output_tokens=14)
    assert derive.tpot_s(seen) == pytest.approx(0.008)
    gaps, counts = derive.itl(seen)
    assert counts.sum() == 13
    assert counts.max() - counts.min() <= 1
    assert float(gaps @ counts) == pytest.approx(0.104)


def test_an_event_without_a_token_moves_no_gap() -> None:
    seen = record([10, 15, 30], event_tokens=[1, 0, 2], output_tokens=3)
    gaps, counts = derive.itl(seen)
    assert (gaps.tolist(), counts.tolist()) == (pytest.approx([0.010]), [2])


def test_fewer_tokens_than_events_leave_one_token_a_gap() -> None:
    assert derive.itl(record([10, 20, 30], output_tokens=1))[1].tolist() == [1, 1]
