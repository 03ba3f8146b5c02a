"""Reports on workloads other than exact classes: sensible answers or clear refusals, bounded in size."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from analysis import report as report_files
from analysis.analyze import analyze
from analysis.model import Report
from loadtest.plan import Arrivals, Closed, Plan, Poisson, Stage, Tier, TraceTimes, Workload
from loadtest.plan_workload import Lognormal, Sessions, Trace
from loadtest.records import RequestRecord
from mockserver.hardware import Deployment

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Folder, Server

CLOSED = Closed(streams=8)
LONG_TAILED = Lognormal(median=3000, sigma=0.9, minimum=100, maximum=16384)


def plan_of(work: Workload, *, arrivals: Arrivals = CLOSED, tiers: tuple[Tier, ...] | None = None) -> Plan:
    stage = Stage(
        name="compare", arrivals=arrivals, requests=None if isinstance(arrivals, TraceTimes) else 160
    )
    return Plan(
        name="drawn",
        stages=(stage,),
        workload=work,
        tiers=tiers
        or (
            Tier(name="standard", body={"service_tier": "default"}),
            Tier(name="fast", body={"service_tier": "priority"}),
        ),
    )


@pytest.fixture
def many_lengths(draw: "type[Draw]", server: "type[Server]") -> Callable[..., list[RequestRecord]]:
    """Records of two tiers with prompts of which hardly two are equally long; lengths alike in both tiers."""

    def make(fast: dict[str, float], seed: int = 1, per_tier: int = 120) -> list[RequestRecord]:
        rng = np.random.default_rng(seed)
        lengths = tuple(
            np.clip(3000 * np.exp(0.9 * rng.normal(size=per_tier)), 100, 16384).astype(int).tolist()
        )
        tiers = {"standard": server(), "fast": server(**fast)}
        return draw(tiers, seed=seed, per_tier=per_tier, lengths=lengths).records()

    return make


def changed(records: list[RequestRecord], **changes: Any) -> list[RequestRecord]:
    return [msgspec.structs.replace(record, **changes) for record in records]


def written(report: Report, folder: Path) -> str:
    """Write a report in all its forms and give the Markdown."""
    files = {form: folder / f"r.{form}" for form in ("html", "json", "md")}
    report_files.write(report, **files)
    return files["md"].read_text()


WORKLOADS: dict[str, tuple[Workload, Arrivals]] = {
    "drawn": (Workload(prompt_tokens=LONG_TAILED, output_tokens=33), CLOSED),
    "open": (Workload(prompt_tokens=LONG_TAILED, output_tokens=33), Poisson(rate_per_s=20.0)),
    "trace": (Workload(trace=Trace(file="t.csv", format="azure")), TraceTimes()),
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_lengths_that_all_differ_give_the_verdict_and_a_table_that_can_be_read(
    kind: str, many_lengths: Callable[..., list[RequestRecord]], folder: "Folder", tmp_path: Path
) -> None:
    work, arrivals = WORKLOADS[kind]
    report = analyze([folder(many_lengths({"step_s": 0.008}), plan=plan_of(work, arrivals=arrivals))])
    assert report.verdict.conclusion == "decode changed, prefill unchanged"
    assert report.verdict.decode is not None
    assert abs(report.verdict.decode.z or 0) > 10  # not averaged away with its own mean
    points = [one for one in report.figures.prefill_points if one.tier == "fast"]
    assert 4 <= len(points) <= 8
    assert [one.prompt_tokens for one in points] == sorted(one.prompt_tokens for one in points)
    assert sum(one.count for one in points) == 120
    assert {item.topic: item.level for item in report.trust}["steady state"] == "good"
    assert len(written(report, tmp_path).splitlines()) < 300


@pytest.mark.parametrize("seed", range(1, 4))
def test_equal_tiers_with_drawn_lengths_are_not_called_changed(
    seed: int, many_lengths: Callable[..., list[RequestRecord]], folder: "Folder"
) -> None:
    work, _ = WORKLOADS["drawn"]
    found = analyze([folder(many_lengths({}, seed), plan=plan_of(work))]).verdict
    assert found.conclusion in ("neither changed", "inconclusive")
    assert found.decode is not None
    assert found.decode.answer != "changed"


def test_decode_that_slows_with_the_prompt_is_no_difference_of_tiers_of_unequal_prompts(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder"
) -> None:
    """Tokens come 5 % slower for each 1,000 tokens of prompt, and one tier has the longer prompts."""
    made = []
    for record in many_lengths({}):
        if record.requested_tier == "fast" and record.prompt_class_tokens > 6000:
            continue
        slower = np.exp(0.05 * record.prompt_class_tokens / 1000)
        first = record.event_ns[0]
        event_ns = [round(first + (at - first) * slower) for at in record.event_ns]
        made.append(msgspec.structs.replace(record, event_ns=event_ns, ended_ns=event_ns[-1]))
    work, _ = WORKLOADS["drawn"]
    found = analyze([folder(made, plan=plan_of(work))]).verdict
    assert found.decode is not None
    assert abs(found.decode.z or 99) < 3


def test_conversations_are_judged_by_what_was_not_cached(
    draw: "type[Draw]", server: "type[Server]", folder: "Folder", tmp_path: Path
) -> None:
    """Each turn resends a history that the server has cached; only what is new is prefilled."""
    tiers = {"standard": server(), "fast": server(step_s=0.008)}
    made = [
        msgspec.structs.replace(
            record,
            session=f"compare-{record.index // 4}",
            turn=record.index % 4,
            prompt_class_tokens=record.prompt_class_tokens + 4000 * (record.index % 4),
            prompt_tokens=record.prompt_class_tokens + 4000 * (record.index % 4),
            cached_tokens=4000 * (record.index % 4),
        )
        for record in draw(tiers, per_tier=120).records()
    ]
    work = Workload(
        prompt_tokens=(128, 2048, 8192, 16384), output_tokens=33, sessions=Sessions(turns=4, turn_tokens=4000)
    )
    report = analyze([folder(made, plan=plan_of(work))])
    assert report.verdict.conclusion == "decode changed, prefill unchanged"
    assert "prefix cache" in {item.topic for item in report.trust}
    assert len(report.figures.prefill_points) <= 16
    assert written(report, tmp_path)


def test_the_requests_that_calibrate_prompts_are_warm_up_of_a_stage_that_no_plan_has(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder", tmp_path: Path
) -> None:
    made = many_lengths({"step_s": 0.008})
    shift = 3 * 10**9
    later = [
        msgspec.structs.replace(
            record,
            index=record.index + 3,
            event_ns=[at + shift for at in record.event_ns],
            **{
                name: getattr(record, name) + shift
                for name in ("scheduled_ns", "sent_ns", "headers_ns", "first_text_ns", "ended_ns")
            },
        )
        for record in made
    ]
    calibration = [
        msgspec.structs.replace(record, index=place, stage="calibration", warmup=True)
        for place, record in enumerate(made[:3])
    ]
    work, _ = WORKLOADS["drawn"]
    report = analyze([folder([*calibration, *later], plan=plan_of(work))])
    assert report.runs[0].measured_requests == 240
    assert report.verdict.conclusion == "decode changed, prefill unchanged"
    assert report.figures.timeline[0].stage == "calibration"
    assert written(report, tmp_path)


def whole(records: list[RequestRecord]) -> list[RequestRecord]:
    """The same answers, each as one document."""
    return changed(records, event_ns=[], event_kinds=[], first_text_ns=None, headers_ns=None, streamed=False)


def test_answers_that_were_not_streamed_are_compared_with_nothing_and_that_is_said(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder", tmp_path: Path
) -> None:
    work = msgspec.structs.replace(WORKLOADS["drawn"][0], stream=False)
    report = analyze(
        [folder(whole(many_lengths({"step_s": 0.008}, per_tier=40)), plan=plan_of(work))],
        deployment=Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8),
        price_ratio=2.0,
    )
    found = report.verdict
    assert found.conclusion == "inconclusive"
    assert found.sentence.count("were not streamed") == 2
    assert found.more_requests_per_tier is None
    e2e = next(row for row in report.tiers[0].quantiles if row.metric == "e2e")
    assert e2e.count == 40
    assert e2e.p50.value is not None
    assert "were not streamed" in written(report, tmp_path)


def test_one_tier_alone_that_was_not_streamed_is_headed_by_what_is_known(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder"
) -> None:
    made = [one for one in whole(many_lengths({}, per_tier=40)) if one.requested_tier == "standard"]
    work = msgspec.structs.replace(WORKLOADS["drawn"][0], stream=False)
    report = analyze([folder(made, plan=plan_of(work, tiers=(Tier(name="standard"),)))])
    assert "ends its answers after" in report.headline


def test_a_sweep_that_was_not_streamed_says_nothing_of_steps(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder", tmp_path: Path
) -> None:
    made = whole(many_lengths({}, per_tier=40))
    half = len(made) // 2
    made = [*changed(made[:half], stage="level-1"), *changed(made[half:], stage="level-2")]
    stages = tuple(
        Stage(name=f"level-{number}", arrivals=Closed(streams=number * 4), requests=40) for number in (1, 2)
    )
    work = msgspec.structs.replace(WORKLOADS["drawn"][0], stream=False)
    plan = msgspec.structs.replace(plan_of(work), stages=stages)
    report = analyze([folder(made, plan=plan)])
    assert report.figures.sweep == []
    assert "sweep" not in {answer.method for answer in report.batch}
    assert written(report, tmp_path)


def test_tiers_that_are_different_models_or_servers_are_not_passed_off_as_one(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder", tmp_path: Path
) -> None:
    made = [
        msgspec.structs.replace(one, model="m-turbo" if one.requested_tier == "fast" else "m")
        for one in many_lengths({"step_s": 0.008})
    ]
    tiers = (Tier(name="standard"), Tier(name="fast", model="m-turbo", url="http://127.0.0.2:1"))
    work, _ = WORKLOADS["drawn"]
    report = analyze(
        [folder(made, plan=plan_of(work, tiers=tiers))],
        deployment=Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8),
    )
    found = next(item for item in report.trust if item.topic == "targets")
    assert found.level == "caution"
    assert "standard asks for m" in found.sentence
    assert "fast for m-turbo" in found.sentence
    assert "white box" not in {answer.method for answer in report.batch}
    assert any("several models (m, m-turbo)" in note for note in report.notes)
    assert written(report, tmp_path)


def test_tiers_of_one_model_at_one_address_give_no_such_caution(
    many_lengths: Callable[..., list[RequestRecord]], folder: "Folder"
) -> None:
    work, _ = WORKLOADS["drawn"]
    report = analyze([folder(many_lengths({}), plan=plan_of(work))])
    assert "targets" not in {item.topic for item in report.trust}
