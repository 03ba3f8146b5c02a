"""The noise of steps: its moments, and that it belongs to a step and not to who asks."""

import numpy as np
import pytest

from mockserver.noise import StepNoise


def test_factors_have_mean_one_and_the_spread_asked_for() -> None:
    noise = StepNoise(0.1, "a")
    factors = np.array([noise.factor(step) for step in range(100_000)])
    assert factors.mean() == pytest.approx(1.0, abs=0.002)
    assert factors.std() == pytest.approx(0.1, rel=0.02)
    assert np.log(factors).mean() == pytest.approx(-0.5 * np.log1p(0.01), abs=0.002)
    assert abs(np.corrcoef(factors[:-1], factors[1:])[0, 1]) < 0.02


def test_a_steps_factor_is_the_same_however_many_were_skipped() -> None:
    every, some = StepNoise(0.1, "a"), StepNoise(0.1, "a")
    told = [every.factor(step) for step in range(5000)]
    for step in (0, 3, 3, 1023, 1024, 4999):
        assert some.factor(step) == told[step]


def test_another_seed_gives_other_factors() -> None:
    assert StepNoise(0.1, "a").factor(0) != StepNoise(0.1, "b").factor(0)
