"""Densities against SciPy's own and against their integral."""

import numpy as np
import pytest
from scipy import integrate, stats

from analysis import exgauss

Z = np.linspace(-0.2, 1.5, 201)


@pytest.mark.parametrize(("spread", "mean_wait"), [(0.01, 0.05), (0.05, 0.01), (0.02, 0.5)])
def test_the_log_density_is_scipys_exponnorm(spread: float, mean_wait: float) -> None:
    got = exgauss.log_exgauss_pdf(Z, np.full(Z.size, spread), mean_wait)
    want = stats.exponnorm.logpdf(Z, mean_wait / spread, scale=spread)
    inside = np.isfinite(want) & (want > -500)
    assert inside.sum() > 100
    np.testing.assert_allclose(got[inside], want[inside], rtol=1e-8, atol=1e-8)


def test_the_normal_density_is_scipys() -> None:
    np.testing.assert_allclose(
        exgauss.log_normal_pdf(Z, np.full(Z.size, 0.1)), stats.norm.logpdf(Z, scale=0.1), rtol=1e-12
    )


def test_a_mixture_without_floor_integrates_to_one() -> None:
    def pdf(z: float) -> float:
        found = exgauss.log_wait_pdf(np.array([z]), np.array([0.02]), 0.4, 0.1, 1e-300)
        return float(np.exp(found[0]))

    total, _ = integrate.quad(pdf, -0.2, 3.0, points=[0.0, 0.05], limit=200)
    assert total == pytest.approx(1.0, abs=1e-6)


def test_waits_a_thousand_spreads_away_still_have_a_finite_log_density() -> None:
    z = np.array([-50.0, 0.0, 50.0])
    found = exgauss.log_wait_pdf(z, np.full(3, 0.001), 0.5, 0.01, 1e-9)
    assert np.isfinite(found).all()
