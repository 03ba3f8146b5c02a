"""Equivalence of prefill: closed-form p-values, margins, and laws that do not belong together."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis import prefill
from analysis.model import Estimate
from analysis.ttft_law import MODEL_FLOOR, TtftLaw

NAMES = ("standard", "fast")
LENGTHS = np.array([128.0, 2048.0, 8192.0, 16384.0])
LEVELS_S = np.array([0.04, 0.07, 0.18, 0.34])
LAW = TtftLaw(
    lengths=LENGTHS,
    levels_s=LEVELS_S,
    fewest=20,
    queued_ratio=0.3,
    queue_mean_s=0.05,
    noise_ratio=0.02,
    noise_s=0.004,
    curvature_error=0.015,
    bend_error_s=1e-11,
)


def faster(ratio: float, error: float = 0.015) -> TtftLaw:
    return replace(LAW, levels_s=0.04 + (LEVELS_S - 0.04) / ratio, curvature_error=error)


def test_equal_increments_are_unchanged_with_the_p_value_of_two_one_sided_tests() -> None:
    found = prefill.compare(LAW, LAW, margin=0.10, names=NAMES)
    error = math.hypot(0.015, 0.015, MODEL_FLOOR)
    assert found.answer == "unchanged"
    assert found.standard_error == pytest.approx(error)
    assert found.p_value == pytest.approx(float(stats.norm.sf(math.log(1.1) / error)))
    assert found.speed_ratio.value == pytest.approx(1.0)


def test_a_true_ten_percent_is_called_unchanged_in_less_than_five_of_a_hundred_runs() -> None:
    rng = np.random.default_rng(1)
    found = [
        prefill.compare(LAW, faster(1.1 * math.exp(rng.normal(0, 0.022))), margin=0.10, names=NAMES).answer
        for _ in range(500)
    ]
    assert found.count("unchanged") / 500 <= 0.05


@pytest.mark.parametrize("ratio", [2.0, 0.5])
def test_twice_or_half_the_prefill_speed_is_changed(ratio: float) -> None:
    found = prefill.compare(LAW, faster(ratio), margin=0.10, names=NAMES)
    assert found.answer == "changed"
    assert found.speed_ratio.value == pytest.approx(ratio)


def test_a_wide_error_shows_nothing() -> None:
    found = prefill.compare(faster(1.0, 0.08), faster(1.0, 0.08), margin=0.10, names=NAMES)
    assert found.answer == "inconclusive"


def test_a_wide_error_takes_three_of_itself_to_show_a_change() -> None:
    assert prefill.compare(LAW, faster(1.25, 0.09), margin=0.10, names=NAMES).answer == "inconclusive"
    assert prefill.compare(LAW, faster(1.60, 0.09), margin=0.10, names=NAMES).answer == "changed"


def test_a_wider_margin_forgives_more() -> None:
    assert prefill.compare(LAW, faster(1.12), margin=0.10, names=NAMES).answer != "unchanged"
    assert prefill.compare(LAW, faster(1.12), margin=0.25, names=NAMES).answer == "unchanged"


def test_laws_are_compared_over_the_lengths_they_share() -> None:
    """The same server, seen up to 16,384 tokens on one tier and up to 14,000 on the other."""
    seen = np.array([128.0, 2048.0, 8192.0, 14000.0])
    short = replace(LAW, lengths=seen, levels_s=LAW.ttft_s(seen))
    found = prefill.compare(LAW, short, margin=0.10, names=NAMES)
    assert found.speed_ratio.value == pytest.approx(1.0, abs=1e-9)


def test_laws_that_hardly_share_lengths_are_not_compared() -> None:
    found = prefill.compare(LAW, replace(LAW, lengths=LENGTHS / 4), margin=0.10, names=NAMES)
    assert found.answer == "inconclusive"
    assert "hardly overlap" in found.sentence


def test_a_queue_that_hardly_anybody_escapes_is_not_taken_for_prefill() -> None:
    heavy = replace(LAW, queued_ratio=0.85, queue_mean_s=0.3)
    few = replace(LAW, queued_ratio=0.7, fewest=8)
    for law in (heavy, few):
        found = prefill.compare(LAW, law, margin=0.10, names=NAMES)
        assert found.answer == "inconclusive"
        assert "queue" in found.sentence
        assert found.speed_ratio.value is None


def test_an_increment_lost_in_the_noise_gives_no_number_and_says_what_would_help() -> None:
    for error in (0.6, 1e4):
        found = prefill.compare(faster(1.0, error), LAW, margin=0.10, names=NAMES)
        assert found.answer == "inconclusive"
        assert found.speed_ratio == Estimate(value=None)
        assert "longer prompts would help" in found.sentence
