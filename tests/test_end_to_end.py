"""The main job through the front door: serve, run, report, as processes that meet over HTTP and files."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from loadtest import records
from loadtest.plan import CALIBRATION

PLAN = """
name = "short-ab"
seed = 3
[workload]
prompt_tokens = [128, 2048]
output_tokens = 24
[[tiers]]
name = "standard"
body = { service_tier = "default" }
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[stages]]
name = "compare"
requests = 48
arrivals = { kind = "closed", streams = 8 }
"""
LONG_PLAN = PLAN.replace("requests = 48", "requests = 100000")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "tierscope", *map(str, words)]


def tierscope(*words: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, timeout=timeout_s, check=False)


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr; more than one, or a traceback, is a failure of the test."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    return lines[0]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    child = subprocess.Popen(command("serve", "fast-tier", "--port", "0"), stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    found = re.search(r"http://\S+", child.stdout.readline())
    assert found is not None
    yield found[0]
    child.terminate()
    assert child.wait(20) == 0
    child.stdout.close()


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def finished(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of one finished run."""
    folder = tmp_path_factory.mktemp("end-to-end")
    (folder / "plan.toml").write_text(PLAN)
    out = folder / "run"
    done = tierscope("run", folder / "plan.toml", "--url", server, "--out", out, "--metrics-port", "0")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def report(finished: Path) -> dict[str, Any]:
    page, data = finished / "report.html", finished / "report.json"
    done = tierscope("report", finished, "--json", data, "--md", finished / "r.md", "--hardware", "fast-tier")
    assert done.returncode == 0, done.stderr
    assert str(page) in done.stdout
    assert page.stat().st_size > 10_000
    answer: dict[str, Any] = json.loads(data.read_text())
    return answer


def test_a_run_records_every_request_with_the_servers_own_counts(finished: Path) -> None:
    run = records.read_run(finished)
    assert run.info.status == "complete"
    asked = [record for record in run.records if record.stage != CALIBRATION]
    assert len(run.records) == len(asked) + 3
    assert Counter(r.outcome for r in run.records) == {"ok": 51}
    assert Counter(r.requested_tier for r in asked) == {"standard": 24, "fast": 24}
    assert all(r.output_tokens == 24 and len(r.event_ns) == 24 for r in asked)
    assert all(r.prompt_tokens == r.prompt_class_tokens for r in run.records)
    assert {(r.requested_tier, r.echoed_tier) for r in asked} == {
        ("standard", "default"),
        ("fast", "priority"),
    }
    assert (finished / "requests.parquet").exists()


def test_the_report_of_a_real_run_sees_decode_changed_and_by_how_much(report: dict[str, Any]) -> None:
    decode = report["verdict"]["decode"]
    assert decode["answer"] == "changed"
    # The profile is made for 2.5; the band is wide because 24 short requests a tier are few.
    assert 2.0 < decode["speed_ratio"]["value"] < 3.0
    assert report["verdict"]["conclusion"] in {"decode changed, prefill unchanged", "inconclusive"}


def test_a_run_in_virtual_time_tells_the_same_story_as_the_real_one(
    report: dict[str, Any], plan: Path, tmp_path: Path
) -> None:
    out, data = tmp_path / "sim", tmp_path / "sim.json"
    assert tierscope("simulate", plan, "--profile", "fast-tier", "--out", out).returncode == 0
    assert tierscope("report", out, "--json", data).returncode == 0
    simulated = json.loads(data.read_text())
    for real, virtual in zip(report["tiers"], simulated["tiers"], strict=True):
        assert real["tier"] == virtual["tier"]
        assert real["step_s"]["value"] == pytest.approx(virtual["step_s"]["value"], rel=0.15)


def test_a_run_against_nobody_says_so_in_one_line_and_exits_with_3(plan: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    done = tierscope("run", plan, "--url", url, "--model", "m", "--out", tmp_path / "run")
    assert done.returncode == 3
    line = complaint(done)
    assert url in line
    assert "refused" in line.lower()


def test_a_taken_metrics_port_is_one_line_and_exits_with_2(server: str, plan: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tierscope("run", plan, "--url", server, "--out", tmp_path / "run", "--metrics-port", port)
    assert done.returncode == 2
    assert str(port) in complaint(done)


def test_a_taken_server_port_is_one_line_and_exits_with_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tierscope("serve", "fast-tier", "--port", port)
    assert done.returncode == 2
    assert str(port) in complaint(done)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_keeps_what_it_has_and_is_reported_as_partial(
    server: str, tmp_path: Path, how: signal.Signals
) -> None:
    (tmp_path / "plan.toml").write_text(LONG_PLAN)
    out = tmp_path / "run"
    child = subprocess.Popen(
        command("run", tmp_path / "plan.toml", "--url", server, "--out", out, "--metrics-port", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    file = out / "requests-0.jsonl"
    deadline = time.monotonic() + 60
    while not (file.exists() and file.stat().st_size > 20_000):
        assert child.poll() is None, child.stderr.read() if child.stderr else ""
        assert time.monotonic() < deadline, "nothing was recorded within a minute"
        time.sleep(0.1)
    if how is signal.SIGINT:
        os.killpg(child.pid, how)  # what a terminal does
    else:
        child.send_signal(how)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 3
    assert "Traceback" not in errors
    run = records.read_run(out)
    assert run.info.status == "partial"
    outcomes = Counter(r.outcome for r in run.records)
    assert outcomes["ok"] > 0
    assert set(outcomes) <= {"ok", "cancelled"}
    done = tierscope("report", out, "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["runs"][0]["status"] == "partial"


def test_ctrl_c_right_after_the_start_is_one_line_and_leaves_nothing_running(
    server: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(LONG_PLAN)
    words = ("run", tmp_path / "plan.toml", "--url", server, "--out", tmp_path / "run", "--metrics-port", "0")
    child = subprocess.Popen(
        command(*words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert child.stdout is not None
    assert "recording to" in child.stdout.readline()
    os.killpg(child.pid, signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 3
    assert "Traceback" not in errors
    assert len(errors.splitlines()) == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(child.pid, 0)


def test_a_run_that_could_not_begin_leaves_no_folder(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    out = tmp_path / "run"
    done = tierscope("run", "smoke", "--url", f"http://127.0.0.1:{port}", "--model", "m", "--out", out)
    assert done.returncode == 3
    assert not out.exists()


def test_a_taken_web_port_is_one_line_and_exits_with_2(server: str, plan: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("run", plan, "--url", server, "--out", tmp_path / "run", "--metrics-port", "0", "--web")
        done = tierscope(*words, "--", "--web-host", "127.0.0.1", "--web-port", port)
    assert done.returncode == 2
    assert f"--web-port: 127.0.0.1:{port} cannot be used: Address already in use" in complaint(done)


def test_output_that_cannot_be_written_is_one_line_or_none(finished: Path) -> None:
    report = " ".join(map(str, command("report", finished)))
    said = {
        f"{report} > /dev/full": (3, "tierscope: No space left on device\n"),
        f"{report} >&-": (0, ""),
        f"set -o pipefail; {report} | true": (0, ""),
        f"PYTHONIOENCODING=ascii {report} > /dev/null": (0, ""),
    }
    with ThreadPoolExecutor(2) as pool:
        ended = dict(zip(said, pool.map(shell, said), strict=True))
    assert {line: (done.returncode, done.stderr) for line, done in ended.items()} == said


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)


def test_help_shows_brackets_as_they_are_typed() -> None:
    assert "[deployment]" in tierscope("report", "--help").stdout


def test_bad_words_on_the_command_line_are_one_line_and_exit_with_2(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(PLAN.replace("requests = 48", "requests = -1"))
    for words, expected in [
        (("run", "nothing-like-it", "--url", "http://127.0.0.1:1"), "shipped: ab, ramp, session"),
        (("run", broken, "--url", "http://127.0.0.1:1"), "stages[0].requests: -1 is not allowed"),
        (("run", "ab", "--url", "ftp://x"), "--url: 'ftp://x' is not allowed"),
        (("run", "ab", "--url", "http://127.0.0.1:x"), "--url: 'http://127.0.0.1:x' is not allowed"),
        (("run", "ab", "--url", "http://[::1"), "--url: 'http://[::1' is not allowed"),
        (("run", "ab", "--url", "http://user:secret@127.0.0.1"), "--url: credentials do not belong there"),
        (("run", "ab"), "--url"),
        (("run", "ab", "sweep", "--url", "http://127.0.0.1:1"), "'sweep' is not understood"),
        (("run", "ab", "--url", "http://127.0.0.1:1", "--model", "m", "--out", broken), "is no folder"),
        (("serve", "no-such-profile"), "no-such-profile"),
        (("serve", "--port", "70000"), "--port: 70000 is not allowed; expected 0 to 65535"),
        (("serve", "--host", ""), "--host: '' is not allowed; expected an address, 0.0.0.0 for all of them"),
        (
            ("report", tmp_path, "--price-ratio", "0"),
            "--price-ratio: 0.0 is not allowed; expected 0.01 to 1000",
        ),
        (("demo", "--profile", "nope", "--out", tmp_path / "demo"), "profile 'nope': no such file"),
        (("report", tmp_path / "nowhere"), "is not a run folder"),
        (("simulate", "ab", "--profile", "nope", "--out", tmp_path / "x"), "nope"),
        (("simulate", "ab", "--profile", "fast-tier", "--out", tmp_path, "--seed", "-4"), "--seed: -4"),
        (("dance",), "dance"),
    ]:
        done = tierscope(*words)
        assert done.returncode == 2, (words, done.stderr)
        assert expected in complaint(done), words


def test_a_server_that_does_not_speak_http_is_one_line_and_exits_with_3(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-other\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = tierscope("run", "smoke", "--url", url, "--out", tmp_path / "run")
        thread.join()
    assert done.returncode == 3
    assert complaint(done) == (
        f"tierscope: {url} does not speak HTTP: not a response this client understands: SSH-2.0-other"
    )
    assert not (tmp_path / "run").exists()


def test_validate_names_every_fault_and_passes_what_is_good(plan: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text(PLAN.replace("streams", "streems"))
    done = tierscope("validate", plan, broken)
    assert done.returncode == 2
    assert f"{plan}: a good plan" in done.stdout
    assert "did you mean streams?" in done.stdout + done.stderr
    assert tierscope("validate", plan).returncode == 0
