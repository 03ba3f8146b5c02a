"""``tierscope run --until verdict`` against the real mock: it ends early, in order, and says why."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest import records
from loadtest.plan_control import CONCLUSIVE

PLANNED = 320
PLAN = f"""
name = "until"
[workload]
prompt_tokens = [128, 16384]
output_tokens = 16
tokens_per_word = 1.0
[[tiers]]
name = "standard"
body = {{ service_tier = "default" }}
[[tiers]]
name = "fast"
body = {{ service_tier = "priority" }}
[[stages]]
name = "warmup"
warmup = true
requests = 8
arrivals = {{ kind = "closed", streams = 3 }}
[[stages]]
name = "compare"
requests = {PLANNED}
arrivals = {{ kind = "closed", streams = 3 }}
"""


def tierscope(*words: object, timeout_s: float = 200) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tierscope", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


@contextmanager
def serving() -> Iterator[str]:
    command = [sys.executable, "-m", "tierscope", "serve", "fast-tier", "--port", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    found = re.search(r"http://\S+", child.stdout.readline())
    assert found is not None
    yield found[0]
    child.terminate()
    assert child.wait(20) == 0
    child.stdout.close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


Ended = tuple[Path, subprocess.CompletedProcess[str]]


def run_until_verdict(folder: Path, workers: int) -> Ended:
    plan, out = folder / "plan.toml", folder / "run"
    plan.write_text(PLAN)
    until = ("--until", "verdict", "--workers", workers, "--metrics-port", 0)
    with serving() as url:
        return out, tierscope("run", plan, "--url", url, "--out", out, *until)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Ended]:
    """A run without workers and one with two, each on a server of its own: nearly all of it is waiting."""
    with ThreadPoolExecutor() as pool:
        runs = {
            workers: pool.submit(run_until_verdict, tmp_path_factory.mktemp("until"), workers)
            for workers in (0, 2)
        }
        return {workers: run.result() for workers, run in runs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_ends_at_its_verdict_with_nothing_cut_off_and_its_report_claims_no_more(
    ended: dict[int, Ended], tmp_path: Path, workers: int
) -> None:
    out, done = ended[workers]
    data = tmp_path / "r.json"
    assert done.returncode == 0, done.stderr
    assert f"{CONCLUSIVE}: fast decodes" in done.stdout
    assert "Traceback" not in done.stderr
    run = records.read_run(out)
    measured = [record for record in run.records if not record.warmup]
    assert PLANNED * 0.25 <= len(measured) < PLANNED
    assert {record.outcome for record in measured} == {"ok"}
    assert run.info.plan.control.until == "verdict"
    assert run.info.status == "complete"
    assert run.info.status_detail.startswith(f"{CONCLUSIVE}: fast decodes")
    assert tierscope("report", out, "--json", data).returncode == 0
    verdict = json.loads(data.read_text())["verdict"]
    assert verdict["decode"]["answer"] == "changed"
    assert verdict["decode"]["speed_ratio"]["level"] > 0.95


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--until", "later"), "--until: 'later' is not allowed; expected stages or verdict"),
        (("--until", "verdict", "--web"), "--until verdict: runs that a web page starts"),
    ],
)
def test_an_end_that_cannot_be_is_one_line_and_leaves_nothing(
    server: str, plan: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = tierscope("run", plan, "--url", server, "--out", tmp_path / "run", *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()
