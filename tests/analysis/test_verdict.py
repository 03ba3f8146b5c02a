"""The five answers, each from a pair of servers of which it is true, and what is said with them."""

import math
from typing import TYPE_CHECKING

import msgspec
import pytest

from analysis import verdict
from analysis.analyze import analyze
from analysis.model import DecodeTest, Estimate, PrefillTest, Verdict
from analysis.sequential import planned_looks
from loadtest.plan import Closed, Control, Plan, Stage, Tier, Workload

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Folder, Server


@pytest.mark.parametrize(
    ("changes", "conclusion"),
    [
        ({"step_s": 0.008}, "decode changed, prefill unchanged"),
        ({"step_s": 0.008, "increment_s": 0.12}, "both changed"),
        ({"increment_s": 0.12}, "only prefill changed"),
        ({}, "neither changed"),
        ({"step_s": 0.05}, "decode changed, prefill unchanged"),
    ],
)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_conclusion_is_true_of_the_servers(
    folder: "Folder",
    draw: "type[Draw]",
    server: "type[Server]",
    changes: dict[str, float],
    conclusion: str,
    seed: int,
) -> None:
    tiers = {"standard": server(), "fast": server(**changes)}
    report = analyze([folder(draw(tiers, seed=seed, per_tier=120).records())])
    found = report.verdict
    assert found.conclusion == conclusion
    assert found.more_requests_per_tier == 0
    assert (found.baseline_tier, found.compared_tier) == ("standard", "fast")
    assert report.headline == found.sentence
    step = changes.get("step_s", 0.02)
    assert found.decode is not None
    assert found.prefill is not None
    assert_near(found.decode.speed_ratio, 0.02 / step)
    assert_near(found.prefill.speed_ratio, 0.30 / changes.get("increment_s", 0.30))


def assert_near(found: Estimate, truth: float) -> None:
    """Within three times the half-width of the 95 % interval: a sure thing unless something is wrong."""
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    half = math.log(found.high / found.low) / 2
    assert abs(math.log(found.value / truth)) < 3 * half


def test_few_requests_are_inconclusive_and_told_how_many_more(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(wander=0.1), "fast": server(wander=0.1, noise_s=0.05)}
    found = analyze([folder(draw(tiers, per_tier=16).records())]).verdict
    assert found.conclusion == "inconclusive"
    assert found.more_requests_per_tier is not None
    assert found.more_requests_per_tier > 0
    assert f"{found.more_requests_per_tier} more requests" in found.sentence


def test_tiers_with_too_few_requests_for_any_test_are_told_the_usual_number(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    found = analyze([folder(draw({"standard": server(), "fast": server()}, per_tier=4).records())]).verdict
    assert found.conclusion == "inconclusive"
    assert found.more_requests_per_tier == verdict.ENOUGH_PER_TIER - 4


def test_one_prompt_length_leaves_prefill_open_whatever_is_added(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(), "fast": server(step_s=0.008)}
    found = analyze([folder(draw(tiers, per_tier=100, lengths=(2048,)).records())]).verdict
    assert found.conclusion == "inconclusive"
    assert found.more_requests_per_tier is None
    assert found.decode is not None
    assert found.decode.answer == "changed"
    assert "prompt lengths" in found.sentence


def test_an_open_verdict_says_first_what_is_known_and_promises_nothing_that_more_of_it_cannot_give(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(noise_s=0.01), "fast": server(step_s=0.008, noise_s=0.01)}
    found = analyze([folder(draw(tiers, per_tier=60, lengths=(128, 200)).records())]).verdict
    assert found.conclusion == "inconclusive"
    assert found.sentence.startswith("fast decodes")
    assert "longer prompts would help" in found.sentence
    assert found.more_requests_per_tier is None


def test_gaps_that_mostly_carry_prefill_refuse_the_decode_answer(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(stalled=0.75), "fast": server(step_s=0.008)}
    found = analyze([folder(draw(tiers, per_tier=100).records())]).verdict
    assert found.conclusion == "inconclusive"
    assert found.decode is not None
    assert "prefill" in found.decode.sentence


@pytest.mark.parametrize(
    "changes", [{"queued_ratio": 0.97, "queue_mean_s": 0.6}, {"stalled": 0.75}], ids=["queue", "stalls"]
)
def test_what_more_requests_of_the_same_kind_would_not_settle_is_not_promised(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]", changes: dict[str, float]
) -> None:
    tiers = {"standard": server(**changes), "fast": server(step_s=0.008)}
    found = analyze([folder(draw(tiers, per_tier=40).records())]).verdict
    assert found.conclusion == "inconclusive"
    assert found.more_requests_per_tier is None
    assert "would not settle it" in found.sentence


def test_too_few_that_escaped_the_queue_are_told_how_many_more_it_takes(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {
        "standard": server(queued_ratio=0.93, queue_mean_s=0.05),
        "fast": server(step_s=0.008, queued_ratio=0.93, queue_mean_s=0.05),
    }
    found = analyze([folder(draw(tiers, per_tier=88).records())]).verdict
    assert found.prefill is not None
    assert "did not queue" in found.prefill.sentence
    assert found.more_requests_per_tier is not None
    assert 10 <= found.more_requests_per_tier <= 88 * 4


def stopped_early(folder: "Folder", drawn: "Draw", *, planned: int) -> Verdict:
    """The verdict on a run that was to stop at its verdict and stopped before its ``planned`` requests."""
    stage = Stage(name="compare", arrivals=Closed(streams=8), requests=planned)
    plan = Plan(
        name="drawn",
        stages=(stage,),
        workload=Workload(prompt_tokens=(128, 2048, 8192, 16384), output_tokens=33),
        tiers=tuple(Tier(name=name) for name in drawn.tiers),
        control=Control(until="verdict"),
    )
    return analyze([folder(drawn.records(), plan=plan)]).verdict


def test_a_run_stopped_at_its_verdict_claims_no_more_than_its_look_allows(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    drawn = draw({"standard": server(), "fast": server(step_s=0.008)}, per_tier=120)
    plain = analyze([folder(drawn.records(), name="plain")]).verdict
    looked = stopped_early(folder, drawn, planned=400)  # 240 of 400 are four looks
    assert plain.decode is not None
    assert looked.decode is not None
    assert looked.prefill is not None
    level = 1 - planned_looks().significances[3]
    assert looked.decode.speed_ratio.level == looked.prefill.speed_ratio.level == level
    assert (looked.decode.speed_ratio.low or 9) < (plain.decode.speed_ratio.low or 0)
    assert (looked.decode.speed_ratio.high or 0) > (plain.decode.speed_ratio.high or 9)
    assert "at 99.46 %" in looked.sentence


def test_a_p_value_that_is_enough_once_is_not_enough_at_an_early_look(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    noisy = {"noise_s": 0.008}
    drawn = draw({"standard": server(**noisy), "fast": server(step_s=0.008, **noisy)}, per_tier=60)
    plain = analyze([folder(drawn.records(), name="plain")]).verdict
    assert plain.conclusion == "decode changed, prefill unchanged"
    assert stopped_early(folder, drawn, planned=480).conclusion == "inconclusive"


def decode_test(value: float, low: float, high: float) -> DecodeTest:
    return DecodeTest(
        answer="inconclusive",
        speed_ratio=Estimate(value=value, low=low, high=high),
        z=1.0,
        p_value=0.3,
        pairs=80,
        margin_ratio=0.05,
        sentence="",
    )


SURE = PrefillTest(
    answer="unchanged",
    speed_ratio=Estimate(value=1.0, low=0.98, high=1.02),
    standard_error=0.01,
    p_value=0.001,
    margin_ratio=0.10,
    sentence="",
)


def test_an_interval_twice_as_wide_as_the_margin_takes_four_times_the_requests() -> None:
    half = 2 * math.log(1.05)
    found = verdict.more_requests(decode_test(1.0, math.exp(-half), math.exp(half)), SURE, 80)
    assert found == 240


def test_a_ratio_on_the_margin_itself_cannot_be_settled() -> None:
    assert verdict.more_requests(decode_test(1.0499, 1.0, 1.1), SURE, 80) is None


def cautions_of(folder: "Folder", drawn: "Draw") -> str:
    found: Verdict = analyze([folder(drawn.records())]).verdict
    return " ".join(found.cautions)


def test_a_slightly_faster_prefill_of_a_faster_tier_is_not_sold_as_hardware(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(), "fast": server(step_s=0.008, increment_s=0.22)}
    assert "smaller batch alone" in cautions_of(folder, draw(tiers, per_tier=120))


def test_a_ttft_that_differs_by_its_fixed_part_is_explained(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(base_s=0.06), "fast": server(step_s=0.008)}
    assert "half of the step" in cautions_of(folder, draw(tiers, per_tier=120))


def test_a_queue_is_told(folder: "Folder", draw: "type[Draw]", server: "type[Server]") -> None:
    tiers = {"standard": server(queued_ratio=0.8, queue_mean_s=0.3), "fast": server(step_s=0.008)}
    assert "queue" in cautions_of(folder, draw(tiers, per_tier=120))


def test_failures_of_one_tier_only_are_told(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    drawn = draw({"standard": server(), "fast": server(step_s=0.008)}, per_tier=120).records()
    failed = [
        msgspec.structs.replace(record, outcome="timeout", event_ns=[], output_tokens=None)
        if record.requested_tier == "fast" and record.index % 4 == 0
        else record
        for record in drawn
    ]
    found = analyze([folder(failed)]).verdict
    assert "Failures differ" in " ".join(found.cautions)
    assert found.conclusion == "decode changed, prefill unchanged"
