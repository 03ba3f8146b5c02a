"""Whole runs under Locust, as users start them, against the chat server of this folder."""

import json
import os
import re
import resource
import signal
import socket
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from loadtest import derive, parquet
from loadtest.records import Run, read_run
from tests.loadtest.locust_runs import CLOSED, LONG, OPEN, Start, fetch, free_port, serves

# Runs that do their job


def test_a_plan_runs_to_its_end_and_leaves_a_whole_run_folder(start: Start, server: Any) -> None:
    ended = start(run_id="run-7", env={"TIERSCOPE_API_KEY": "sekret"}).end()
    run = ended.run()
    assert ended.code == 0
    assert re.fullmatch(r"run complete: 20 requests, 0 failed; recorded in .*", ended.lines[-1])
    assert ended.lines[-2].startswith("compare: 16/16 requests | standard: TTFT ")
    assert len(ended.lines) == 3
    assert (run.info.status, run.info.run_id, run.notes) == ("complete", "run-7", [])
    assert [record.index for record in run.records] == list(range(20))
    assert [record.stage for record in run.records].count("warmup") == 4
    for record in run.records:
        assert (record.outcome, record.output_tokens, record.tokens_source) == ("ok", 5, "usage")
        assert record.prompt_tokens == record.prompt_class_tokens
        assert record.echoed_tier == ("priority" if record.requested_tier == "fast" else None)
        assert derive.ttft_s(record) is not None
    assert parquet.read_records(ended.folder) == run.records
    assert "tierscope_requests_total{" in (ended.folder / "metrics.prom").read_text()
    assert run.info.client is not None
    assert 0 < run.info.client.cpu_s < run.info.client.wall_s * (os.cpu_count() or 1)
    assert {headers["authorization"] for headers, _ in server.requests} == {"Bearer sekret"}
    assert {headers["x-client-request-id"] for headers, _ in server.requests} == {
        f"run-7-{k}" for k in range(20)
    }
    written = b"".join(path.read_bytes() for path in ended.folder.iterdir())
    assert b"sekret" not in written
    check_closed_loop(run)


def check_closed_loop(run: Run) -> None:
    """Stages follow one another, and no more streams are under way than the plan says."""
    compare = [record for record in run.records if record.stage == "compare"]
    warmup = [record for record in run.records if record.stage == "warmup"]
    assert max(record.ended_ns for record in warmup) <= min(record.scheduled_ns for record in compare)
    edges = [(record.sent_ns or 0, 1) for record in compare] + [(record.ended_ns, -1) for record in compare]
    in_flight, most = 0, 0
    for _, change in sorted(edges):
        in_flight += change
        most = max(most, in_flight)
    assert most == 4


def test_an_open_loop_sends_at_its_instants_whatever_the_answers_do(start: Start) -> None:
    run = start(OPEN, model="slow").end().run()
    opened = [record for record in run.records if record.stage == "open"]
    steady = [record for record in run.records if record.stage == "steady"]
    assert len(steady) == 10
    assert 25 < len(opened) < 110  # 60 expected; 4.5 standard deviations
    offsets = [record.scheduled_ns - steady[0].scheduled_ns for record in steady]
    assert offsets == [20_000_000 * k for k in range(10)]
    assert steady[-1].scheduled_ns < steady[0].ended_ns  # all had to be sent before the first answer ended
    for record in run.records:
        assert record.sent_ns is not None
        assert record.sent_ns >= record.scheduled_ns
    assert run.info.client is not None
    lags_s = [derive.lag_s(record) or 0.0 for record in opened + steady]
    assert run.info.client.worst_lag_s == pytest.approx(max(lags_s))


def test_the_metrics_page_can_be_scraped_while_a_run_lasts(start: Start) -> None:
    port = free_port()
    started = start(LONG, metrics_port=port, run_id="scraped")
    url = f"http://127.0.0.1:{port}/metrics"
    started.wait_for(
        lambda: serves(url) and re.search(r"tierscope_ttft_seconds_count\{.* [1-9]", fetch(url)) is not None
    )
    page = fetch(url)
    assert 'run_id="scraped"' in page
    assert re.search(r'tierscope_requests_in_flight\{requested_tier="\w+"\} [1-3]\.0', page)
    with pytest.raises(urllib.error.HTTPError):
        fetch(f"http://127.0.0.1:{port}/elsewhere")
    started.process.send_signal(signal.SIGINT)
    assert started.end().code == 3


def test_the_web_ui_starts_a_run_when_told_and_a_second_one_beside_it(start: Start) -> None:
    port = free_port()
    started = start(web=True, extra=["--web-port", str(port)])
    ui = f"http://127.0.0.1:{port}"
    started.wait_for(lambda: serves(ui))
    assert not started.folder.exists()
    for folder in (started.folder, started.folder.with_name("run-2")):
        started.wait_for(lambda: json.loads(fetch(f"{ui}/stats/requests"))["state"] in ("ready", "stopped"))
        fetch(f"{ui}/swarm", b"")
        started.wait_for((folder / "requests.parquet").exists)
        assert len(read_run(folder).records) == 20
    started.process.send_signal(signal.SIGINT)
    assert started.end().code == 0


def test_anthropics_api_is_spoken(start: Start, server: Any) -> None:
    ended = start(api="anthropic", env={"ANTHROPIC_API_KEY": "sekret"}).end()
    assert ended.code == 0
    assert {record.output_tokens for record in ended.run().records} == {5}
    assert {headers["x-api-key"] for headers, _ in server.requests} == {"sekret"}


# Runs that cannot


def test_nobody_listening_is_one_line_and_code_3(start: Start) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ended = start(url=url).end()
    assert (ended.code, ended.lines) == (3, [f"run failed: cannot connect to {url}: Connection refused"])
    assert not ended.folder.exists()


def test_a_wrong_key_ends_the_run_early_with_the_servers_words(start: Start) -> None:
    ended = start(LONG, model="unauthorized", env={"OPENAI_API_KEY": "sekret"}).end()
    assert ended.code == 3
    why = "the first 20 requests all failed: HTTP 401: auth: no such key: [key]"
    assert ended.lines == [f"run failed: {why}; what was recorded is in {ended.folder}"]
    run = ended.run()
    assert run.info.status == "partial"
    assert 20 <= len(run.records) <= 23
    assert all("[key]" in record.detail for record in run.records if record.outcome == "http_error")
    assert b"sekret" not in b"".join(path.read_bytes() for path in ended.folder.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_partial_run_with_its_streams_cancelled(
    start: Start, server: Any, number: int
) -> None:
    started = start(LONG, model="endless")
    started.wait_for(lambda: len(server.events) == 3 and min(server.events) >= 20)
    started.process.send_signal(number)
    ended = started.end()
    run = ended.run()
    assert ended.code == 3
    assert len(ended.lines) == 1
    assert "marked partial" in ended.lines[0]
    assert (run.info.status, run.notes) == ("partial", [])
    assert [record.outcome for record in run.records] == ["cancelled"] * 3
    assert all(record.event_ns for record in run.records)
    assert parquet.read_records(ended.folder) == run.records


def test_a_stop_that_comes_while_locust_is_starting_is_heard_once_it_can_be(
    start: Start, server: Any
) -> None:
    def block() -> None:  # as ``tierscope run`` does
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    started = start(LONG, model="endless", preexec_fn=block)
    started.process.send_signal(signal.SIGINT)
    ended = started.end()
    assert ended.code == 3
    assert len(ended.lines) == 1
    assert "interrupted" in ended.lines[0]
    assert not server.requests


def test_a_run_that_asks_nothing_has_failed(start: Start) -> None:
    stages = """
[[stages]]
name = "rare"
duration_s = 0.1
arrivals = { kind = "poisson", rate_per_s = 1e-6 }
"""
    ended = start(stages).end()
    assert ended.code == 3
    assert "no request was made" in ended.lines[-1]


def test_a_full_disk_ends_the_run_and_what_was_recorded_stays_readable(start: Start) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

    ended = start(LONG, preexec_fn=limit).end()
    assert ended.code == 3
    failures = [line for line in ended.lines if line.startswith("run failed: ")]
    assert len(failures) == 1
    assert "requests-0.jsonl cannot be written: File too large" in failures[0]
    run = ended.run()
    assert run.records
    assert any("cut short" in note for note in run.notes)
    assert all(record.outcome == "ok" for record in run.records)


BAD_INPUT: list[tuple[dict[str, Any], str]] = [
    ({"stages": CLOSED.replace("requests = 4", "requests = 0")}, "stages[0].requests: 0 is not allowed"),
    ({"url": "ftp://h"}, "url: 'ftp://h' is not allowed"),
    ({"model": ""}, "--model is missing"),
    ({"extra": ["--seed", "-1"]}, "--seed: '-1' is not allowed; expected a whole number"),
    ({"run_id": "a/b"}, "--run-id: 'a/b' is not allowed"),
    ({"run_id": "a\n"}, r"--run-id: 'a\n' is not allowed"),
    (
        {"metrics_port": 9, "extra": ["--metrics-host", "no-such-host.invalid"]},
        "--metrics-port: no-such-host.invalid:9 cannot be used: ",
    ),
    ({"extra": ["--processes", "2"]}, "--processes is not supported; expected --workers N"),
    ({"extra": ["--workers", "many"]}, "--workers: 'many' is not allowed; expected a whole number"),
]


@pytest.mark.parametrize(("given", "words"), BAD_INPUT, ids=[words for _, words in BAD_INPUT])
def test_bad_input_is_one_line_and_code_2(start: Start, given: dict[str, Any], words: str) -> None:
    ended = start(**given).end()
    assert ended.code == 2
    assert len(ended.lines) == 1
    assert ended.lines[0].startswith("bad input: ")
    assert words in ended.lines[0]
    assert "Unknown error" not in ended.lines[0]
    assert not ended.folder.exists()


def test_a_metrics_port_in_use_is_one_line_and_code_2(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ended = start(metrics_port=port).end()
    assert ended.code == 2
    assert ended.lines == [
        f"bad input: --metrics-port: 127.0.0.1:{port} cannot be used: Address already in use"
    ]


def test_a_folder_that_holds_a_run_is_left_alone(start: Start, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "requests-0.jsonl").write_text("precious")
    ended = start().end()
    assert ended.code == 2
    assert ended.lines == [f"bad input: --out: {ended.folder} holds a run already; name another folder"]
    assert [path.read_text() for path in ended.folder.iterdir()] == ["precious"]


def test_fewer_streams_follow_more_within_moments(start: Start) -> None:
    stages = """
[[stages]]
name = "many"
requests = 40
arrivals = { kind = "closed", streams = 20 }
[[stages]]
name = "one"
requests = 1
arrivals = { kind = "constant", rate_per_s = 100.0 }
"""
    run = start(stages).end().run()
    between_s = (run.records[-1].scheduled_ns - max(r.ended_ns for r in run.records[:-1])) / 1e9
    assert len(run.records) == 41
    assert between_s < 10  # Locust would take one user away a second


def test_two_stops_end_a_run_at_once_and_keep_what_was_recorded(start: Start) -> None:
    started = start(LONG)
    lines = started.folder / "requests-0.jsonl"
    started.wait_for(lambda: lines.exists() and lines.stat().st_size > 0)
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):  # both are heard together
        started.process.send_signal(number)
    ended = started.end()
    assert ended.code == 3
    assert ended.lines[-1] == f"stopped at once; what was recorded is in {ended.folder}"
    run = ended.run()
    assert (run.info.status, run.info.status_detail, run.notes) == ("partial", "stopped at once", [])
    assert run.records
