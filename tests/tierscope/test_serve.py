"""``tierscope serve`` as a command: it says where it is, logs every step, ends when told."""

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
from pyarrow import parquet

SERVE = [sys.executable, "-m", "tierscope", "serve"]


def test_a_served_profile_logs_every_step_and_ends_when_it_is_told(tmp_path: Path) -> None:
    log = tmp_path / "steps.parquet"
    command = [*SERVE, "fast-tier", "--port", "0", "--seed", "5", "--step-log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name, _, url = child.stdout.readline().strip().partition(": ")
        assert name == "fast-tier"
        asked = json.dumps({"model": "mock", "prompt": "w", "max_tokens": 20}).encode()
        with urllib.request.urlopen(f"{url}/v1/completions", asked, timeout=60) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 20
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    steps = parquet.read_table(log).to_pandas()
    assert set(steps["engine"]) == {"standard", "fast"}
    for _, of_engine in steps.groupby("engine", observed=True):
        assert np.all(of_engine["t_end_ns"] > of_engine["t_start_ns"])
        assert len(of_engine) >= 20


def test_a_step_log_that_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    log = tmp_path / "no" / "steps.parquet"
    done = subprocess.run(
        [*SERVE, "fast-tier", "--port", "0", "--step-log", str(log)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert str(log.parent) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
