"""The command line of a run, read back by Locust's own parser."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from loadtest.command import locust_argv, worker_argv
from loadtest.plan import Target

TARGET = Target(url="http://h:1", model="a model", api="anthropic")
READ_BACK = """
import json, sys, runpy
import locust.main, locust.argument_parser as ap
sys.argv = ["locust", *sys.argv[3:]]
options = ap.parse_locustfile_option()
locust.main.merge_locustfiles_content(ap.get_locustfiles_locally(options))
print(json.dumps(vars(ap.get_parser().parse_args()), default=str))
"""


def read_back(argv: list[str]) -> dict[str, Any]:
    """What Locust's own parser makes of the words."""
    done = subprocess.run(
        [sys.executable, "-c", READ_BACK, *argv], capture_output=True, text=True, check=True
    )
    options: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return options


def test_locust_understands_every_word() -> None:
    argv = locust_argv(
        "ab",
        target=TARGET,
        out=Path("x y"),
        seed=7,
        run_id="r",
        metrics_port=9,
        insecure=True,
        ca_file=Path("ca.pem"),
        stamps="user",
        extra=["--csv", "p"],
    )
    assert argv[:2] == ["-m", "locust"]
    options = read_back(argv)
    assert {
        "plan": "ab", "host": "http://h:1", "model": "a model", "api": "anthropic", "out": "x y", "seed": "7",
        "run_id": "r", "metrics_port": "9", "insecure": True, "ca_file": "ca.pem", "stamps": "user",
        "headless": True, "csv_prefix": "p",
    }.items() <= options.items()  # fmt: skip


def test_the_web_ui_is_asked_for_by_not_being_headless() -> None:
    assert "--headless" not in locust_argv("ab", target=TARGET, out=Path("o"), web=True)
    assert "--headless" in locust_argv("ab", target=TARGET, out=Path("o"))


def test_workers_make_a_master_that_hears_only_this_machine() -> None:
    options = read_back(locust_argv("ab", target=TARGET, out=Path("o"), workers=3))
    assert {"workers": "3", "master": True, "master_bind_host": "127.0.0.1"}.items() <= options.items()
    assert not read_back(locust_argv("ab", target=TARGET, out=Path("o")))["master"]


def test_a_worker_finds_its_master_and_knows_its_parent() -> None:
    options = read_back(worker_argv(7, parent_pid=os.getpid(), stamps="user"))
    assert {"worker": True, "master_port": 7, "stamps": "user"}.items() <= options.items()
    assert options["parent_pid"] == str(os.getpid())
