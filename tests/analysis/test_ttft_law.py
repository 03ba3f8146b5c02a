"""The TTFT law against runs drawn from it: its interval holds, and it knows what it cannot see."""

import math

import numpy as np
import pytest

from analysis import likelihood, ttft_fit
from analysis.ttft_law import Floats, TtftLaw

LENGTHS = np.array([128.0, 2048.0, 8192.0, 16384.0])
D = 0.30


def law_s(n: Floats, increment_s: float = D) -> Floats:
    u = (n - LENGTHS[0]) / (LENGTHS[-1] - LENGTHS[0])
    return np.asarray(0.04 + increment_s * (0.85 * u + 0.15 * u * u))


def drawn(
    seed: int, *, count: int = 80, queued: float = 0.3, wait_s: float = 0.1, noise_s: float = 0.008
) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    n = rng.permutation(np.tile(LENGTHS, count // 4))
    f = law_s(n)
    wait = np.where(rng.random(count) < queued, rng.exponential(wait_s, count), 0.0)
    return n, f + wait + rng.normal(0, 0.02 * f + noise_s)


def fitted(n: Floats, ttft_s: Floats) -> TtftLaw:
    law = ttft_fit.fit(n, ttft_s)
    assert isinstance(law, TtftLaw)
    return law


@pytest.mark.parametrize(("queued", "wait_s"), [(0.02, 0.05), (0.3, 0.1), (0.7, 0.3)])
def test_the_interval_of_the_increment_holds_whatever_the_queue(queued: float, wait_s: float) -> None:
    hits, errors = 0, []
    for seed in range(30):
        law = fitted(*drawn(seed, queued=queued, wait_s=wait_s))
        errors.append(math.log(law.increment_s / D))
        hits += abs(errors[-1]) < 1.96 * law.log_increment_error
    assert hits >= 28
    assert abs(np.mean(errors)) < 0.01
    assert np.std(errors) < 0.04


def test_the_law_itself_comes_back_not_only_its_increment() -> None:
    law = fitted(*drawn(1, count=400, queued=0.4))
    np.testing.assert_allclose(law.ttft_s(LENGTHS), law_s(LENGTHS), rtol=0.08)
    assert law.queued_ratio == pytest.approx(0.4, abs=0.1)
    assert law.queue_mean_s == pytest.approx(0.1, rel=0.35)


def test_time_in_the_network_moves_the_fixed_part_and_not_the_increment() -> None:
    n, ttft_s = drawn(2)
    near, far = fitted(n, ttft_s), fitted(n, ttft_s + 0.1)
    assert far.levels_s[0] - near.levels_s[0] == pytest.approx(0.1, abs=0.01)
    assert far.increment_s == pytest.approx(near.increment_s, rel=0.03)


def test_two_wild_outliers_move_the_increment_by_less_than_its_error() -> None:
    n, ttft_s = drawn(3)
    clean = fitted(n, ttft_s)
    wild = ttft_s.copy()
    wild[[5, 40]] += 30.0
    law = fitted(n, wild)
    assert abs(math.log(law.increment_s / clean.increment_s)) < clean.log_increment_error


def test_a_thousand_requests_are_fitted_as_well_as_a_hundred() -> None:
    """Thinned starts and the descent on all of them end in the same valley."""
    law = fitted(*drawn(4, count=2000))
    assert law.increment_s == pytest.approx(D, rel=0.02)
    assert law.curvature_error < 0.01


def test_exact_times_of_a_noiseless_server_are_fitted() -> None:
    n = np.tile(LENGTHS, 10)
    assert fitted(n, law_s(n)).increment_s == pytest.approx(D, rel=0.002)


def test_two_lengths_give_a_straight_line_and_say_so() -> None:
    n = np.tile([512.0, 8192.0], 20)
    law = fitted(n, 0.05 + 2e-5 * n + np.random.default_rng(5).normal(0, 0.002, n.size))
    assert law.coefficients()[1:] == pytest.approx((2e-5, 0.0), rel=0.02)
    assert math.isnan(law.bend_error_s)
    assert law.increment_s == pytest.approx(2e-5 * 7680, rel=0.02)


def test_lengths_that_never_repeat_are_fitted_too() -> None:
    rng = np.random.default_rng(6)
    n = rng.uniform(100, 16000, 200)
    law = fitted(n, law_s(n) + rng.normal(0, 0.005, 200))
    ends = np.array([law.n_low, law.n_high])
    assert law.increment_s == pytest.approx(float(np.diff(law_s(ends))[0]), rel=0.03)


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (np.array([100.0] * 8), "too few"),
        (np.array([100.0] * 40), "apart"),
        (np.array([100.0] * 40 + [130.0] * 40), "apart"),
        (np.array([100.0] * 13 + [1000.0] * 2), "requests each"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_its_reason(n: Floats, says: str) -> None:
    found = ttft_fit.fit(n, np.full(n.size, 0.1))
    assert isinstance(found, str)
    assert says in found


def test_a_parabola_comes_back_as_its_coefficients() -> None:
    n = np.tile(LENGTHS, 20)
    noise = np.random.default_rng(7).normal(0, 0.002, n.size)
    law = fitted(n, 0.05 + 1.5e-5 * n + 4e-10 * n**2 + noise)
    a, b, c = law.coefficients()
    assert a == pytest.approx(0.05, abs=0.002)
    assert b == pytest.approx(1.5e-5, rel=0.05)
    assert abs(c - 4e-10) < 3 * law.bend_error_s
    assert law.bend_error_s < 2e-10


def test_a_stair_is_followed_where_a_parabola_could_not() -> None:
    """Blocks of 6,000 tokens: 1, 1, 2 and 3 of them."""
    n = np.random.default_rng(8).permutation(np.tile(LENGTHS, 20))
    stair = 0.03 + 0.1 * np.ceil(n / 6000)
    law = fitted(n, stair + np.random.default_rng(9).normal(0, 0.004, n.size))
    np.testing.assert_allclose(law.levels_s, [0.13, 0.13, 0.23, 0.33], atol=0.004)


def test_knots_are_the_lengths_that_were_asked_often() -> None:
    asked = np.array([100.0, 101.0, 99.5, 2000.0, 2010.0, 1990.0] * 5 + [7.0])
    assert ttft_fit.knots(asked) == pytest.approx([100.2, 2000.0], rel=0.01)


def test_curvature_of_a_known_bowl_gives_its_errors() -> None:
    """A normal density with a known covariance: its errors are the roots of the diagonal."""
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    precision = np.linalg.inv(covariance)

    def losses(at: Floats) -> Floats:
        return np.asarray(0.5 * np.sum(at @ precision * at, axis=1))

    found = likelihood.descend(losses, [np.array([1.0, -1.0])], [(None, None)] * 2, scale=1.0)
    np.testing.assert_allclose(found, 0.0, atol=1e-4)
    np.testing.assert_allclose(likelihood.covariance(losses, found), covariance, rtol=1e-3)


def test_a_direction_that_the_data_do_not_bound_has_a_large_error() -> None:
    found = likelihood.covariance(lambda at: at[:, 0] ** 2, np.zeros(2))
    assert found[0, 0] == pytest.approx(0.5, rel=1e-3)
    assert found[1, 1] > 1e5
