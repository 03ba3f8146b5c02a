"""Runs stopped at their verdict: looks at planned shares, nothing claimed early, run.json says why."""

import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from analysis.analyze import analyze
from analysis.sequential import planned_looks
from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Plan, Target
from loadtest.plan_control import CONCLUSIVE
from loadtest.records import RecordWriter, RequestRecord, RunInfo
from mockserver import config
from tierscope import until
from tierscope.errors import BadInputError
from tierscope.live import LiveView
from tierscope.simulate import simulate

REQUESTS = 160


def plan_of(requests: int = REQUESTS) -> Plan:
    plan = plans.load("ab", seed=3)
    warmup, compare = plan.stages
    return msgspec.structs.replace(
        plan,
        stages=(warmup, msgspec.structs.replace(compare, requests=requests)),
        control=msgspec.structs.replace(plan.control, until="verdict"),
    )


def info_of(plan: Plan) -> RunInfo:
    return RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id="watched",
        tierscope_version="0",
        target=Target(url="http://127.0.0.1:1", model="mock"),
        plan=plan,
        started_unix_s=0.0,
    )


@pytest.fixture(scope="module")
def recorded() -> list[RequestRecord]:
    """A run of two tiers that differ, in the order in which its requests ended."""
    server = msgspec.structs.replace(config.load("fast-tier"), seed=3)
    return sorted(simulate(plan_of(), server), key=lambda record: record.ended_ns)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RecordWriter]:
    """Where records of a run under way are written."""
    records.write_info(tmp_path, info_of(plan_of()))
    made = RecordWriter(tmp_path)
    yield made
    made.close()


def play(
    writer: RecordWriter, made: list[RequestRecord], look: Callable[[], str], *, until_stopped: until.Watch
) -> list[str]:
    """Write one record after the other and look after each, as if each took a second."""
    said = []
    for record in made:
        writer.append(record)
        writer.flush()
        said.append(look())
        if until_stopped.conclusive is not None:
            break
    return said


def test_a_run_is_looked_at_at_its_planned_shares_only_and_stops_at_the_first_conclusive_one(
    tmp_path: Path, writer: RecordWriter, recorded: list[RequestRecord]
) -> None:
    watch = until.Watch(tmp_path)
    said = play(writer, recorded, watch.look, until_stopped=watch)
    measured, looks = 0, []
    for record, line in zip(recorded, said, strict=False):
        measured += not record.warmup
        if line:
            looks.append(measured)
    due = [round(share * REQUESTS + 0.4999) for share in planned_looks().shares]
    assert looks == due[: len(looks)]
    assert 1 <= len(looks) < len(due)
    assert all(line.endswith("no verdict yet") for line in filter(None, said[:-1]))
    assert watch.conclusive is not None
    assert watch.conclusive.conclusion == "decode changed, prefill unchanged"
    assert watch.conclusive.sentence in said[-1]
    assert watch.look() == ""


def test_the_report_of_a_stopped_run_says_what_the_look_said(
    tmp_path: Path, writer: RecordWriter, recorded: list[RequestRecord]
) -> None:
    watch = until.Watch(tmp_path)
    play(writer, recorded, watch.look, until_stopped=watch)
    assert watch.conclusive is not None
    info = records.read_info(tmp_path)
    records.write_info(tmp_path, msgspec.structs.replace(info, status="complete", status_detail=CONCLUSIVE))
    watch.note()
    assert records.read_info(tmp_path).status_detail == f"{CONCLUSIVE}: {watch.conclusive.sentence}"
    assert watch.last_word() == f"{CONCLUSIVE}: {watch.conclusive.sentence}"
    report = analyze([tmp_path])
    assert report.verdict == watch.conclusive
    assert report.verdict.decode is not None
    assert report.verdict.decode.speed_ratio.level > 0.95


def test_a_run_that_failed_after_it_was_told_to_stop_keeps_its_own_reason(
    tmp_path: Path, writer: RecordWriter, recorded: list[RequestRecord]
) -> None:
    watch = until.Watch(tmp_path)
    play(writer, recorded, watch.look, until_stopped=watch)
    info = records.read_info(tmp_path)
    records.write_info(
        tmp_path, msgspec.structs.replace(info, status="partial", status_detail="interrupted by SIGINT")
    )
    watch.note()
    assert records.read_info(tmp_path).status_detail == "interrupted by SIGINT"


def test_a_run_without_a_verdict_goes_to_its_end_and_says_how_many_more_it_takes(
    tmp_path: Path, writer: RecordWriter, recorded: list[RequestRecord]
) -> None:
    records.write_info(tmp_path, info_of(plan_of(requests=24)))
    made = [record for record in recorded if not record.warmup][:24]
    watch = until.Watch(tmp_path)
    said = play(writer, made, watch.look, until_stopped=watch)
    assert watch.conclusive is None
    assert len([line for line in said if line]) == len(planned_looks().shares) - 1  # the end is no look
    assert "more requests per tier would settle it" in watch.last_word()
    watch.note()
    assert records.read_info(tmp_path).status_detail == ""


def test_nothing_is_looked_at_before_the_run_began_or_where_nobody_asked(
    tmp_path: Path, recorded: list[RequestRecord]
) -> None:
    watch = until.Watch(tmp_path)
    assert watch.look() == ""
    assert watch.last_word() == ""
    ordinary = msgspec.structs.replace(plan_of(), control=plans.Control())
    records.write_run(tmp_path, info_of(ordinary), recorded)
    assert watch.look() == ""
    assert watch.conclusive is None


def test_requests_that_failed_make_a_look_and_no_verdict(tmp_path: Path, writer: RecordWriter) -> None:
    server = msgspec.structs.replace(config.load("fast-tier"), seed=3)
    made = [
        msgspec.structs.replace(record, outcome="timeout", event_ns=[], output_tokens=None)
        for record in simulate(plan_of(40), server)
    ]
    watch = until.Watch(tmp_path)
    play(writer, made, watch.look, until_stopped=watch)
    assert watch.conclusive is None
    assert watch.last_word()


def test_the_run_is_stopped_once_and_told_of_by_a_line(
    tmp_path: Path, writer: RecordWriter, recorded: list[RequestRecord]
) -> None:
    stopped, lines = threading.Event(), list[str]()
    for record in recorded[: len(recorded) * 3 // 4]:
        writer.append(record)
    writer.flush()
    watch = until.Watch(tmp_path)
    with until.watching(watch, stop=stopped.set, say=lines.append, every_s=0.001):
        assert stopped.wait(60)
    assert watch.conclusive is not None
    assert len(lines) == 1
    assert lines[0].startswith("look 5 of 8, ")


def test_what_goes_wrong_while_looking_is_told_after_the_run_and_ends_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()

    def broken(_: until.Watch) -> str:
        looked.set()
        raise BadInputError("run.json: cannot be read")

    monkeypatch.setattr(until.Watch, "look", broken)
    happened: list[str] = []

    def run() -> None:
        stop = lambda: happened.append("stopped")  # noqa: E731
        with until.watching(until.Watch(tmp_path), stop=stop, say=happened.append, every_s=0.001):
            assert looked.wait(60)
            happened.append("ended by itself")

    with pytest.raises(BadInputError, match=r"run\.json"):
        run()
    assert happened == ["ended by itself"]


def test_a_look_is_told_above_what_is_drawn_of_the_run() -> None:
    shown = io.StringIO()
    view = LiveView(Console(file=shown, force_terminal=True, width=80))
    view.say("look 1 of 8, 100 requests: [no] verdict yet")
    view.close()
    assert "look 1 of 8, 100 requests: [no] verdict yet" in shown.getvalue()
