"""A simulated run is a real run's folder: same requests, same format, repeatable to the byte."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from analysis.analyze import analyze
from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Closed, Constant, Plan, Poisson, Stage, Tier, Workload
from loadtest.plan_workload import Sessions, Uniform
from mockserver import config as profiles
from tierscope import simulate as simulation
from tierscope.errors import BadInputError, RunFailedError
from tierscope.simulate import simulate, simulate_run
from tierscope.validate import validate_files


def small(arrivals: Closed | Poisson | Constant, **stage: object) -> Plan:
    return Plan(
        name="small",
        workload=Workload(prompt_tokens=(64, 512), output_tokens=16),
        tiers=(
            Tier(name="standard", body={"service_tier": "default"}),
            Tier(name="fast", body={"service_tier": "priority"}),
        ),
        stages=(msgspec.convert({"name": "s", "arrivals": msgspec.to_builtins(arrivals), **stage}, Stage),),
    )


CONFIG = profiles.load("fast-tier")


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in [("a", 7), ("b", 7), ("c", 8)]:
        simulate_run("smoke", profile="fast-tier", seed=seed, out=tmp_path / name)
    files = [(tmp_path / n / "requests-0.jsonl").read_bytes() for n in "abc"]
    assert files[0] == files[1] != files[2]
    assert (tmp_path / "a/run.json").read_bytes() == (tmp_path / "b/run.json").read_bytes()


def test_a_closed_loop_never_has_more_in_flight_than_streams_and_keeps_them_busy() -> None:
    done = list(simulate(small(Closed(streams=5), requests=60), CONFIG))
    assert len(done) == 60
    edges = sorted([(r.sent_ns or 0, 1) for r in done] + [(r.ended_ns, -1) for r in done])
    level, levels = 0, []
    for _, change in edges:
        level += change
        levels.append(level)
    assert max(levels) == 5


@pytest.mark.parametrize("rate_per_s", [2.0, 20.0])
def test_an_open_loop_sends_on_schedule_whatever_the_server_does(rate_per_s: float) -> None:
    done = sorted(
        simulate(small(Constant(rate_per_s=rate_per_s), requests=40), CONFIG), key=lambda r: r.index
    )
    assert [r.sent_ns for r in done] == [round(k * 1e9 / rate_per_s) for k in range(40)]


def test_a_stage_ends_after_its_duration_and_the_next_one_starts_when_it_has_ended() -> None:
    plan = small(Poisson(rate_per_s=10.0), duration_s=3.0)
    second = msgspec.structs.replace(plan.stages[0], name="t", duration_s=2.0)
    done = list(simulate(msgspec.structs.replace(plan, stages=(plan.stages[0], second)), CONFIG))
    first = [r for r in done if r.stage == "s"]
    later = [r for r in done if r.stage == "t"]
    assert first
    assert later
    assert max(r.sent_ns or 0 for r in first) < 3.0e9
    assert min(r.sent_ns or 0 for r in later) >= max(r.ended_ns for r in first)
    assert sorted(r.index for r in done) == list(range(len(done)))


def test_instants_of_a_request_are_in_order_and_tokens_complete() -> None:
    for r in simulate(small(Closed(streams=4), requests=40), CONFIG):
        assert r.outcome == "ok"
        assert len(r.event_ns) == r.output_tokens == 16
        assert r.event_ns == sorted(r.event_ns)
        assert (r.sent_ns or 0) < (r.headers_ns or 0) <= r.event_ns[0] <= r.ended_ns


def test_what_the_server_would_refuse_is_recorded_as_refused_and_the_run_goes_on() -> None:
    plan = msgspec.structs.replace(
        small(Closed(streams=2), requests=400),
        tiers=(Tier(name="standard"), Tier(name="odd", body={"service_tier": "no-such-tier"})),
    )
    outcomes = Counter((r.requested_tier, r.outcome, r.status) for r in simulate(plan, CONFIG))
    assert outcomes == {("standard", "ok", 200): 200, ("odd", "http_error", 400): 200}


def test_a_folder_with_files_is_not_overwritten_unasked(tmp_path: Path) -> None:
    simulate_run("smoke", profile="fast-tier", seed=1, out=tmp_path)
    with pytest.raises(BadInputError, match="not empty"):
        simulate_run("smoke", profile="fast-tier", seed=2, out=tmp_path)
    simulate_run("smoke", profile="fast-tier", seed=2, out=tmp_path, force=True)
    assert records.read_run(tmp_path).info.plan.seed == 2


@pytest.mark.parametrize("name", plans.shipped())
def test_every_shipped_plan_can_be_simulated(name: str) -> None:
    plan = plans.load(name)
    done = list(simulate(plan, CONFIG))
    assert len(done) == sum(stage.requests or 0 for stage in plan.stages)
    assert {r.outcome for r in done} == {"ok"}


@pytest.mark.parametrize("how", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_simulation_that_breaks_off_leaves_a_partial_run_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: BaseException
) -> None:
    whole = list(simulate(plans.load("smoke"), CONFIG))

    def broken_off(*_: object, **__: object) -> Iterator[records.RequestRecord]:
        yield from whole[:3]
        raise how

    monkeypatch.setattr(simulation, "simulate", broken_off)
    with pytest.raises((RunFailedError, KeyboardInterrupt)):
        simulate_run("smoke", profile="fast-tier", seed=None, out=tmp_path / "run")
    run = records.read_run(tmp_path / "run")
    assert run.info.status == "partial"
    assert len(run.records) == 3


def test_a_full_disk_leaves_a_run_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.RecordWriter, "flush", full)
    with pytest.raises(RunFailedError, match=r"run cannot be written: No space left on device"):
        simulate_run("smoke", profile="fast-tier", seed=None, out=tmp_path / "run")
    assert records.read_run(tmp_path / "run").info.status == "running"


def test_a_simulation_in_which_nothing_succeeds_has_failed(tmp_path: Path) -> None:
    plan = tmp_path / "long.toml"
    plan.write_text(
        'name = "long"\n[workload]\nprompt_tokens = [10000000]\noutput_tokens = 4\n'
        '[[stages]]\nname = "s"\nrequests = 4\narrivals = { kind = "closed", streams = 1 }\n'
    )
    with pytest.raises(RunFailedError, match=r"none of 4 requests succeeded: HTTP 400: .*maximum context"):
        simulate_run(str(plan), profile="fast-tier", seed=None, out=tmp_path / "run")
    assert len(records.read_run(tmp_path / "run").records) == 4


# Conversations, traces, answers in one piece

TALK = Workload(
    prompt_tokens=(200, 400),
    output_tokens=Uniform(minimum=4, maximum=30),
    sessions=Sessions(turns=4, turn_tokens=25, think_s=0.5, switch_turn=2, switch_tier="fast"),
)


def by_session(done: list[records.RequestRecord]) -> dict[str, list[records.RequestRecord]]:
    talks: dict[str, list[records.RequestRecord]] = defaultdict(list)
    for record in sorted(done, key=lambda r: r.index):
        talks[record.session or ""].append(record)
    return talks


@pytest.mark.parametrize("arrivals", [Closed(streams=3, think_s=2.0), Poisson(rate_per_s=5.0)])
def test_turns_follow_each_other_and_resend_all_that_was_said(arrivals: Closed | Poisson) -> None:
    plan = msgspec.structs.replace(small(arrivals, requests=80), workload=TALK)
    done = list(simulate(plan, CONFIG))
    assert len(done) == 80
    for talk in by_session(done).values():
        assert [r.turn for r in talk] == [0, 1, 2, 3]
        assert [r.requested_tier for r in talk[2:]] == ["fast", "fast"]
        assert talk[0].prompt_tokens in (200, 400)
        for before, after in itertools.pairwise(talk):
            assert after.prompt_tokens == (before.prompt_tokens or 0) + (before.output_tokens or 0) + 25
            assert after.sent_ns == before.ended_ns + 500_000_000
        assert [r.prompt_tokens for r in talk] == [r.prompt_class_tokens for r in talk]


def test_in_a_closed_loop_a_stream_holds_one_conversation_after_the_other() -> None:
    plan = msgspec.structs.replace(small(Closed(streams=3, think_s=2.0), requests=80), workload=TALK)
    talks = by_session(list(simulate(plan, CONFIG))).values()
    spans = sorted((talk[0].sent_ns or 0, talk[-1].ended_ns) for talk in talks)
    edges = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    assert max(itertools.accumulate(change for _, change in edges)) == 3
    ends = {end + 2_000_000_000 for _, end in spans}
    assert all(start in ends for start, _ in spans[3:])


def test_in_an_open_loop_conversations_arrive_on_schedule_and_not_requests() -> None:
    plan = msgspec.structs.replace(small(Constant(rate_per_s=4.0), duration_s=5.0), workload=TALK)
    talks = by_session(list(simulate(plan, CONFIG)))
    assert [talk[0].sent_ns for talk in talks.values()] == [k * 250_000_000 for k in range(20)]
    assert all((r.sent_ns or 0) < 5e9 for talk in talks.values() for r in talk)
    assert next(len(talk) for talk in talks.values()) == 4  # later ones are cut by the stage's end


def test_a_turn_that_is_refused_ends_its_conversation() -> None:
    plan = msgspec.structs.replace(small(Closed(streams=2), requests=40), workload=TALK)
    plan = msgspec.structs.replace(
        plan, tiers=(plan.tiers[0], Tier(name="fast", body={"service_tier": "no-such-tier"}))
    )
    talks = by_session(list(simulate(plan, CONFIG))).values()
    ways = Counter(tuple(r.outcome for r in talk) for talk in talks)
    assert ways == {("ok", "ok", "http_error"): 5, ("http_error",): 5}


def test_indices_of_a_second_stage_begin_after_the_first_ones_last_conversation() -> None:
    plan = msgspec.structs.replace(small(Closed(streams=2), requests=6), workload=TALK)
    second = msgspec.structs.replace(plan.stages[0], name="t")
    done = list(simulate(msgspec.structs.replace(plan, stages=(plan.stages[0], second)), CONFIG))
    assert sorted(r.index for r in done if r.stage == "s") == [0, 1, 2, 3, 4, 5]
    assert sorted(r.index for r in done if r.stage == "t") == [8, 9, 10, 11, 12, 13]


TRACES = Path(__file__).parent.parent / "data" / "traces"


def test_a_trace_is_played_to_its_end_at_its_own_instants(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes((TRACES / "azure_code_head.csv").read_bytes())
    (tmp_path / "p.toml").write_text(
        'name = "p"\n[workload]\ntrace = { file = "t.csv", format = "azure" }\n'
        '[[stages]]\nname = "s"\narrivals = { kind = "trace", time_scale = 0.5 }\n'
    )
    simulate_run(str(tmp_path / "p.toml"), profile="fast-tier", seed=None, out=tmp_path / "run")
    done = records.read_run(tmp_path / "run").records
    assert [(r.prompt_tokens, r.output_tokens) for r in done[:3]] == [(4808, 10), (3180, 8), (110, 27)]
    assert [r.sent_ns for r in done[:3]] == [0, 26_000_000, 49_094_500]
    assert len(done) == 59


def test_a_file_that_is_not_there_is_said_before_a_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(
        'name = "p"\n[workload]\nprompts = { file = "gone.jsonl" }\noutput_tokens = 4\n'
        '[[stages]]\nname = "s"\nrequests = 4\narrivals = { kind = "closed", streams = 1 }\n'
    )
    with pytest.raises(BadInputError, match=r"gone\.jsonl: cannot be read: No such file"):
        simulate_run(str(tmp_path / "p.toml"), profile="fast-tier", seed=None, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not validate_files([tmp_path / "p.toml"])
    (tmp_path / "gone.jsonl").write_text('{"prompt": "here I am"}\n')
    assert validate_files([tmp_path / "p.toml"])


def test_prompts_used_again_are_said_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "here I am"}\n')
    (tmp_path / "p.toml").write_text(
        'name = "p"\n[workload]\nprompts = { file = "p.jsonl" }\noutput_tokens = 4\n'
        '[[stages]]\nname = "s"\nrequests = 4\narrivals = { kind = "closed", streams = 1 }\n'
    )
    simulate_run(str(tmp_path / "p.toml"), profile="fast-tier", seed=None, out=tmp_path / "run")
    assert "p.jsonl: its 1 prompts were used more than once" in capsys.readouterr().out
    run = records.read_run(tmp_path / "run")
    assert [r.prompt_tokens for r in run.records] == [3] * 4
    assert len(run.info.prompt_cautions) == 1
    assert any(run.info.prompt_cautions[0] in one.sentence for one in analyze([tmp_path / "run"]).trust)


def test_of_an_answer_in_one_piece_only_its_end_is_seen() -> None:
    plan = small(Closed(streams=2), requests=10)
    streamed = {r.index: r for r in simulate(plan, CONFIG)}
    whole = msgspec.structs.replace(plan.workload, stream=False)
    for record in simulate(msgspec.structs.replace(plan, workload=whole), CONFIG):
        twin = streamed[record.index]
        assert (record.streamed, record.event_ns, record.first_text_ns) == (False, [], None)
        assert record.ended_ns == record.headers_ns == twin.ended_ns
        assert record.output_tokens == twin.output_tokens == 16


def test_the_step_log_holds_every_step_and_changes_no_record(tmp_path: Path) -> None:
    log = tmp_path / "steps.parquet"
    for name, step_log in (("plain", None), ("logged", log)):
        simulate_run("smoke", profile="fast-tier", seed=7, out=tmp_path / name, step_log=step_log)
    lines = [(tmp_path / name / "requests-0.jsonl").read_bytes() for name in ("plain", "logged")]
    assert lines[0] == lines[1]
    steps: list[tuple[str, int]] = []
    plan = plans.load("smoke", seed=7)
    config = profiles.load("fast-tier", seed=7)
    for _ in simulate(plan, config, on_step=lambda name, step: steps.append((name, step.ended_ns))):
        pass
    table = pq.read_table(log)
    logged = zip(table["engine"].to_pylist(), table["t_end_ns"].to_pylist(), strict=True)
    assert list(logged) == steps
