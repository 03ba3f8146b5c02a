"""A simulated run is a real run's folder: same requests, same format, repeatable to the byte."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Closed, Constant, Plan, Poisson, Stage, Tier, Workload
from mockserver import config as server_config
from tierscope import simulate as simulation
from tierscope.errors import BadInputError, RunFailedError
from tierscope.simulate import simulate, simulate_run


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


CONFIG = server_config.load("fast-tier")


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

    def broken_off(*_: object) -> Iterator[records.RequestRecord]:
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
    with pytest.raises(RunFailedError, match="none of 4 requests succeeded: prompt and output exceed"):
        simulate_run(str(plan), profile="fast-tier", seed=None, out=tmp_path / "run")
    assert len(records.read_run(tmp_path / "run").records) == 4
