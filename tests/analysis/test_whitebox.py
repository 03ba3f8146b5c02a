"""The law inverted: exact where nothing is uncertain, honest where something is, refusing where it must."""

import math

import numpy as np
import pytest

from analysis import whitebox
from analysis.model import Estimate
from mockserver import roofline
from mockserver.hardware import Deployment

DENSE = Deployment(chip="H100", chips=4, model="Llama-3.1-70B", weight_bits=8)
EXPERTS = Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8)


def step_of(deployment: Deployment, batch: float, context: float = 3000.0) -> Estimate:
    step = float(roofline.step_s(roofline.law(deployment), batch, batch * context))
    return Estimate(value=step, low=step, high=step)


@pytest.mark.parametrize("deployment", [DENSE, EXPERTS])
@pytest.mark.parametrize("batch", [2.0, 8.0, 64.0, 200.0])
def test_a_step_that_the_law_gives_is_read_back_as_its_batch(deployment: Deployment, batch: float) -> None:
    found = whitebox.invert(roofline.law(deployment), step_of(deployment, batch), context_tokens=3000.0)
    assert found.batch.value == pytest.approx(batch, rel=0.02)


@pytest.mark.parametrize("batch", [8.0, 64.0])
def test_the_interval_covers_when_law_step_and_context_are_as_wrong_as_assumed(batch: float) -> None:
    rng = np.random.default_rng(1)
    law, hits = roofline.law(EXPERTS), 0
    for _ in range(60):
        context = 3000.0 * math.exp(rng.normal(0, 0.3))
        step = step_of(EXPERTS, batch, context).value or 0.0
        step *= math.exp(rng.normal(0, 0.1))
        found = whitebox.invert(law, Estimate(value=step), context_tokens=3000.0, law_error=0.1).batch
        hits += (found.low or 0) <= batch <= (found.high or 0)
    assert hits >= 54


def test_a_small_batch_of_a_dense_model_is_not_identified_and_keeps_its_interval() -> None:
    found = whitebox.answer("fast", step_of(DENSE, 2.0), DENSE, context_tokens=1000.0, law_error=0.05)
    assert found is not None
    assert not found.identified
    assert found.estimate.value is None
    assert found.estimate.low is not None
    assert found.estimate.high is not None
    assert found.estimate.low <= 2.0 <= found.estimate.high
    assert (found.sensitivity or 1) < 0.1


def test_a_batch_that_moves_the_step_is_identified() -> None:
    found = whitebox.answer(
        "standard", step_of(EXPERTS, 48.0), EXPERTS, context_tokens=3000.0, law_error=0.05
    )
    assert found is not None
    assert found.identified
    assert found.estimate.value == pytest.approx(48.0, rel=0.02)


def test_a_step_below_the_hardwares_floor_is_called_another_hardware() -> None:
    """Measured on eight chips, explained by one: no batch is that fast."""
    single = Deployment(chip="H200", chips=2, model="Llama-3.1-70B", weight_bits=16)
    found = whitebox.answer("fast", step_of(DENSE, 8.0), single, context_tokens=3000.0)
    assert found is not None
    assert not found.identified
    assert found.estimate.value is None
    assert found.estimate.low is None
    assert "something else" in found.sentence


def test_a_step_longer_than_any_batch_takes_is_refused() -> None:
    found = whitebox.answer("slow", Estimate(value=1e4, low=1e4, high=1e4), DENSE, context_tokens=3000.0)
    assert found is not None
    assert not found.identified
    assert "longer" in found.sentence


def test_an_unknown_context_widens_the_interval() -> None:
    law, step = roofline.law(EXPERTS), step_of(EXPERTS, 64.0, 2000.0)
    known = whitebox.invert(law, step, context_tokens=2000.0).batch
    unknown = whitebox.invert(law, step).batch
    assert (unknown.high or 0) / (unknown.low or 1) > (known.high or 0) / (known.low or 1)


def test_the_error_of_the_batch_is_that_of_the_law_over_its_sensitivity() -> None:
    """Away from the curve's ends ln B is off by σ/ε, here with the context held."""
    law, step = roofline.law(EXPERTS), step_of(EXPERTS, 16.0)
    found = whitebox.invert(law, step, context_tokens=3000.0, law_error=0.05)
    assert found.batch.low is not None
    assert found.batch.high is not None
    half = math.log(found.batch.high / found.batch.low) / 2
    assert half == pytest.approx(1.96 * 0.05 / found.sensitivity, rel=0.25)


def test_without_a_step_there_is_no_answer() -> None:
    assert whitebox.answer("fast", Estimate(value=None), DENSE) is None
