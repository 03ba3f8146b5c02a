"""Whole reports: what can be said of runs that went wrong, and that nothing in a report is not a number."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from analysis.analyze import analyze
from analysis.model import Report
from loadtest import plan as plans
from loadtest.plan import Closed, Plan, Stage, Tier, Workload
from loadtest.records import RequestRecord
from mockserver.hardware import Deployment
from tierscope.errors import BadInputError

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Folder, Server

FAILED: dict[str, Any] = {"event_ns": [], "output_tokens": None, "first_text_ns": None, "echoed_tier": None}


@pytest.fixture
def drawn(draw: "type[Draw]", server: "type[Server]") -> Callable[..., list[RequestRecord]]:
    def make(per_tier: int = 40, tiers: tuple[str, ...] = ("standard", "fast")) -> list[RequestRecord]:
        servers = {name: server(step_s=0.02 / (1 + place)) for place, name in enumerate(tiers)}
        return draw(servers, per_tier=per_tier).records()

    return make


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from numbers_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers_in(part)


def checked(report: Report) -> Report:
    """Every number is one, every estimate lies in its interval, and JSON brings it back."""
    assert all(math.isfinite(number) for number in numbers_in(msgspec.to_builtins(report)))
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
    for tier in report.tiers:
        for estimate in (tier.step_s, tier.tokens_per_s, *(row.p50 for row in tier.quantiles)):
            if estimate.value is not None and estimate.low is not None and estimate.high is not None:
                assert estimate.low <= estimate.value <= estimate.high
    return report


def changed(records: list[RequestRecord], **changes: object) -> list[RequestRecord]:
    return [msgspec.structs.replace(record, **changes) for record in records]


def test_a_healthy_run_is_reported_in_full(folder: "Folder", drawn: Any) -> None:
    report = checked(
        analyze(
            [folder(drawn())],
            deployment=Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8),
            price_ratio=2.0,
        )
    )
    assert [tier.tier for tier in report.tiers] == ["standard", "fast"]
    assert {tier.requests for tier in report.tiers} == {40}
    assert {answer.method for answer in report.batch} == {"two tiers", "two tiers and price", "white box"}
    assert {item.level for item in report.trust} == {"good"}
    assert report.notes == []
    figures = report.figures
    assert len(figures.prefill_points) == 8
    assert {curve.name for curve in figures.prefill_curves} == {"standard", "fast"}
    for distribution in figures.distributions:
        assert len(distribution.edges) == len(distribution.shares) + 1
        assert sum(distribution.shares) == pytest.approx(1.0)
    assert sum(one.started for one in figures.timeline) == 80


def test_the_same_folder_gives_the_same_report(folder: "Folder", drawn: Any) -> None:
    path = folder(drawn())
    assert analyze([path]) == analyze([path])


def test_a_run_in_which_everything_failed_says_what_failed(folder: "Folder", drawn: Any) -> None:
    records = changed(drawn(), outcome="http_error", status=401, detail="invalid key", **FAILED)
    report = checked(analyze([folder(records)]))
    assert report.headline == "None of 80 requests succeeded; most often http error 401 (invalid key)."
    assert report.verdict.conclusion == "inconclusive"
    assert {(group.tier, group.status, group.count) for group in report.errors} == {
        ("standard", 401, 40),
        ("fast", 401, 40),
    }
    assert report.errors[0].detail == "invalid key"
    assert next(item for item in report.trust if item.topic == "failures").level == "bad"


def test_one_request_is_reported_without_pretending(folder: "Folder", drawn: Any) -> None:
    report = checked(analyze([folder(drawn(1, ("standard",)))]))
    (tier,) = report.tiers
    assert tier.requests == 1
    assert tier.step_s.value is not None
    assert tier.step_s.low is None
    assert report.prefill[0].increment_s.value is None


def test_one_tier_alone_is_described_and_not_compared(folder: "Folder", drawn: Any) -> None:
    report = checked(analyze([folder(drawn(40, ("standard",)))]))
    assert report.verdict.conclusion == "inconclusive"
    assert "Only one tier" in report.verdict.sentence
    assert "nothing is compared" in report.headline
    assert report.tiers[0].step_s.value == pytest.approx(0.02, rel=0.02)
    assert report.prefill[0].increment_s.value == pytest.approx(0.30, rel=0.05)


def test_of_three_tiers_the_first_two_are_compared_unless_others_are_named(
    folder: "Folder", drawn: Any
) -> None:
    tiers = ("fast", "standard", "turbo")
    plan = Plan(
        name="three",
        stages=(Stage(name="compare", arrivals=Closed(streams=8), requests=120),),
        workload=Workload(prompt_tokens=(128,), output_tokens=33),
        tiers=tuple(Tier(name=name) for name in tiers),
    )
    path = folder(drawn(40, tiers), plan=plan)
    usual = checked(analyze([path])).verdict
    assert (usual.baseline_tier, usual.compared_tier) == ("standard", "fast")
    named = analyze([path], baseline="fast", compared="turbo").verdict
    assert (named.baseline_tier, named.compared_tier) == ("fast", "turbo")
    other = analyze([path], compared="standard").verdict
    assert (other.baseline_tier, other.compared_tier) == ("fast", "standard")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"baseline": "slow"}, "--baseline: 'slow' is no tier of this run; its tiers: standard, fast"),
        ({"compared": "slow"}, "--compared: 'slow'"),
        ({"baseline": "fast", "compared": "fast"}, "not compared with itself"),
    ],
)
def test_a_tier_that_is_not_there_is_refused_in_one_line(
    folder: "Folder", drawn: Any, options: dict[str, str], says: str
) -> None:
    with pytest.raises(BadInputError) as refusal:
        analyze([folder(drawn(4))], **options)  # type: ignore[arg-type]
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_warm_up_is_recorded_and_counts_for_nothing(folder: "Folder", drawn: Any) -> None:
    warm = changed(drawn(4), warmup=True, stage="warmup")
    slow = [msgspec.structs.replace(r, event_ns=[at + 10**12 for at in r.event_ns]) for r in warm]
    measured = [msgspec.structs.replace(r, index=r.index + 100) for r in drawn(20)]
    report = checked(analyze([folder([*slow, *measured])]))
    assert report.runs[0].requests == 48
    assert report.runs[0].measured_requests == 40
    ttft = next(row for row in report.tiers[0].quantiles if row.metric == "ttft")
    assert (ttft.p99.value or 0) < 10
    assert {one.stage for one in report.figures.timeline} == {"warmup", "compare"}


def test_a_run_of_warm_up_alone_says_so(folder: "Folder", drawn: Any) -> None:
    report = checked(analyze([folder(changed(drawn(4), warmup=True))]))
    assert report.headline == "No request was measured: only warm-up was recorded."


def test_a_run_cut_short_is_partial_and_its_cancelled_requests_are_left_out(
    folder: "Folder", drawn: Any
) -> None:
    records = drawn(20)
    records[-3:] = changed(records[-3:], outcome="cancelled", **FAILED)
    report = checked(analyze([folder(records, status="partial", status_detail="stopped by you")]))
    assert report.runs[0].measured_requests == 37
    assert any("3 requests were cut off" in note for note in report.notes)
    completeness = next(item for item in report.trust if item.topic == "completeness")
    assert completeness.level == "caution"
    assert "stopped by you" in completeness.sentence


def test_requests_without_usage_or_times_leave_holes_and_no_nan(folder: "Folder", drawn: Any) -> None:
    records = changed(drawn(20), output_tokens=None, tokens_source=None, prompt_tokens=None, echoed_tier=None)
    report = checked(analyze([folder(records)]))
    otps = next(row for row in report.tiers[0].quantiles if row.metric == "otps")
    assert otps.count == 0
    assert otps.p50.value is None
    assert report.tiers[0].step_s.value is not None


def test_all_tokens_in_one_read_give_no_speed_and_no_infinity(folder: "Folder", drawn: Any) -> None:
    records = [
        msgspec.structs.replace(record, event_ns=[record.event_ns[0]] * 33, coalesced_events=32)
        for record in drawn(20)
    ]
    report = checked(analyze([folder(records)]))
    assert report.tiers[0].tokens_per_s.value is None
    assert next(item for item in report.trust if item.topic == "coalescing").level == "bad"


def test_a_clock_that_jumps_back_is_told_and_breaks_nothing(folder: "Folder", drawn: Any) -> None:
    records = drawn(20)
    for place in (0, 5):
        event_ns = list(records[place].event_ns)
        event_ns[10] -= 5 * 10**9
        records[place] = msgspec.structs.replace(records[place], event_ns=event_ns)
    report = checked(analyze([folder(records)]))
    assert any("jumped back within 2 requests" in note for note in report.notes)
    assert report.tiers[0].step_s.value == pytest.approx(0.02, rel=0.05)


def test_requests_for_a_tier_that_the_plan_lacks_are_told(
    folder: "Folder", drawn: Any, plan_for: Callable[..., Plan]
) -> None:
    report = checked(analyze([folder(drawn(10), plan=plan_for(["standard"]))]))
    assert report.tiers[0].requests == 10
    assert any("10 requests name a tier that is not in the plan" in note for note in report.notes)


def test_pooled_runs_follow_one_another_in_the_timeline(folder: "Folder", drawn: Any) -> None:
    paths = [folder(drawn(20), name=name, run_id=name) for name in ("one", "two")]
    report = checked(analyze(paths))
    assert [run.run_id for run in report.runs] == ["one", "two"]
    starts = [one.start_s for one in report.figures.timeline if one.tier == "standard"]
    assert starts == sorted(starts)
    assert report.verdict.decode is not None
    assert report.verdict.decode.pairs == 40


def item(report: Report, topic: str) -> tuple[str, str]:
    found = next(one for one in report.trust if one.topic == topic)
    return found.level, found.sentence


def test_a_tier_served_as_another_is_bad_news(folder: "Folder", drawn: Any) -> None:
    records = [
        msgspec.structs.replace(record, echoed_tier="default") if record.index % 5 == 0 else record
        for record in drawn(40)
    ]
    level, sentence = item(analyze([folder(records)]), "tier echo")
    assert level == "bad"
    assert "priority" in sentence


def test_priority_and_fast_are_one_tier(folder: "Folder", drawn: Any) -> None:
    records = [
        msgspec.structs.replace(record, echoed_tier="fast") if record.requested_tier == "fast" else record
        for record in drawn(40)
    ]
    assert item(analyze([folder(records)]), "tier echo")[0] == "good"


def test_an_echo_in_some_responses_only_is_not_taken_for_all(folder: "Folder", drawn: Any) -> None:
    records = [
        record if record.index % 5 == 0 else msgspec.structs.replace(record, echoed_tier=None)
        for record in drawn(40)
    ]
    level, sentence = item(analyze([folder(records)]), "tier echo")
    assert level == "caution"
    assert "in 16 of 80 responses" in sentence


def test_tokens_counted_by_events_and_cached_prompts_are_told(folder: "Folder", drawn: Any) -> None:
    report = analyze([folder(changed(drawn(), tokens_source="events", cached_tokens=640))])
    assert item(report, "token counts")[0] == "caution"
    assert item(report, "prefix cache")[0] == "caution"


def test_the_command_that_repeats_a_run_names_its_plan_target_and_seed(folder: "Folder", drawn: Any) -> None:
    (run,) = analyze([folder(drawn(4))]).runs
    assert run.repeat_command == "tierscope run drawn.toml --url http://127.0.0.1:1 --model m --seed 1"


def test_the_command_that_repeats_a_run_stops_it_where_it_was_stopped(folder: "Folder", drawn: Any) -> None:
    plan = plans.ending(plans.load("ab", seed=4), "verdict")
    (run,) = analyze([folder(drawn(4), plan=plan)]).runs
    assert run.repeat_command == (
        "tierscope run ab --url http://127.0.0.1:1 --model m --seed 4 --until verdict"
    )


@pytest.mark.slow
def test_ten_thousand_requests_are_reported_in_bounded_size(
    folder: "Folder", draw: "type[Draw]", server: "type[Server]"
) -> None:
    tiers = {"standard": server(), "fast": server(step_s=0.008)}
    report = analyze([folder(draw(tiers, per_tier=5000, output_tokens=9, gap_s=0.01).records())])
    assert report.verdict.conclusion == "decode changed, prefill unchanged"
    assert len(msgspec.json.encode(report)) < 200_000


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"run\.json"):
        analyze([tmp_path])
