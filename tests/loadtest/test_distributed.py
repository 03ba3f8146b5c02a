"""Runs from several processes: one ledger, and every request in it, whoever sent it and however it went."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from loadtest import parquet
from loadtest.command import worker_argv
from loadtest.records import RequestRecord, Run, read_run
from tests.loadtest.locust_runs import LONG, Ended, Start, Started, fetch, free_port, serves

MIXED = """
[[stages]]
name = "warmup"
warmup = true
requests = 5
arrivals = { kind = "closed", streams = 1 }
[[stages]]
name = "compare"
requests = 41
arrivals = { kind = "closed", streams = 5 }
[[stages]]
name = "open"
duration_s = 1.5
arrivals = { kind = "poisson", rate_per_s = 40.0 }
"""


def asked(record: RequestRecord) -> tuple[object, ...]:
    """What a request was, whoever sent it and however it went."""
    return record.stage, record.requested_tier, record.prompt_class_tokens, record.prompt_tokens


def locust_counts(ended: Ended) -> Counter[str]:
    """Requests of each stage and tier by Locust's own statistics, E2E rows."""
    rows = (ended.folder.parent / "stats_stats.csv").read_text().splitlines()[1:]
    cells = [row.split(",") for row in rows]
    return Counter({name: int(count) for kind, name, count, *_ in cells if kind == "E2E"})


def page_counts(ended: Ended) -> tuple[Counter[str], Counter[str]]:
    """Requests by stage and tier, and by outcome, of the last metrics page."""
    names, outcomes = Counter[str](), Counter[str]()
    page = (ended.folder / "metrics.prom").read_text()
    for labels, value in re.findall(r"^tierscope_requests_total\{(.*)\} (\S+)$", page, re.MULTILINE):
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        names[f"{found['stage']} {found['requested_tier']}"] += int(float(value))
        outcomes[found["outcome"]] += int(float(value))
    return +names, +outcomes


def check_all_agree(ended: Ended, server: Any) -> Run:
    """Records, Locust's statistics and the metrics page hold each request that the server saw, once."""
    run = ended.run()
    assert run.notes == []
    assert len(run.records) == len(server.requests)
    names = Counter(f"{record.stage} {record.requested_tier}" for record in run.records)
    assert locust_counts(ended) == names
    assert page_counts(ended) == (names, Counter(record.outcome for record in run.records))
    assert parquet.read_records(ended.folder) == run.records
    assert sum(worker.requests for worker in run.info.workers) == len(run.records)
    return run


def stats(tmp_path: Path) -> list[str]:
    return ["--csv", str(tmp_path / "stats")]


def workers_of(started: Started) -> list[int]:
    """Process ids of a master's workers."""
    children = Path(f"/proc/{started.process.pid}/task/{started.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"--worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pids: list[int], within_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_two_workers_send_what_one_process_sends_and_nothing_is_lost(
    start: Start, server: Any, tmp_path: Path
) -> None:
    alone = start(MIXED, out="alone", run_id="r").end().run()
    server.requests.clear()
    ended = start(MIXED, workers=2, extra=stats(tmp_path), run_id="r").end()
    assert ended.code == 0, ended.lines
    run = check_all_agree(ended, server)
    assert (run.info.status, run.info.status_detail) == ("complete", "")
    assert {r.index: asked(r) for r in run.records} == {r.index: asked(r) for r in alone.records}
    assert [worker.name for worker in run.info.workers] == ["0", "1"]
    for worker in run.info.workers:
        assert worker.requests > 20
        assert (worker.lost, worker.clock_offset_ns, worker.clock_error_ns) == ("", 0, 0)
    assert run.info.client is not None
    assert 0 < sum(worker.cpu_s for worker in run.info.workers) < run.info.client.cpu_s
    check_schedule(run, alone)


def check_schedule(run: Run, alone: Run) -> None:
    """Both workers keep one schedule, that of the run in one process; five streams are under way at most."""
    offsets = [
        [record.scheduled_ns - opened[0].scheduled_ns for record in opened]
        for opened in ([r for r in each.records if r.stage == "open"] for each in (run, alone))
    ]
    assert offsets[0] == offsets[1]
    compare = [record for record in run.records if record.stage == "compare"]
    edges = [(record.sent_ns or 0, 1) for record in compare] + [(record.ended_ns, -1) for record in compare]
    in_flight = most = 0
    for _, change in sorted(edges):
        in_flight += change
        most = max(most, in_flight)
    assert most == 5
    warmup = [record for record in run.records if record.stage == "warmup"]
    assert max(record.ended_ns for record in warmup) <= min(record.scheduled_ns for record in compare)


def test_streams_that_the_end_cuts_off_are_cancelled_on_every_worker_and_counted(
    start: Start, server: Any, tmp_path: Path
) -> None:
    started = start(LONG, model="endless", workers=2, extra=stats(tmp_path))
    started.wait_for(lambda: len(server.events) == 3 and min(server.events) >= 20)
    pids = workers_of(started)
    started.process.send_signal(signal.SIGINT)
    ended = started.end()
    assert (ended.code, len(pids)) == (3, 2)
    assert ended.lines[-1] == (
        f"run interrupted by SIGINT: what was recorded is in {ended.folder}, marked partial"
    )
    run = check_all_agree(ended, server)
    assert [record.outcome for record in run.records] == ["cancelled"] * 3
    assert all(record.event_ns for record in run.records)
    assert [worker.lost for worker in run.info.workers] == ["", ""]
    wait_until_gone(pids)


def indexes(ended: Ended, worker: str) -> set[int]:
    """Which requests are in a worker's own file."""
    lines = (ended.folder / f"requests-{worker}.jsonl").read_bytes().splitlines()
    return {json.loads(line)["index"] for line in lines}


def test_a_killed_worker_is_named_and_the_other_one_sends_its_own_part_to_the_end(
    start: Start, server: Any
) -> None:
    started = start(LONG.replace("1000", "400"), workers=2)
    started.wait_for(lambda: len(server.requests) > 200)
    victim, survivor = workers_of(started)
    os.kill(victim, signal.SIGKILL)
    ended = started.end()
    run = ended.run()
    (lost,) = [worker for worker in run.info.workers if worker.lost]
    (kept,) = [worker for worker in run.info.workers if not worker.lost]
    assert ended.code == 3
    assert lost.lost == "its process was killed by SIGKILL"
    words = f"worker {lost.name} (process {victim}) was lost: {lost.lost}"
    assert (run.info.status, run.info.status_detail) == ("partial", words)
    assert ended.lines[-1].startswith(f"run incomplete: {words}: what was recorded is in ")
    own, theirs = indexes(ended, kept.name), indexes(ended, lost.name)
    places = {index % 3 for index in own}  # three streams: two on one worker, one on the other
    assert own == {index for index in range(400) if index % 3 in places}
    assert theirs
    assert not {index % 3 for index in theirs} & places
    assert len(theirs) == lost.requests
    wait_until_gone([survivor])


def test_nobody_listening_is_one_line_with_workers_too(start: Start) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ended = start(url=url, workers=2).end()
    assert ended.code == 3
    assert ended.lines == [f"run failed: cannot connect to {url}: Connection refused"]
    assert not ended.folder.exists()


def test_a_second_stop_ends_everything_at_once_and_keeps_what_was_flushed(start: Start, server: Any) -> None:
    started = start(LONG, model="stubborn", workers=2)
    lines = started.folder / "requests-0.jsonl"
    started.wait_for(lambda: lines.exists() and lines.stat().st_size > 0)
    pids = workers_of(started)
    for _ in range(2):
        started.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    ended = started.end()
    assert ended.code == 3
    run = ended.run()
    assert (run.info.status, run.notes) == ("partial", [])
    assert run.records
    wait_until_gone(pids)


def test_workers_end_when_their_master_is_killed(start: Start, server: Any) -> None:
    started = start(LONG, model="endless", workers=2)
    started.wait_for(lambda: len(server.requests) == 3)
    pids = workers_of(started)
    started.process.kill()
    wait_until_gone(pids)


def test_a_plain_locust_master_and_worker_find_each_other(start: Start, server: Any) -> None:
    port = free_port()
    master = start(extra=["--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port)])
    argv = worker_argv(port, parent_pid=os.getpid())
    worker = subprocess.Popen([sys.executable, *argv])
    ended = master.end()
    assert ended.code == 0, ended.lines
    assert len(ended.run().records) == len(server.requests) == 20
    assert [one.name for one in ended.run().info.workers] == ["0"]
    assert worker.wait(20) == 0


def test_the_web_ui_leads_workers_too_and_a_second_start_is_a_second_run(start: Start) -> None:
    port = free_port()
    started = start(web=True, workers=2, extra=["--web-port", str(port)])
    ui = f"http://127.0.0.1:{port}"
    started.wait_for(lambda: serves(ui))
    for folder in (started.folder, started.folder.with_name("run-2")):
        started.wait_for(lambda: json.loads(fetch(f"{ui}/stats/requests"))["state"] in ("ready", "stopped"))
        fetch(f"{ui}/swarm", b"")
        started.wait_for((folder / "requests.parquet").exists)
        run = read_run(folder)
        assert len(run.records) == 20
        assert [worker.requests for worker in run.info.workers] == [10, 10]
    pids = workers_of(started)
    started.process.send_signal(signal.SIGINT)
    assert started.end().code == 0
    wait_until_gone(pids)


def test_a_run_that_is_concluded_lets_every_worker_finish_what_it_began(
    start: Start, server: Any, tmp_path: Path
) -> None:
    started = start(LONG, workers=2, extra=stats(tmp_path))
    started.wait_for(lambda: len(server.requests) > 30)
    started.process.send_signal(signal.SIGUSR1)  # as whoever looks on does when the answer is known
    ended = started.end()
    assert ended.code == 0, ended.lines
    run = check_all_agree(ended, server)
    assert run.info.status == "complete"
    assert "stopped" in run.info.status_detail
    assert {record.outcome for record in run.records} == {"ok"}
    assert len(run.records) < 1000
