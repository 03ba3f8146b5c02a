"""Known servers, each fast by one means, and rules on evidence that is written down."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from analysis import mechanism, mechanism_rules, own_context, waits
from analysis.analyze import analyze
from analysis.mechanism_rules import Seen
from analysis.model import Estimate, Mechanism, MechanismAnswer, RuleEvidence
from analysis.own_context import ContextSlope
from analysis.speeds import Deliveries
from analysis.waits import Wait
from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Target
from loadtest.records import RunInfo
from mockserver import config as profiles
from mockserver import roofline
from mockserver.config import ServerConfig
from tierscope.simulate import simulate

ONE = Estimate(value=1.0, low=0.99, high=1.01)
PLAIN = Deliveries(mean_tokens=1.0, mean_error=0.0, three_or_more_ratio=0.0, variation_ratio=0.0)
SLOPE = ContextSlope(slope_s=30e-9, error_s=1e-9)
SHORT = Wait(mean_s=0.01, error_s=0.002, none_s=0.005)
ALIKE = Seen(
    names=("standard", "fast"),
    step_ratio=ONE,
    refusal=None,
    prefill_ratio=ONE,
    prefill_error=0.015,
    deliveries=(PLAIN, PLAIN),
    steps_s=(0.02, 0.02),
    stalled_s=(0.2, 0.2),
    slopes=(SLOPE, SLOPE),
    waits=(SHORT, SHORT),
)


def near(value: float) -> Estimate:
    return Estimate(value=value, low=value * 0.98, high=value * 1.02)


def seen(**changes: object) -> Seen:
    fields = {name: getattr(ALIKE, name) for name in Seen.__slots__}
    return Seen(**{**fields, **changes})


def judged(found: Seen) -> Mechanism:
    return mechanism.decide(mechanism_rules.evidence(found))


def rule(found: Seen, name: Mechanism) -> RuleEvidence:
    return next(one for one in mechanism_rules.evidence(found) if one.rule == name)


def report_on(tmp_path: Path, config: ServerConfig, seed: int = 3) -> MechanismAnswer:
    plan = plans.load("ab", seed=seed)
    info = RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id=f"known-{config.name}",
        tierscope_version="0",
        target=Target(url="simulated:known", model="m"),
        plan=plan,
        started_unix_s=0.0,
        simulated=True,
        status="complete",
    )
    folder = tmp_path / config.name
    records.write_run(folder, info, simulate(plan, msgspec.structs.replace(config, seed=seed)))
    found = analyze([folder]).mechanism
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("profile", "answer"),
    [
        ("fast-tier", "smaller batch"),
        ("no-change", "none"),
        ("speculation", "speculative decoding"),
        ("faster-chip", "faster hardware or smaller model"),
        ("kv-int8", "KV quantisation"),
    ],
)
def test_each_shipped_profile_is_recognised_by_its_mechanism(
    tmp_path: Path, profile: str, answer: str
) -> None:
    found = report_on(tmp_path, profiles.load(profile))
    assert found.answer == answer
    assert [one.rule for one in found.evidence] == [
        "speculative decoding",
        "faster hardware or smaller model",
        "KV quantisation",
        "smaller batch",
        "priority only",
    ]


def test_the_context_slope_is_the_kv_of_a_token_over_the_bandwidth(tmp_path: Path) -> None:
    config = profiles.load("speculation")
    law = roofline.law(config.deployment)
    truth = law.kv_bytes_per_token / law.memory_bytes_per_s
    evidence = report_on(tmp_path, config).evidence[2]
    assert evidence.holds is False
    told = evidence.sentence.partition("cost ")[2].split()
    assert told[1] == "µs"
    assert float(told[0]) * 1e-6 / 1000 == pytest.approx(truth, rel=0.15)


def test_a_slope_is_found_in_differences_with_outliers_and_a_drift() -> None:
    rng = np.random.default_rng(4)
    tokens, streams = rng.normal(0, 8000, 400), rng.choice([-1.0, 1.0], 400)
    step = 30e-9 * tokens + 40e-6 * streams + np.diff(rng.normal(0, 2e-5, 401))
    step[::17] += 0.2
    found = own_context.fit(step, tokens, streams, np.ones(400))
    assert found is not None
    assert abs(found.slope_s - 30e-9) < 4 * found.error_s
    assert found.error_s < 1e-9
    assert own_context.fit(step, tokens * 0, streams, np.ones(400)) is None


def test_with_nothing_different_the_answer_is_none() -> None:
    assert judged(ALIKE) == "none"


def test_marks_that_come_first_decide() -> None:
    drafts = Deliveries(mean_tokens=2.5, mean_error=0.02, three_or_more_ratio=0.4, variation_ratio=0.5)
    everything = seen(
        deliveries=(PLAIN, drafts),
        prefill_ratio=near(2.0),
        slopes=(SLOPE, ContextSlope(15e-9, 1e-9)),
        step_ratio=near(1.6),
        waits=(Wait(0.2, 0.01, 0.005), SHORT),
    )
    order: list[Mechanism] = [
        "speculative decoding",
        "faster hardware or smaller model",
        "KV quantisation",
        "smaller batch",
        "priority only",
    ]
    found = mechanism_rules.evidence(everything)
    assert [one.holds for one in found] == [True] * 5
    assert [mechanism.decide([msgspec.structs.replace(one, holds=False) for one in found[:k]] + found[k:])
            for k in range(5)] == order  # fmt: skip


def test_a_server_that_packs_as_many_tokens_into_each_event_does_not_speculate() -> None:
    packed = Deliveries(mean_tokens=4.0, mean_error=0.0, three_or_more_ratio=1.0, variation_ratio=0.0)
    assert rule(seen(deliveries=(PLAIN, packed)), "speculative decoding").holds is False


def test_prefill_in_small_chunks_beside_a_smaller_batch_is_no_proof_of_hardware() -> None:
    """Chunks of 30 ms hold a decode step of 20 ms here and of 8 ms there: alone they take 10 ms and 10 ms."""
    trap = seen(
        step_ratio=near(2.5), prefill_ratio=near(1.5), steps_s=(0.02, 0.008), stalled_s=(0.030, 0.0185)
    )
    assert rule(trap, "faster hardware or smaller model").holds is None
    assert judged(trap) == "smaller batch"
    alike = mechanism.inseparable("smaller batch", mechanism_rules.evidence(trap))
    assert any(pair.second == "faster hardware" for pair in alike)
    large = seen(step_ratio=near(2.5), prefill_ratio=near(1.5), steps_s=(0.02, 0.008), stalled_s=(0.30, 0.19))
    assert judged(large) == "faster hardware or smaller model"


def test_what_was_not_measured_is_not_called_none() -> None:
    assert judged(seen(prefill_ratio=Estimate(value=None), prefill_error=None)) == "not identified"
    vague = seen(prefill_ratio=Estimate(value=1.0, low=0.7, high=1.4), prefill_error=0.2)
    assert judged(vague) == "not identified"
    assert judged(seen(refusal="Decode could not be compared: loaded.")) == "not identified"
    assert judged(seen(step_ratio=Estimate(value=1.0, low=0.8, high=1.25))) == "not identified"


def test_without_a_slope_a_smaller_batch_cannot_be_told_from_fewer_kv_bits() -> None:
    blind = seen(step_ratio=near(1.3), slopes=(ContextSlope(30e-9, 10e-9), SLOPE))
    pairs = mechanism.inseparable(judged(blind), mechanism_rules.evidence(blind))
    assert any(pair.second == "KV quantisation" and "context" in pair.extra_run for pair in pairs)
    known = seen(step_ratio=near(1.3))
    pairs = mechanism.inseparable(judged(known), mechanism_rules.evidence(known))
    assert not any(pair.second == "KV quantisation" for pair in pairs)


def test_exchanging_the_tiers_twice_changes_nothing_and_once_inverts_the_ratios() -> None:
    found = seen(step_ratio=near(2.0), waits=(Wait(0.2, 0.01, 0.005), SHORT))
    once = mechanism_rules.flipped(found)
    assert once.step_ratio.value == pytest.approx(0.5)
    assert once.waits == (SHORT, Wait(0.2, 0.01, 0.005))
    twice = mechanism_rules.flipped(once)
    assert twice.step_ratio.low == pytest.approx(found.step_ratio.low)
    assert (twice.names, twice.waits) == (found.names, found.waits)


def test_a_faster_baseline_is_told_as_the_faster_tier(tmp_path: Path) -> None:
    config = profiles.load("fast-tier")
    standard, fast = config.tiers
    swapped = msgspec.structs.replace(
        config,
        tiers=(
            msgspec.structs.replace(standard, target_batch=fast.target_batch),
            msgspec.structs.replace(fast, max_batch=128, target_batch=standard.target_batch),
        ),
    )
    found = report_on(tmp_path, swapped)
    assert (found.faster_tier, found.answer) == ("standard", "smaller batch")


def test_waits_too_short_to_matter_are_no_ratio() -> None:
    assert waits.ratio(Wait(0.004, 0.001, 0.005), Wait(0.0001, 0.001, 0.005))[0] == 1.0
    assert waits.ratio(Wait(0.1, 0.01, 0.005), Wait(0.0, 0.001, 0.005))[0] == pytest.approx(20)


def test_a_vague_prefill_ratio_does_not_say_which_tier_is_the_faster_one(tmp_path: Path) -> None:
    """One engine for both tiers with room for six, so full that prefill can hardly be fitted."""
    config = profiles.load("priority-only")
    standard, fast = config.tiers
    small = msgspec.structs.replace(standard, max_batch=5, target_batch=2, when_kv_is_full="preempt")
    found = report_on(tmp_path, msgspec.structs.replace(config, tiers=(small, fast)))
    assert (found.faster_tier, found.answer) == ("fast", "priority only")
