"""Runs under Locust in processes of their own, as users start them."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from loadtest.command import locust_argv
from loadtest.plan import Api, Target
from loadtest.records import Run, read_run

LIMIT_S = 60
PLAN = """
name = "tiny"
seed = 3
[workload]
prompt_tokens = [8, 16]
output_tokens = 5
tokens_per_word = 1
[[tiers]]
name = "standard"
[[tiers]]
name = "fast"
body = {{ service_tier = "priority" }}
{stages}
"""
CLOSED = """
[[stages]]
name = "warmup"
warmup = true
requests = 4
arrivals = { kind = "closed", streams = 2 }
[[stages]]
name = "compare"
requests = 16
arrivals = { kind = "closed", streams = 4 }
"""
OPEN = """
[[stages]]
name = "first"
requests = 3
arrivals = { kind = "closed", streams = 3 }
[[stages]]
name = "open"
duration_s = 1.0
arrivals = { kind = "poisson", rate_per_s = 60.0 }
[[stages]]
name = "steady"
requests = 10
arrivals = { kind = "constant", rate_per_s = 50.0 }
"""
LONG = """
[[stages]]
name = "long"
requests = 1000
arrivals = { kind = "closed", streams = 3 }
"""


class Started:
    """A run in a process of its own."""

    def __init__(self, argv: list[str], folder: Path, **more: Any) -> None:
        self.folder = folder
        environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")} | more.pop(
            "env", {}
        )
        self.process = subprocess.Popen(
            [sys.executable, *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **more,
        )

    def end(self) -> "Ended":
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert "Traceback" not in err, err
        return Ended(self.process.returncode, [*out.splitlines(), *err.splitlines()], self.folder)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert self.process.poll() is None, self.process.communicate()
            if time.monotonic() > deadline_s:
                self.process.kill()
                pytest.fail(f"nothing came of {self.process.args!r}: {self.process.communicate()!r}")
            time.sleep(0.05)


class Ended:
    """How it ended, what it said, and what it left."""

    def __init__(self, code: int, lines: list[str], folder: Path) -> None:
        self.code = code
        self.lines = lines
        self.folder = folder

    def run(self) -> Run:
        return read_run(self.folder)


Start = Callable[..., Started]
_OPTIONS = ("metrics_port", "run_id", "insecure", "workers", "extra")


@contextmanager
def starting(server_url: str, folder: Path) -> Iterator[Start]:
    """Give what starts runs against a server; whatever still goes at the end is killed."""
    started: list[Started] = []

    def begin(
        stages: str = CLOSED,
        *,
        model: str = "m",
        url: str = "",
        api: Api = "openai",
        web: bool = False,
        out: str = "run",
        **more: Any,
    ) -> Started:
        plan = folder / "tiny.toml"
        plan.write_text(PLAN.format(stages=stages))
        options = {key: more.pop(key) for key in _OPTIONS if key in more}
        target = Target(url=url or server_url, model=model, api=api)
        argv = locust_argv(str(plan), target=target, out=folder / out, web=web, **options)
        started.append(Started(argv, folder / out, **more))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdout, one.process.stderr):
            if pipe is not None:
                pipe.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def fetch(url: str, data: bytes | None = None) -> str:
    with urllib.request.urlopen(url, data, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def serves(url: str) -> bool:
    try:
        fetch(url)
    except (urllib.error.URLError, ConnectionError):
        return False
    return True
