"""The benchmark's comparison of stamps with the truth, against errors that were put in."""

import numpy as np
import pytest

from bench.limits import growth
from bench.load import Drive
from bench.stamp_errors import compare, spread
from bench.truth import Answer, connections, late_p99_s
from loadtest.records import RequestRecord, Run

ZERO_NS = 1_000_000_000
GAP_NS = 20_000_000


def answer(index: int, late_ns: int = 0) -> Answer:
    due_ns = ZERO_NS + 100_000_000
    sent_ns = [due_ns + k * GAP_NS + late_ns for k in range(10)]
    return Answer(
        id=f"bench-{index}",
        connection=index,
        arrived_ns=ZERO_NS,
        due_ns=due_ns,
        gap_ns=GAP_NS,
        sent_ns=sent_ns,
    )


def record(index: int, event_ns: list[int], sent_ns: int = 0) -> RequestRecord:
    return RequestRecord(
        index=index,
        stage="measured",
        requested_tier="only",
        model="ref",
        prompt_class_tokens=16,
        max_tokens=10,
        scheduled_ns=0,
        outcome="ok",
        stamp_source="kernel",
        ended_ns=10**9,
        sent_ns=sent_ns,
        event_ns=event_ns,
    )


def stamped(answer: Answer, late_ns: int) -> list[int]:
    return [sent_ns - ZERO_NS + late_ns for sent_ns in answer.sent_ns]


def test_an_offset_of_all_stamps_is_an_error_of_the_stamp_and_the_ttft_and_of_no_gap() -> None:
    true = answer(0)
    errors = compare([record(0, stamped(true, 7_000))], [true], run_id="bench", zero_ns=ZERO_NS)
    assert errors.first_stamp.p50_s == pytest.approx(7e-6)
    assert errors.ttft.mean_s == pytest.approx(7e-6)
    assert errors.gap.p99_s == 0
    assert errors.late_ratio == 0


def test_a_sending_instant_noted_late_makes_the_ttft_too_short() -> None:
    true = answer(0)
    errors = compare([record(0, stamped(true, 0), sent_ns=4_000)], [true], run_id="bench", zero_ns=ZERO_NS)
    assert errors.ttft.mean_s == pytest.approx(-4e-6)
    assert errors.first_stamp.p99_s == 0


def test_one_late_event_of_ten_is_a_tenth_and_spoils_two_gaps() -> None:
    true = answer(0)
    event_ns = stamped(true, 0)
    event_ns[5] += 2_000_000
    errors = compare([record(0, event_ns)], [true], run_id="bench", zero_ns=ZERO_NS)
    assert errors.late_ratio == pytest.approx(0.1)
    assert errors.gap.mean_s == pytest.approx(0, abs=1e-12)
    assert errors.gap.p99_s == pytest.approx(2e-3)


def test_an_event_that_is_missing_ends_the_benchmark() -> None:
    true = answer(0)
    with pytest.raises(SystemExit, match="9 events came, 10 were sent"):
        compare([record(0, stamped(true, 0)[:-1])], [true], run_id="bench", zero_ns=ZERO_NS)


def test_nothing_has_no_error() -> None:
    assert spread([]) == (0.0, 0.0, 0.0)


def test_the_servers_own_lateness_is_told_apart_from_its_schedule() -> None:
    assert late_p99_s([answer(0, late_ns=3_000_000)]) == pytest.approx(3e-3)
    assert late_p99_s([]) == 0
    assert connections([answer(0), answer(1), answer(1)]) == 2


def test_memory_that_grows_a_byte_a_request_has_that_slope() -> None:
    ended_ns = np.arange(1, 100_001) * 100_000  # 10 s
    seconds = np.arange(0, 10, 0.05)
    rss_mb = 80 + np.searchsorted(ended_ns, seconds * 1e9) * 1e-6
    samples = np.column_stack((seconds, seconds, rss_mb))
    made = Drive(Run(info=None, records=[], notes=[]), samples)  # type: ignore[arg-type]
    slope, last = growth(made, ended_ns)
    assert slope == pytest.approx(1.0, rel=1e-3)
    assert last == pytest.approx(80.1, abs=0.01)
