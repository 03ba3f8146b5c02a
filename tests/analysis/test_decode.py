"""The paired decode test: its false alarms, its power, its pairs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import decode, table
from analysis.decode import Pairs
from analysis.intervals import Floats
from analysis.latency import with_latencies
from analysis.lengths import with_classes
from analysis.table import Requests
from loadtest.records import RequestRecord

NAMES = ("standard", "fast")


def ar1(rng: np.random.Generator, count: int, memory: float) -> Floats:
    series = rng.normal(size=count)
    for i in range(1, count):
        series[i] = memory * series[i - 1] + math.sqrt(1 - memory**2) * series[i]
    return series


def drawn(rng: np.random.Generator, count: int, ratio: float, *, memory: float = 0.5) -> Pairs:
    """Two tiers with 12 % of scatter in TPOT and 3 % in step time, both autocorrelated."""
    slow, fast = (0.03 * ar1(rng, count, memory) for _ in range(2))
    return Pairs(
        log_ratio=math.log(ratio) + 0.12 * math.sqrt(2) * ar1(rng, count, memory),
        baseline_step_s=0.02 * ratio * np.exp(slow),
        compared_step_s=0.02 * np.exp(fast),
    )


def answers(ratio: float, *, count: int, runs: int, margin: float = 0.05, memory: float = 0.5) -> list[str]:
    rng = np.random.default_rng(11)
    return [
        decode.compare(drawn(rng, count, ratio, memory=memory), margin=margin, names=NAMES).answer
        for _ in range(runs)
    ]


def test_equal_tiers_are_called_changed_in_less_than_eight_of_a_hundred_runs_of_eighty() -> None:
    found = answers(1.0, count=80, runs=200)
    assert found.count("changed") / 200 <= 0.08


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.7])
def test_the_p_value_alone_is_honest_under_autocorrelation(memory: float) -> None:
    rng = np.random.default_rng(12)
    tests = [
        decode.compare(drawn(rng, 80, 1.0, memory=memory), margin=0.05, names=NAMES).p_value or 0.0
        for _ in range(300)
    ]
    assert np.mean(np.array(tests) < 0.05) <= 0.09


def test_a_change_of_ten_percent_is_found_in_nine_of_ten_runs_of_a_hundred_and_sixty() -> None:
    assert answers(1.10, count=160, runs=50, memory=0.2).count("changed") >= 45


def test_a_fast_tier_is_called_changed_with_the_right_ratio() -> None:
    found = decode.compare(drawn(np.random.default_rng(13), 80, 2.5), margin=0.05, names=NAMES)
    assert found.answer == "changed"
    assert found.speed_ratio.low is not None
    assert found.speed_ratio.high is not None
    assert found.speed_ratio.low < 2.5 < found.speed_ratio.high
    assert "fast decodes 2.5" in found.sentence


def test_a_slow_tier_is_changed_as_well() -> None:
    found = decode.compare(drawn(np.random.default_rng(14), 80, 0.5), margin=0.05, names=NAMES)
    assert found.answer == "changed"
    assert (found.speed_ratio.value or 9) < 0.6


def test_equal_tiers_are_shown_to_be_equal_by_enough_requests() -> None:
    assert answers(1.0, count=160, runs=40, memory=0.2).count("unchanged") >= 36


def test_a_difference_inside_a_wide_margin_is_no_change() -> None:
    assert answers(1.03, count=160, runs=20, margin=0.15, memory=0.2).count("unchanged") >= 18


def test_unequal_stalls_with_equal_steps_are_not_called_unchanged() -> None:
    pairs = drawn(np.random.default_rng(15), 160, 1.0, memory=0.0)
    stalled = Pairs(pairs.log_ratio + 0.3, pairs.baseline_step_s, pairs.compared_step_s)
    found = decode.compare(stalled, margin=0.05, names=NAMES)
    assert found.answer == "inconclusive"
    assert "stalled" in found.sentence


@pytest.mark.parametrize("count", [0, 1, 7])
def test_too_few_pairs_are_inconclusive_whatever_they_say(count: int) -> None:
    found = decode.compare(drawn(np.random.default_rng(16), count, 9.0), margin=0.05, names=NAMES)
    assert found.answer == "inconclusive"
    assert found.pairs == count
    assert "too few" in found.sentence


def test_a_refusal_overrules_what_the_numbers_say() -> None:
    pairs = drawn(np.random.default_rng(17), 80, 2.5)
    found = decode.compare(pairs, margin=0.05, names=NAMES, refusal="every gap carries a prefill")
    assert found.answer == "inconclusive"
    assert "every gap carries a prefill" in found.sentence


def test_noiseless_tiers_differ_or_agree_for_certain() -> None:
    flat = np.ones(20)
    same = Pairs(0 * flat, 0.02 * flat, 0.02 * flat)
    other = Pairs(math.log(2) * flat, 0.04 * flat, 0.02 * flat)
    assert decode.compare(same, margin=0.05, names=NAMES).answer == "unchanged"
    assert decode.compare(other, margin=0.05, names=NAMES).answer == "changed"


def requests(rows: list[tuple[str, float, int, float]]) -> Requests:
    """Rows of (stage, sent_s, prompt class, TPOT in s), each with eleven tokens."""
    records = [
        RequestRecord(
            index=number,
            stage=stage,
            requested_tier="t",
            model="m",
            prompt_class_tokens=length,
            max_tokens=11,
            scheduled_ns=0,
            outcome="ok",
            stamp_source="kernel",
            ended_ns=10**12,
            sent_ns=round(sent_s * 1e9),
            event_ns=[round((sent_s + 1 + tpot_s * k) * 1e9) for k in range(11)],
            output_tokens=11,
        )
        for number, (stage, sent_s, length, tpot_s) in enumerate(rows)
    ]
    found = with_classes(with_latencies(table.from_records(records)), [])
    frame = found.frame.assign(step_s=found.frame["tpot_s"])
    return Requests(frame, found.event_ns, found.event_tokens, found.offsets)


def test_pairs_never_cross_a_stage() -> None:
    left = requests([("a", 0, 128, 0.02), ("a", 1, 128, 0.02), ("b", 2, 128, 0.04)])
    right = requests([("a", 0, 128, 0.01), ("b", 2, 128, 0.02), ("b", 3, 128, 0.02)])
    pairs = decode.pair(left, right)
    assert pairs.log_ratio.size == 2
    np.testing.assert_allclose(pairs.baseline_step_s / pairs.compared_step_s, 2.0, rtol=1e-6)


def test_a_length_that_is_slow_on_both_tiers_adds_no_scatter() -> None:
    rows = [("a", float(k), (128, 16384)[k % 2], (0.02, 0.06)[k % 2]) for k in range(20)]
    swapped = [("a", float(k), (16384, 128)[k % 2], (0.06, 0.02)[k % 2]) for k in range(20)]
    pairs = decode.pair(requests(rows), requests(swapped))
    np.testing.assert_allclose(pairs.log_ratio, 0.0, atol=1e-6)


TIMES = st.lists(st.floats(0, 100), max_size=20).map(sorted)


@given(TIMES, TIMES)
def test_partners_are_in_order_none_twice_and_as_many_as_there_can_be(a: list[float], b: list[float]) -> None:
    left, right = decode.nearest_in_order(np.array(a), np.array(b))
    assert left.size == right.size == min(len(a), len(b))
    for places, size in ((left, len(a)), (right, len(b))):
        assert (np.diff(places) > 0).all()
        assert ((places >= 0) & (places < size)).all()


def test_a_gap_in_one_tier_is_bridged_by_its_neighbours_in_time() -> None:
    left, right = decode.nearest_in_order(np.array([0.0, 50.0, 51.0]), np.arange(0.0, 100.0))
    assert left.tolist() == [0, 1, 2]
    assert right.tolist() == [0, 50, 51]
