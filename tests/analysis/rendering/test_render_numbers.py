"""Numbers as people read them: digits, units and intervals, checked by reading them back."""

import math
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analysis import numbers
from analysis.model import Estimate

SIZES = st.floats(min_value=1e-5, max_value=1e7)


def read(text: str) -> list[float]:
    """Read all numbers in a text back."""
    return [float(x.replace(",", "").replace("−", "-")) for x in re.findall(r"−?[\d,]+(?:\.\d+)?", text)]


@settings(deadline=None)
@given(SIZES)
def test_a_number_is_written_to_three_significant_digits(value: float) -> None:
    (back,) = read(numbers.number(value))
    assert back == pytest.approx(value, rel=0.00501)


@settings(deadline=None)
@given(st.floats(min_value=1e-6, max_value=500))
def test_a_duration_below_ten_minutes_has_one_to_three_digits_before_the_point(seconds: float) -> None:
    text = numbers.duration(seconds)
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[text.split()[1]]
    (back,) = read(text)
    assert back < 1000
    assert back * scale == pytest.approx(seconds, rel=0.00501)


@settings(deadline=None)
@given(SIZES, st.floats(min_value=1e-4, max_value=0.25), st.floats(min_value=1e-4, max_value=0.25))
def test_an_interval_holds_its_value_and_shares_its_decimals(
    value: float, below: float, above: float
) -> None:
    found = Estimate(value=value, low=value * (1 - below), high=value * (1 + above))
    text = numbers.estimate(found, numbers.RATIO)
    middle, low, high = read(text)
    assert low <= middle <= high
    assert low < high  # an interval that has a width shows one
    decimals = {len(x.partition(".")[2]) for x in re.findall(r"[\d,]+(?:\.\d+)?", text)}
    assert len(decimals) == 1


@settings(deadline=None)
@given(SIZES, SIZES, SIZES)
def test_an_interval_of_any_width_is_read_back_in_order(a: float, b: float, c: float) -> None:
    low, value, high = sorted((a, b, c))
    assume(low < high)
    middle, first, last = read(numbers.estimate(Estimate(value=value, low=low, high=high), numbers.PLAIN))
    assert first <= middle <= last
    assert middle == pytest.approx(value, rel=0.0501)


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (2.509, 2.468, 2.551, "2.51× (2.47–2.55)"),
        (0.999, 0.976, 1.023, "1.00× (0.98–1.02)"),
        (35.0, 3.0, 400.0, "35× (3–400)"),
        (2.5, None, None, "2.50×"),
        (2.5, 2.4, None, "2.50× (≥ 2.40)"),
        (None, 2.468, None, "≥ 2.47×"),
        (None, None, 9.0, "≤ 9.00×"),
        (None, 3.1, 40.0, "3–40×, not identified"),
        (None, None, None, "not identified"),
        (-1.2, -2.0, 0.5, "−1.2× (−2.0 to 0.5)"),
    ],
)
def test_intervals_bounds_and_their_absence_are_told_apart(
    value: float | None, low: float | None, high: float | None, text: str
) -> None:
    assert numbers.estimate(Estimate(value=value, low=low, high=high), numbers.RATIO) == text


def test_another_level_than_95_percent_is_said() -> None:
    found = Estimate(value=2.0, low=1.9, high=2.1, level=0.9)
    assert numbers.estimate(found, numbers.RATIO) == "2.00× (1.90–2.10 at 90 %)"


@pytest.mark.parametrize(
    ("level", "shown"), [(0.9, "90 %"), (0.963, "96.3 %"), (0.99811, "99.81 %"), (0.9999853, "99.9985 %")]
)
def test_a_level_near_certainty_is_never_written_as_certainty(level: float, shown: str) -> None:
    found = Estimate(value=2.0, low=1.9, high=2.1, level=level)
    assert numbers.estimate(found, numbers.RATIO).endswith(f"at {shown})")


def test_counts_have_no_decimals_where_they_would_be_invented() -> None:
    assert numbers.estimate(Estimate(value=64.0, low=64.0, high=64.0), numbers.COUNT) == "64 (64–64)"
    assert numbers.estimate(Estimate(value=118.3, low=97.0, high=141.0), numbers.COUNT) == "118 (97–141)"
    assert numbers.estimate(Estimate(value=1.4, low=1.0, high=2.1), numbers.COUNT) == "1.4 (1.0–2.1)"


@pytest.mark.parametrize("absent", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_never_printed_as_one(absent: float | None) -> None:
    assert numbers.number(absent, numbers.RATIO) == "–"
    assert numbers.duration(absent) == "–"
    assert numbers.share(absent) == "–"
    assert numbers.tokens(absent) == "–"
    assert numbers.probability(absent) == "–"
    assert (
        numbers.estimate(Estimate(value=absent, low=absent, high=absent), numbers.RATIO) == "not identified"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (8.1e-4, "810 µs"), (0.99951e-3, "1.00 ms"), (0.9996, "1.00 s"), (640.0, "10.7 min")],
)
def test_a_duration_moves_to_the_next_unit_before_it_reads_1000(seconds: float, text: str) -> None:
    assert numbers.duration(seconds) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.0, "0 %"), (0.0004, "< 0.1 %"), (0.031, "3.1 %"), (0.9996, "100.0 %"), (1.0, "100 %")],
)
def test_a_share_says_none_and_all_only_when_it_is_so(ratio: float, text: str) -> None:
    assert numbers.share(ratio) == text
