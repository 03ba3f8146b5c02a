"""The law of a step against roofline laws, and batches read back through it."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from analysis import calibrated, step_law
from analysis.analyze import analyze
from analysis.model import Estimate
from analysis.step_law import StepLaw
from analysis.sweep import Level
from loadtest.plan import Closed, Plan, Stage, Workload
from mockserver import roofline
from mockserver.config import HiddenLoad, ServerConfig, TierConfig, mean_context_tokens
from mockserver.hardware import Deployment
from mockserver.roofline import Law
from tierscope.simulate import simulate

DENSE = Deployment(chip="H100", model="Llama-3.1-8B")
EXPERTS = Deployment(chip="H200", chips=8, model="DeepSeek-V3", weight_bits=8)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SPLIT = [(one, 160.0) for one in BATCHES] + [(4, 8300.0), (12, 8300.0)]


def level(batch: int, context: float, step_s: float) -> Level:
    return Level(
        stage=f"c{batch}",
        streams=batch,
        active=batch,
        step_s=Estimate(value=step_s, low=step_s * 0.999, high=step_s * 1.001),
        ttft_p50_s=0.1,
        context_tokens=context,
    )


def swept(law: Law, points: Sequence[tuple[int, float]] = SPLIT, noise: float = 0.0) -> list[Level]:
    rng = np.random.default_rng(1)
    return [
        level(b, c, float(roofline.step_s(law, float(b), b * c)) * math.exp(rng.normal(0, noise)))
        for b, c in points
    ]


def fitted(law: Law, noise: float = 0.0) -> StepLaw:
    found = step_law.fit(swept(law, noise=noise))
    assert isinstance(found, StepLaw)
    return found


@pytest.mark.parametrize("deployment", [DENSE, EXPERTS])
def test_the_fitted_curve_is_the_roofline_law_between_its_levels(deployment: Deployment) -> None:
    law = roofline.law(deployment)
    found = fitted(law, noise=0.002)
    for batch in (3.0, 6.0, 24.0, 100.0):
        for context in (160.0, 2000.0):
            truth = float(roofline.step_s(law, batch, batch * context))
            assert float(found.step_s(batch, context)) == pytest.approx(truth, rel=0.02)


def test_a_straight_line_is_fitted_by_the_smallest_family() -> None:
    points = [level(b, c, 0.01 + 2e-4 * b + 3e-8 * b * c) for b, c in SPLIT]
    found = step_law.fit(points)
    assert isinstance(found, StepLaw)
    assert found.family == "linear"
    assert found.theta[3] == pytest.approx(3e-8, rel=0.02)
    assert found.theta[6] == pytest.approx(2e-4, rel=0.02)


@pytest.mark.parametrize("batch", [6.0, 20.0, 60.0])
def test_a_batch_is_read_back_from_its_own_step(batch: float) -> None:
    law = roofline.law(EXPERTS)
    step = float(roofline.step_s(law, batch, batch * 3000))
    answer = calibrated.answer(
        "t", Estimate(value=step, low=step * 0.995, high=step * 1.005), fitted(law), context_tokens=3000
    )
    assert answer is not None
    assert answer.identified
    assert answer.estimate.value == pytest.approx(batch, rel=0.1)
    assert answer.estimate.low is not None
    assert answer.estimate.high is not None
    assert answer.estimate.low < batch < answer.estimate.high


def test_a_step_that_hardly_sees_its_batch_is_not_identified() -> None:
    points = [level(b, c, 0.02 + 1e-6 * b + 1e-12 * b * c) for b, c in SPLIT]
    found = step_law.fit(points)
    assert isinstance(found, StepLaw)
    answer = calibrated.answer("t", Estimate(value=0.02001), found, context_tokens=2000)
    assert answer is not None
    assert not answer.identified
    assert answer.estimate.value is None


def test_a_step_above_all_that_was_swept_is_said_to_be() -> None:
    law = roofline.law(EXPERTS)
    step = 3 * float(roofline.step_s(law, 128.0, 128 * 160.0))
    answer = calibrated.answer("t", Estimate(value=step), fitted(law), context_tokens=160)
    assert answer is not None
    assert not answer.identified
    assert "longer than that of the largest batch" in answer.sentence


def test_without_long_prompts_in_the_sweep_long_contexts_widen_the_answer() -> None:
    """Short prompts cannot tell what a token of context costs from what a sequence does."""
    law = roofline.law(DENSE)
    blind = step_law.fit(swept(law, SPLIT[: len(BATCHES)]))
    assert isinstance(blind, StepLaw)
    step = float(roofline.step_s(law, 32.0, 32 * 4000.0))
    widths = []
    for found in (blind, fitted(law)):
        _, drawn, _ = calibrated.invert(found, Estimate(value=step), 4000.0, known=True)
        low, high = np.quantile(drawn, [0.025, 0.975])
        widths.append(high / low)
    assert widths[0] > 1.5 * widths[1]


def test_three_batches_make_no_law() -> None:
    found = step_law.fit(swept(roofline.law(DENSE), [(1, 160.0), (2, 160.0), (4, 160.0)]))
    assert isinstance(found, str)
    assert "too few" in found


def test_drawn_curves_stay_close_to_the_law_where_it_was_measured_and_spread_where_it_was_not() -> None:
    found = fitted(roofline.law(DENSE), noise=0.003)
    rng = np.random.default_rng(2)
    drawn = found.drawn_steps_s(np.array([16.0, 512.0]), np.full(300, 160.0), rng)
    assert (drawn > 0).all()
    assert np.median(drawn[:, 0]) == pytest.approx(float(found.step_s(16.0, 160.0)), rel=0.01)
    spreads = np.log(drawn).std(axis=0)
    assert spreads[0] < 0.01
    assert spreads[1] > 2 * spreads[0]


def test_the_batch_of_others_is_found_by_a_sweep_through_the_engine(folder: Callable[..., Path]) -> None:
    tier = TierConfig(name="standard", service_tiers=("default",), max_batch=64)
    quiet = ServerConfig(name="quiet", deployment=EXPERTS, tiers=(tier,))
    hidden = HiddenLoad(prompt_tokens=1500, output_tokens=1500)
    crowd = msgspec.structs.replace(
        quiet, tiers=(msgspec.structs.replace(tier, target_batch=24, hidden=hidden),)
    )

    def played(name: str, config: ServerConfig, prompt: int, streams: tuple[int, ...], waves: int) -> Path:
        stages = tuple(
            Stage(name=f"c{one}", requests=waves * one, arrivals=Closed(streams=one)) for one in streams
        )
        plan = Plan(
            name=name, stages=stages, workload=Workload(prompt_tokens=(prompt,), output_tokens=64), seed=5
        )
        return folder(simulate(plan, config), name=name, plan=plan, run_id=name)

    sweeps = [
        played("short", quiet, 64, (1, 2, 4, 8, 16, 32, 64), 2),
        played("long", quiet, 8192, (4, 12), 2),
    ]
    probes = played("probes", crowd, 128, (2,), 20)
    report = analyze([probes], calibration=sweeps, context_tokens=mean_context_tokens(crowd.tiers[0]))
    (answer,) = (one for one in report.batch if one.method == "calibrated sweep")
    assert answer.identified
    assert answer.estimate.value == pytest.approx(24, rel=0.15)


WRONG: dict[str, Callable[[Law, float, float], float]] = {
    "steps of whole tiles of 8": lambda law, b, c: roofline_step_s(law, 8 * math.ceil(b / 8), c),
    "steps of whole tiles of 16": lambda law, b, c: roofline_step_s(law, 16 * math.ceil(b / 16), c),
    "a stair at 32": lambda law, b, c: roofline_step_s(law, b, c) * (1.3 if b > 32 else 1.0),
    "two replicas behind a balancer": lambda law, b, c: roofline_step_s(law, math.ceil(b / 2), c),
}


def roofline_step_s(law: Law, batch: float, context: float) -> float:
    return float(roofline.step_s(law, float(batch), batch * context))


@pytest.mark.parametrize("name", WRONG)
def test_a_server_of_another_law_widens_the_interval_or_refuses(name: str) -> None:
    """Truths in their intervals, over two models and batches from 2 to 120 that the sweep did not ask for."""
    step_of, rng = WRONG[name], np.random.default_rng(1)
    held: list[bool] = []
    levels = [*((one, 160.0) for one in (1, 2, 4, 8, 16, 32, 48, 64, 96, 128)), (4, 8300.0), (12, 8300.0)]
    for deployment in (DENSE, EXPERTS):
        truth = roofline.law(deployment)
        law = step_law.fit([level(b, c, step_of(truth, b, c)) for b, c in levels])
        assert isinstance(law, StepLaw)
        for batch in np.unique(np.rint(np.geomspace(2, 120, 12))).tolist():
            step = step_of(truth, batch, 2000.0) * math.exp(rng.normal(0, 0.005))
            found = calibrated.answer(
                "t",
                Estimate(value=step, low=step * 0.99, high=step * 1.01),
                law,
                context_tokens=2000 * math.exp(rng.normal(0, 0.15)),
            )
            assert found is not None
            if found.identified:
                assert found.estimate.low is not None
                assert found.estimate.high is not None
                held.append(found.estimate.low <= batch <= found.estimate.high)
    assert sum(held) >= 0.9 * len(held)
