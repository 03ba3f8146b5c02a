"""Columns against the load generator's own derivations, record by record: two implementations, one truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import deliveries, table
from analysis.latency import with_latencies
from loadtest import derive
from loadtest.records import RequestRecord


@st.composite
def a_record(draw: st.DrawFn) -> RequestRecord:
    sent = draw(st.one_of(st.none(), st.integers(0, 10**9)))
    gaps = draw(
        st.lists(st.sampled_from([0, 0, 50_000, 200_000, 200_001, 7_000_000, 20_000_000]), max_size=15)
    )
    event_ns = np.cumsum([(sent or 0) + 10**8, *gaps])[: len(gaps)].tolist() if gaps else []
    told = draw(st.booleans()) and bool(event_ns)
    tokens = [draw(st.integers(0, 4)) for _ in event_ns] if told else None
    output = draw(st.one_of(st.none(), st.integers(0, 40)))
    return RequestRecord(
        index=0,
        stage="s",
        requested_tier="t",
        model="m",
        prompt_class_tokens=10,
        max_tokens=40,
        scheduled_ns=draw(st.integers(0, 10**9)),
        outcome="ok",
        stamp_source="kernel",
        ended_ns=10**12,
        sent_ns=sent,
        first_text_ns=draw(st.one_of(st.none(), st.integers(10**9, 10**10))),
        event_ns=event_ns,
        event_tokens=tokens,
        output_tokens=sum(tokens) if tokens is not None else output,
    )


RECORDS = st.lists(a_record(), min_size=1, max_size=6)


@given(RECORDS)
def test_latencies_are_those_that_the_load_generator_derives(records: list[RequestRecord]) -> None:
    got = with_latencies(table.from_records(records))
    for column, function in (
        ("lag_s", derive.lag_s),
        ("ttft_s", derive.ttft_s),
        ("ttft_from_scheduled_s", derive.ttft_from_scheduled_s),
        ("first_text_s", derive.first_text_s),
        ("e2e_s", derive.e2e_s),
        ("tpot_s", derive.tpot_s),
        ("otps", derive.otps_per_s),
    ):
        want = [np.nan if (value := function(record)) is None else value for record in records]
        np.testing.assert_allclose(got.column(column), want, rtol=1e-9, atol=1e-12, err_msg=column)


@given(RECORDS)
def test_inter_token_gaps_are_those_that_the_load_generator_counts(records: list[RequestRecord]) -> None:
    gaps = deliveries.gaps(table.from_records(records))
    for row, record in enumerate(records):
        mine = slice(gaps.offsets[row], gaps.offsets[row + 1])
        want_s, want_tokens = derive.itl(record)
        np.testing.assert_array_equal(gaps.tokens[mine], want_tokens)
        np.testing.assert_allclose(gaps.gap_ns[mine] / 1e9 / gaps.tokens[mine], want_s, rtol=1e-12)


def record_of(event_ns: list[int], **fields: object) -> RequestRecord:
    return RequestRecord(
        **{
            "index": 0,
            "stage": "s",
            "requested_tier": "t",
            "model": "m",
            "prompt_class_tokens": 10,
            "max_tokens": 40,
            "scheduled_ns": 0,
            "sent_ns": 0,
            "outcome": "ok",
            "stamp_source": "kernel",
            "ended_ns": 10**10,
            "event_ns": event_ns,
            **fields,
        }  # type: ignore[arg-type]
    )


def test_events_of_one_step_are_one_delivery() -> None:
    """A speculating server sends three tokens 0.05 ms apart, every 10 ms."""
    events = [step * 10_000_000 + k * 50_000 for step in range(10) for k in range(3)]
    requests = table.from_records([record_of(events, output_tokens=30)])
    gaps = deliveries.gaps(requests, together_ns=deliveries.STEP_NS)
    assert gaps.gap_ns.tolist() == [10_000_000] * 9
    assert gaps.tokens.tolist() == [3.0] * 9


def test_a_gap_begins_where_the_delivery_before_it_arrived() -> None:
    requests = table.from_records([record_of([5, 1_000_005, 3_000_005]), record_of([]), record_of([9])])
    gaps = deliveries.gaps(requests)
    assert gaps.begin_ns.tolist() == [5, 1_000_005]
    assert gaps.offsets.tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize("keep", [[True, False, True], [False, False, False]])
def test_choosing_requests_chooses_their_gaps(keep: list[bool]) -> None:
    records = [record_of([0, 10**6 * (row + 1)]) for row in range(3)]
    gaps = deliveries.gaps(table.from_records(records)).where(np.array(keep))
    assert gaps.gap_ns.tolist() == [10**6 * (row + 1) for row in range(3) if keep[row]]
