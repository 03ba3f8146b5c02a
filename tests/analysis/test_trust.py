"""What the report doubts, and which number: each doubt with a run that gives reason to it and one without."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from analysis.analyze import analyze
from analysis.model import Report, TrustItem
from loadtest.plan import Closed, Control, Plan, Poisson, Stage
from loadtest.records import ClientHealth, RequestRecord, WorkerInfo

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Folder, Server

OPEN = Stage(name="compare", arrivals=Poisson(rate_per_s=5.0), requests=80)
CLOSED = Stage(name="compare", arrivals=Closed(streams=8), requests=80)


@pytest.fixture
def drawn(draw: "type[Draw]", server: "type[Server]") -> list[RequestRecord]:
    tiers = {"standard": server(), "fast": server(step_s=0.008)}
    return draw(tiers, per_tier=40).records()


@pytest.fixture
def judged(
    folder: "Folder", drawn: list[RequestRecord], plan_for: Callable[..., Plan]
) -> Callable[..., dict[str, TrustItem]]:
    """The report's doubts by topic, on the drawn run with changes to its client, plan, info and records."""

    def judge(
        *,
        client: dict[str, Any] | None = None,
        stage: Stage = CLOSED,
        control: Control | None = None,
        records: dict[str, Any] | Callable[[RequestRecord], RequestRecord] | None = None,
        **info: Any,
    ) -> dict[str, TrustItem]:
        plan = plan_for(["standard", "fast"], stages=(stage,))
        plan = msgspec.structs.replace(plan, control=control or Control())
        change = records if callable(records) else lambda one: msgspec.structs.replace(one, **(records or {}))
        health = msgspec.structs.replace(HEALTHY, **(client or {}))
        path = folder([change(one) for one in drawn], plan=plan, **{"client": health, **info})
        report: Report = analyze([path])
        assert all(one.sentence.endswith(".") and "nan" not in one.sentence for one in report.trust)
        return {one.topic: one for one in report.trust}

    return judge


HEALTHY = ClientHealth(
    cpu_s=3.0,
    wall_s=10.0,
    worst_lag_s=0.0004,
    connections_opened=8,
    stamp_source="kernel",
    cpu_max_ratio=0.6,
    hub_late_max_s=0.002,
)
Judged = Callable[..., dict[str, TrustItem]]


@pytest.mark.parametrize("stage", [OPEN, CLOSED])
def test_a_healthy_client_gives_no_reason_to_doubt(judged: Judged, stage: Stage) -> None:
    found = judged(stage=stage)
    assert {one.level for one in found.values()} == {"good"}
    assert found["client CPU"].sentence == "The client used 30 % of one core, 60 % in its busiest second."
    assert ("client lag" in found) == (stage is OPEN)
    assert not {"clock", "prompt lengths", "streaming", "looks"} & found.keys()


def test_figures_that_an_older_run_did_not_record_are_not_missed(judged: Judged) -> None:
    found = judged(client={"cpu_max_ratio": None, "hub_late_max_s": None})
    assert found["client CPU"].sentence == "The client used 30 % of one core."
    assert "client event loop" not in found


def test_a_run_that_recorded_nothing_of_its_client_says_so(folder: "Folder", drawn: Any) -> None:
    found = {one.topic: one for one in analyze([folder(drawn, client=None)]).trust}
    assert found["client"].level == "caution"


@pytest.mark.parametrize(
    ("stage", "concerned", "spared"),
    [
        (OPEN, "the offered rate and TTFT from scheduled cannot be trusted", "pauses"),
        (CLOSED, "the pauses between a stream's requests cannot be trusted", "offered rate"),
    ],
)
def test_a_busy_client_with_kernel_stamps_makes_sending_doubtful_and_no_latency(
    judged: Judged, stage: Stage, concerned: str, spared: str
) -> None:
    found = judged(stage=stage, client={"cpu_s": 8.0, "cpu_max_ratio": 0.95})
    assert found["client CPU"].level == "caution"
    assert concerned in found["client CPU"].sentence
    assert spared not in found["client CPU"].sentence
    assert "TTFT from sent and ITL can, because the kernel stamped them" in found["client CPU"].sentence
    assert found["stamps"].level == "good"


def test_a_busy_client_that_stamps_itself_makes_every_latency_doubtful(judged: Judged) -> None:
    note = "the probe saw no kernel stamps"
    found = judged(
        client={"cpu_s": 7.2, "stamp_source": "user", "stamp_note": note}, records={"stamp_source": "user"}
    )
    assert "neither can TTFT and ITL" in found["client CPU"].sentence
    assert found["stamps"].level == "bad"
    assert "TTFT, ITL and step time" in found["stamps"].sentence
    assert note in found["stamps"].sentence


def test_own_stamps_of_an_idle_client_are_a_caution_only(judged: Judged) -> None:
    found = judged(client={"stamp_source": "user"}, records={"stamp_source": "user"})
    assert found["stamps"].level == "caution"
    assert "TTFT and ITL" in found["stamps"].sentence


def test_stamps_of_both_kinds_are_told_with_their_share(judged: Judged) -> None:
    half = judged(
        records=lambda one: msgspec.structs.replace(
            one, stamp_source="user" if one.index % 4 == 0 else "kernel"
        )
    )
    assert "25 % of the requests" in half["stamps"].sentence


@pytest.mark.parametrize(("cpu_s", "level"), [(6.9, "good"), (7.1, "caution"), (9.2, "bad")])
def test_the_mean_load_is_graded(judged: Judged, cpu_s: float, level: str) -> None:
    assert judged(client={"cpu_s": cpu_s, "cpu_max_ratio": None})["client CPU"].level == level


def test_one_overloaded_second_is_a_caution(judged: Judged) -> None:
    once = judged(client={"cpu_max_ratio": 0.97})["client CPU"]
    assert once.level == "caution"
    assert "97 % in its busiest second, and was short of it then" in once.sentence
    assert "bottleneck" not in once.sentence
    assert judged(client={"cpu_max_ratio": 0.85})["client CPU"].level == "good"


@pytest.mark.parametrize(("lag_s", "level"), [(0.0005, "good"), (0.008, "caution"), (0.2, "bad")])
def test_requests_that_leave_late_make_the_rate_and_ttft_from_scheduled_doubtful(
    judged: Judged, lag_s: float, level: str
) -> None:
    def late(one: RequestRecord) -> RequestRecord:
        return msgspec.structs.replace(one, scheduled_ns=one.scheduled_ns - round(lag_s * 1e9))

    found = judged(stage=OPEN, client={"worst_lag_s": lag_s}, records=late)["client lag"]
    assert found.level == level
    assert ("the offered rate is not the plan's" in found.sentence) == (level != "good")
    assert ("TTFT from sent does not" in found.sentence) == (level != "good")


def test_one_late_request_among_many_is_a_caution(judged: Judged) -> None:
    found = judged(stage=OPEN, client={"worst_lag_s": 0.3})["client lag"]
    assert found.level == "caution"
    assert "300 ms" in found.sentence


@pytest.mark.parametrize(("late_s", "level"), [(0.004, "good"), (0.05, "caution"), (0.5, "bad")])
def test_an_event_loop_that_was_held_up_is_told(judged: Judged, late_s: float, level: str) -> None:
    kernel = judged(client={"hub_late_max_s": late_s})["client event loop"]
    own = judged(client={"hub_late_max_s": late_s}, records={"stamp_source": "user"}, name="own")
    assert kernel.level == own["client event loop"].level == level
    assert "ITL" not in kernel.sentence
    assert ("TTFT and ITL" in own["client event loop"].sentence) == (level != "good")


def test_an_event_loop_that_was_late_once_is_a_caution(judged: Judged) -> None:
    found = judged(client={"hub_late_max_s": 0.4, "hub_late_p99_s": 0.003})["client event loop"]
    assert found.level == "caution"
    assert "400 ms" in found.sentence
    assert "3.00 ms" in found.sentence
    assert (
        judged(client={"hub_late_max_s": 0.1, "hub_late_p99_s": 0.003})["client event loop"].level == "good"
    )


def workers(**changes: Any) -> list[WorkerInfo]:
    other = WorkerInfo(name="b", requests=40, cpu_s=4.0, cpu_max_ratio=0.5)
    return [WorkerInfo(**{"name": "a", "requests": 40, "cpu_s": 4.0, **changes}), other]


def test_two_workers_on_a_core_each_are_not_one_that_is_overloaded(judged: Judged) -> None:
    found = judged(client={"cpu_s": 8.0}, workers=workers())
    assert found["client CPU"].level == "good"
    assert found["client CPU"].sentence.startswith("The busiest worker used 40 % of one core")
    assert not {"workers", "workers' clocks"} & found.keys()
    assert judged(client={"cpu_s": 12.0}, workers=workers(cpu_s=8.0))["client CPU"].level == "caution"
    assert judged(client={"cpu_s": 8.0}, workers=workers(cpu_max_ratio=1.0))["client CPU"].level == "caution"


def test_a_lost_worker_is_named_with_what_is_missing(judged: Judged) -> None:
    found = judged(workers=workers(lost="it was killed"), status="partial", status_detail="a was lost")
    assert found["workers"].level == "caution"
    assert "1 worker did not last: a (it was killed)" in found["workers"].sentence
    assert "offered rate" in found["workers"].sentence


@pytest.mark.parametrize(("error_s", "told"), [(0.0005, False), (0.03, True)])
def test_clocks_of_machines_that_lie_apart_are_told(judged: Judged, error_s: float, told: bool) -> None:
    found = judged(workers=workers(clock_error_ns=round(error_s * 1e9)))
    assert ("workers' clocks" in found) == told
    if told:
        assert "±30.0 ms" in found["workers' clocks"].sentence
        assert "TTFT and ITL are not concerned" in found["workers' clocks"].sentence


def test_coalescing_is_told_for_each_tier(judged: Judged) -> None:
    def packed(one: RequestRecord) -> RequestRecord:
        return msgspec.structs.replace(one, coalesced_events=8 if one.requested_tier == "fast" else 0)

    found = judged(records=packed)["coalescing"]
    assert found.level == "caution"
    assert "0 % of standard's events and 24.2 % of fast's events" in found.sentence
    assert "ITL and step time are coarse" in found.sentence


@pytest.mark.parametrize(("stepped_s", "told"), [(0.0, False), (0.0002, False), (1.5, True)])
def test_a_clock_that_was_set_is_told(judged: Judged, stepped_s: float, told: bool) -> None:
    found = judged(client={"clock_stepped_s": stepped_s})
    assert ("clock" in found) == told
    if told:
        assert "1.50 s" in found["clock"].sentence
        assert "TTFT and ITL" in found["clock"].sentence


@pytest.mark.parametrize(
    ("status", "detail", "level", "words"),
    [
        ("complete", "", "good", "through its whole plan"),
        (
            "complete",
            "stopped: the cost ceiling is reached",
            "good",
            "(stopped: the cost ceiling is reached)",
        ),
        ("partial", "worker 1 was lost", "caution", "(worker 1 was lost)"),
        ("running", "", "caution", "1 of 1 run did not end in order"),
    ],
)
def test_how_a_run_ended_is_told(judged: Judged, status: str, detail: str, level: str, words: str) -> None:
    found = judged(status=status, status_detail=detail)["completeness"]
    assert found.level == level
    assert words in found.sentence


@pytest.mark.parametrize(("factor", "level"), [(1.02, None), (1.1, "caution"), (0.6, "bad")])
def test_prompts_that_missed_their_length_are_told(judged: Judged, factor: float, level: str | None) -> None:
    def missed(one: RequestRecord) -> RequestRecord:
        return msgspec.structs.replace(one, prompt_tokens=round(one.prompt_class_tokens * factor))

    found = judged(records=missed).get("prompt lengths")
    assert (found.level if found else None) == level
    if found:
        assert f"{abs(factor - 1):.0%}".replace("%", " %") in found.sentence


def test_prompts_that_the_server_did_not_count_are_told(judged: Judged) -> None:
    found = judged(records={"prompt_tokens": None})["prompt lengths"]
    assert found.level == "caution"
    assert "prefill in tokens per second" in found.sentence


def test_what_was_noticed_of_the_prompts_is_told(judged: Judged) -> None:
    found = judged(prompt_cautions=["the 12 prompts of p.jsonl were used again"])["prompts"]
    assert found.level == "caution"
    assert found.sentence == "Of the prompts: the 12 prompts of p.jsonl were used again."
    assert "prompts" not in judged(name="plain")


def test_answers_that_were_not_streamed_have_no_ttft_and_that_is_told(judged: Judged) -> None:
    def whole(one: RequestRecord) -> RequestRecord:
        return msgspec.structs.replace(one, event_ns=[], event_kinds=[], first_text_ns=None, streamed=False)

    found = judged(records=whole)
    assert found["streaming"].level == "caution"
    assert found["streaming"].sentence.startswith("80 answers came as one document")


def test_a_run_that_was_looked_at_says_how_often_and_at_what_level_it_is_judged(judged: Judged) -> None:
    stage = msgspec.structs.replace(CLOSED, requests=160)
    found = judged(stage=stage, control=Control(until="verdict"))["looks"]
    assert found.level == "good"
    assert "up to 3 of 8 times" in found.sentence  # 80 of 160
    assert "99.81 %" in found.sentence
