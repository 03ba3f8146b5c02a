"""The reference server as a child process, on a core of its own."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench import truth
from bench.truth import Answer

_END_S = 120


@dataclass(frozen=True, slots=True)
class Pace:
    """How the server answers. On a grid all streams send at the same instants."""

    ttft_ms: float = 100.0
    gap_ms: float = 20.0
    grid: bool = False


@dataclass(slots=True)
class Reference:
    """A running server; the rest is known once its context has ended."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    core_ratio: float = 0.0
    """Share of its core that the server used while it ran."""


@contextmanager
def reference_server(pace: Pace, cpu: int) -> Iterator[Reference]:
    """Run a server on one core; after the context its truth has been read."""
    script = Path(__file__).with_name("reference_server.py")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "truth.jsonl"
        argv = [sys.executable, str(script), "--truth", str(file)]
        argv += ["--ttft-ms", str(pace.ttft_ms), "--gap-ms", str(pace.gap_ms)]
        argv += ["--grid"] if pace.grid else []
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            os.sched_setaffinity(child.pid, {cpu})
            assert child.stdout is not None
            reference = Reference(f"http://127.0.0.1:{int(child.stdout.readline())}")
            started_s, cpu_s = time.monotonic(), cpu_seconds(child.pid)
            try:
                yield reference
                used_s = cpu_seconds(child.pid) - cpu_s
                reference.core_ratio = used_s / (time.monotonic() - started_s)
            finally:
                child.terminate()
                try:
                    child.wait(_END_S)
                except subprocess.TimeoutExpired:
                    child.kill()
        reference.answers = truth.read(file)


def cpu_seconds(pid: int) -> float:
    """CPU time that a process's living threads have used so far: the scheduler's own sum in ns.

    ``/proc/PID/stat`` has it in ticks of 10 ms, which beat against work that comes every few milliseconds.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
