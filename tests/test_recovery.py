"""A known server through engine, network model and record format, and back out of the analysis.

The truths are the engine's own steps and the roofline law, neither of which the analysis sees. A law that is
deliberately another one must come out as wrong or as not identified.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from analysis.analyze import analyze
from analysis.model import BatchAnswer, Estimate, Report
from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Plan, Target
from loadtest.records import RequestRecord, RunInfo
from mockserver import config as profiles
from mockserver import roofline
from mockserver.config import HiddenLoad, ServerConfig, TierConfig
from mockserver.hardware import Deployment
from tierscope.simulate import simulate

LLAMA = Deployment(chip="H100", chips=8, model="Llama-3.1-70B", weight_bits=8)
QUIET = HiddenLoad(prompt_tokens=2000, output_tokens=1500)


def ab(seed: int, requests: int = 320) -> Plan:
    plan = plans.load("ab", seed=seed)
    warmup, compare = plan.stages
    return msgspec.structs.replace(plan, stages=(warmup, msgspec.structs.replace(compare, requests=requests)))


def written(folder: Path, plan: Plan, found: Iterable[RequestRecord]) -> Path:
    info = RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id=f"recovery-{plan.seed}",
        tierscope_version="0",
        target=Target(url="simulated:recovery", model="m"),
        plan=plan,
        started_unix_s=0.0,
        simulated=True,
        status="complete",
    )
    records.write_run(folder, info, found)
    return folder


def report_on(
    tmp_path: Path, config: ServerConfig, seed: int, requests: int = 320, **options: object
) -> Report:
    plan = ab(seed, requests)
    seeded = msgspec.structs.replace(config, seed=seed)
    folder = written(tmp_path / f"{config.name}-{seed}", plan, simulate(plan, seeded))
    return analyze([folder], **options)  # type: ignore[arg-type]


def two_tiers(batches: tuple[int, int] = (48, 8), **fast: object) -> ServerConfig:
    common = {"max_batch": 256, "hidden": QUIET}
    return ServerConfig(
        name="known",
        deployment=LLAMA,
        tiers=(
            TierConfig(name="standard", service_tiers=("default",), target_batch=batches[0], **common),  # type: ignore[arg-type]
            TierConfig(
                name="fast",
                service_tiers=("priority",),
                target_batch=batches[1],
                **{**common, **fast},  # type: ignore[arg-type]
            ),
        ),
    )


def within(found: Estimate, truth: float, *, slack: float = 0.0) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low * (1 - slack) <= truth <= found.high * (1 + slack)


def prefill_increment_s(config: ServerConfig, tier: TierConfig) -> float:
    law = roofline.law(profiles.deployment_of(config, tier))
    long, short = (roofline.prefill_s(law, tokens, tier.prefill_tokens) for tokens in (16384, 128))
    return long - short


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_shipped_fast_tier_changes_decode_and_not_prefill(tmp_path: Path, seed: int) -> None:
    verdict = report_on(tmp_path, profiles.load("fast-tier"), seed).verdict
    assert verdict.conclusion == "decode changed, prefill unchanged"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_identical_tiers_are_never_called_different(tmp_path: Path, seed: int) -> None:
    verdict = report_on(tmp_path, profiles.load("no-change"), seed).verdict
    assert verdict.conclusion in {"neither changed", "inconclusive"}


def test_step_ratio_and_prefill_increments_are_the_laws_within_their_intervals(tmp_path: Path) -> None:
    config = two_tiers()
    report = report_on(tmp_path, config, 4)
    law = roofline.law(LLAMA)
    context = profiles.mean_context_tokens(config.tiers[0])
    slow, fast = (float(roofline.step_s(law, float(b), b * context)) for b in (48, 8))
    assert report.verdict.decode is not None
    # Own prompts are longer than the hidden ones and share the steps: by 3 % at these batches.
    assert within(report.verdict.decode.speed_ratio, slow / fast, slack=0.03)
    for tier, fit in zip(config.tiers, report.prefill, strict=True):
        # A prompt shares its steps with the tier's decoding batch, which costs it a little more than alone.
        alone = prefill_increment_s(config, tier)
        assert fit.increment_s.value == pytest.approx(alone, rel=0.12)
    assert report.verdict.prefill is not None
    assert within(report.verdict.prefill.speed_ratio, 1.0)


def test_a_tier_on_twice_the_hardware_changes_both(tmp_path: Path) -> None:
    config = two_tiers((32, 32), deployment={"chip": "B200"})
    report = report_on(tmp_path, config, 5)
    truth = prefill_increment_s(config, config.tiers[0]) / prefill_increment_s(config, config.tiers[1])
    assert report.verdict.conclusion == "both changed"
    assert report.verdict.prefill is not None
    assert within(report.verdict.prefill.speed_ratio, truth, slack=0.03)


def test_prefill_that_is_ten_percent_faster_is_not_called_unchanged(tmp_path: Path) -> None:
    config = two_tiers((32, 32), deployment={"mfu_ratio": 0.765})
    ratio = prefill_increment_s(config, config.tiers[0]) / prefill_increment_s(config, config.tiers[1])
    assert ratio == pytest.approx(1.10, abs=0.005)
    for seed in range(6, 10):
        prefill = report_on(tmp_path, config, seed, requests=160).verdict.prefill
        assert prefill is not None
        assert prefill.answer != "unchanged"


def white_box(report: Report) -> dict[str, BatchAnswer]:
    return {answer.tier: answer for answer in report.batch if answer.method == "white box"}


def test_hidden_batches_are_found_by_a_law_that_is_the_servers_own(tmp_path: Path) -> None:
    config = profiles.load("fast-tier")
    context = profiles.mean_context_tokens(config.tiers[0])
    for seed in (1, 2, 3):
        report = report_on(
            tmp_path, config, seed, deployment=config.deployment, context_tokens=context, law_error=0.05
        )
        for tier in config.tiers:
            answer = white_box(report)[tier.name]
            assert answer.identified
            assert within(answer.estimate, tier.target_batch)


def test_a_law_of_weaker_hardware_is_called_wrong(tmp_path: Path) -> None:
    """Half the chips cannot read the weights as fast as the measured step."""
    half = msgspec.structs.replace(LLAMA, chips=4)
    answers = white_box(report_on(tmp_path, two_tiers(), 10, requests=160, deployment=half, law_error=0.05))
    assert not answers["fast"].identified
    assert "something else" in answers["fast"].sentence


def test_a_law_that_hardly_sees_the_batch_is_not_identified(tmp_path: Path) -> None:
    """A dense model at a batch of eight: its step is nearly all weights."""
    report = report_on(tmp_path, two_tiers(), 11, requests=160, deployment=LLAMA, context_tokens=3000.0)
    assert not white_box(report)["fast"].identified


def test_a_server_whose_ttft_is_a_stair_keeps_an_honest_ratio(tmp_path: Path) -> None:
    """This server prefills whole blocks of 6,000 tokens, which no smooth law of TTFT fits; both tiers do."""
    rng = np.random.default_rng(12)

    def on_a_stair(record: RequestRecord) -> RequestRecord:
        assert record.sent_ns is not None
        blocks = np.ceil(record.prompt_class_tokens / 6000)
        first = record.sent_ns + round((0.03 + 0.1 * blocks + rng.normal(0, 0.004)) * 1e9)
        shift = first - record.event_ns[0]
        return msgspec.structs.replace(record, event_ns=[at + shift for at in record.event_ns])

    plan = ab(12)
    moved = [on_a_stair(record) for record in simulate(plan, profiles.load("no-change", seed=12))]
    report = analyze([written(tmp_path / "stair", plan, moved)])
    assert report.verdict.prefill is not None
    assert within(report.verdict.prefill.speed_ratio, 1.0)
    assert report.verdict.prefill.answer == "unchanged"
