"""A fault of the load test itself ends the run at once, is said once, and loses nothing that was recorded."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import read_run
from tests.loadtest.locust_runs import CLOSED, LIMIT_S, OPEN, PLAN

FAULTY = """
from loadtest.locustfile import *
from loadtest import call, workload

def broken(self, *_, **__):
    raise KeyError("what nobody thought of")

class Sometimes:
    def __init__(self, before):
        self.before, self.count = before, 0
    def __get__(self, instance, owner):
        self.count += 1
        return (self.before if self.count <= 6 else broken).__get__(instance, owner)

{place} = Sometimes({place})
"""


@pytest.mark.parametrize("place", ["call.Call.run", "workload.Source.says"])
@pytest.mark.parametrize("stages", [CLOSED, OPEN], ids=["closed", "open"])
def test_a_fault_of_ours_ends_the_run_and_is_not_tried_again(
    tmp_path: Path, server: Any, stages: str, place: str
) -> None:
    (tmp_path / "plan.toml").write_text(PLAN.format(stages=stages), "utf-8")
    (tmp_path / "faulty.py").write_text(FAULTY.format(place=place), "utf-8")
    folder = tmp_path / "run"
    target = Target(url=server.url, model="m")
    argv = locust_argv(str(tmp_path / "plan.toml"), target=target, out=folder)
    argv[argv.index("-f") + 1] = str(tmp_path / "faulty.py")
    ended = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert ended.returncode == 3, ended.stderr
    assert "run failed: a fault of the load test: KeyError('what nobody thought of')" in ended.stderr
    assert ended.stderr.count("Traceback") <= 8, "as many as there are streams, not one a try"
    run = read_run(folder)
    assert run.info.status == "partial"
    assert sum(record.outcome == "ok" for record in run.records) <= 6
    assert not run.notes
