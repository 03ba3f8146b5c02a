"""Intervals against binomial arithmetic, known long-run variances, and coverage over seeded ensembles."""

import math

import numpy as np
import pytest
from scipy import stats

from analysis import intervals
from analysis.intervals import Floats
from analysis.model import Estimate


def ar1(rng: np.random.Generator, count: int, memory: float) -> Floats:
    """A stationary AR(1) series with variance 1."""
    shocks = rng.normal(0, math.sqrt(1 - memory**2), count)
    series = np.empty(count)
    series[0] = rng.normal()
    for i in range(1, count):
        series[i] = memory * series[i - 1] + shocks[i]
    return series


def covers(found: Estimate, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= truth <= found.high


def test_binomial_quantiles_are_scipys() -> None:
    for n in (1, 2, 7, 50, 51, 999, 40_000):
        for q in (0.001, 0.05, 0.5, 0.9, 0.99, 0.999):
            for p in (1e-9, 0.005, 0.025, 0.05, 0.5, 0.95, 0.975, 0.995, 1 - 1e-9):
                assert intervals.binomial_quantile(p, n, q) == int(stats.binom.ppf(p, n, q)), (p, n, q)


def test_the_interval_of_a_median_of_fifty_is_that_of_the_textbooks() -> None:
    """Order statistics 18 and 33 of 50: P = 0.967 (Conover, Practical Nonparametric Statistics)."""
    found = intervals.quantile(np.arange(1.0, 51.0), 0.5)
    assert (found.value, found.low, found.high) == (25.5, 18.0, 33.0)


@pytest.mark.parametrize(("count", "q"), [(20, 0.5), (160, 0.9), (160, 0.95), (500, 0.99)])
def test_order_statistics_cover_a_quantile_as_often_as_they_say(count: int, q: float) -> None:
    rng = np.random.default_rng(1)
    truth = float(stats.lognorm.ppf(q, 1))
    hits = sum(covers(intervals.quantile(rng.lognormal(0, 1, count), q), truth) for _ in range(500))
    assert 0.94 <= hits / 500 <= 0.995  # discrete, so a little more than 0.95


def test_too_few_values_leave_the_side_open_that_they_cannot_bound() -> None:
    found = intervals.quantile(np.arange(50.0), 0.99)
    assert found.high is None
    assert found.low is not None
    assert intervals.quantile(np.array([]), 0.5) == Estimate(value=None)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
def test_the_error_of_a_mean_is_that_of_the_long_run_variance(memory: float) -> None:
    """Of an AR(1) process with variance 1 it is √((1 + φ)/(1 − φ)/n)."""
    rng = np.random.default_rng(2)
    errors = [intervals.mean_error(ar1(rng, 4000, memory))[1] for _ in range(30)]
    assert np.mean(errors) == pytest.approx(math.sqrt((1 + memory) / (1 - memory) / 4000), rel=0.12)


def test_one_value_has_a_mean_and_no_error() -> None:
    mean, error, _ = intervals.mean_error(np.array([3.0]))
    assert mean == 3.0
    assert math.isnan(error)


def test_blocks_grow_with_memory_and_never_leave_fewer_than_five() -> None:
    rng = np.random.default_rng(3)
    short, long = (intervals.block_length(ar1(rng, 2000, memory)) for memory in (0.0, 0.9))
    assert short == intervals.SHORTEST_BLOCK
    assert 30 <= long <= 120  # three autocorrelation times of (1 + φ)/(1 − φ) = 19
    assert intervals.block_length(ar1(rng, 40, 0.99)) == 8
    assert intervals.block_length(np.ones(3)) == 1


@pytest.mark.parametrize("memory", [0.0, 0.6])
def test_the_interval_of_a_median_covers_it_under_autocorrelation(memory: float) -> None:
    rng = np.random.default_rng(4)
    hits = sum(covers(intervals.median(np.exp(0.1 * ar1(rng, 160, memory))), 1.0) for _ in range(150))
    assert hits / 150 >= 0.90


def test_a_bootstrap_is_the_same_for_the_same_data() -> None:
    x = np.random.default_rng(5).lognormal(0, 0.1, 50)
    assert intervals.median(x) == intervals.median(x.copy())


def test_below_eight_values_a_median_has_no_interval() -> None:
    found = intervals.median(np.array([1.0, 2.0, 4.0]))
    assert (found.value, found.low, found.high) == (2.0, None, None)


def test_values_pooled_over_clusters_are_counted_by_cluster() -> None:
    """100 clusters of 50 equal values say as much as 100 values: naive ones are seven times too narrow."""
    rng = np.random.default_rng(6)
    offsets = np.arange(0, 5001, 50)
    hits = 0
    for _ in range(100):
        x = np.repeat(rng.lognormal(0, 1, 100), 50)
        found = intervals.clustered_quantile(x, np.ones(5000), offsets, 0.5, ordered=np.argsort(x))
        hits += covers(found, 1.0)
    assert hits >= 88


def test_weights_count_as_so_many_values() -> None:
    x, weight = np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 8.0])
    found = intervals.clustered_quantile(x, weight, np.array([0, 3]), 0.5, ordered=np.argsort(x))
    assert found.value == 3.0


@pytest.mark.parametrize(
    ("low", "high", "inside", "outside"),
    [
        (0.97, 1.03, True, False),
        (0.93, 1.04, False, False),
        (1.06, 1.2, False, True),
        (0.8, 0.9, False, True),
    ],
)
def test_a_ratio_is_inside_a_margin_or_outside_or_neither(
    low: float, high: float, inside: bool, outside: bool
) -> None:
    ratio = Estimate(value=math.sqrt(low * high), low=low, high=high)
    assert intervals.inside(ratio, 0.05) is inside
    assert intervals.outside(ratio, 0.05) is outside


def test_nothing_is_inside_or_outside_without_an_interval() -> None:
    assert not intervals.inside(intervals.NOTHING, 0.1)
    assert not intervals.outside(intervals.NOTHING, 0.1)
