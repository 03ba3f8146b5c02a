"""The load generator as users run it, as a child process that is watched from outside."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.reference import cpu_seconds
from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import RUN_FILE, Run, read_run

RUN_ID = "bench"
_SAMPLE_S = 0.05
_HALF_S = 0.01
_LONGEST_S = 300
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True, slots=True)
class Drive:
    """One run of the client. ``samples`` has a row each 50 ms: monotonic s, CPU s so far, resident MB."""

    run: Run
    samples: NDArray[np.float64]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of the load process from the run's begin to its end, all in."""
        assert self.run.info.client is not None
        return self.run.info.client.cpu_s

    @property
    def zero_ns(self) -> int:
        """CLOCK_MONOTONIC at the run's start, which the records count from."""
        return int(self.run.info.environment["monotonic_zero_ns"])

    @property
    def start_cpu_s(self) -> float:
        """CPU seconds before the run began: importing, mostly."""
        return self.cpu_until(self.zero_ns)

    @property
    def peak_mb(self) -> float:
        """Largest resident size seen."""
        return float(self.samples[:, 2].max())

    @property
    def tokens(self) -> int:
        """Output events received, warm-up included, as the CPU time includes it."""
        return sum(len(record.event_ns) for record in self.run.records)

    def cpu_until(self, instant_ns: float) -> float:
        """CPU seconds used until an instant of CLOCK_MONOTONIC, between samples by interpolation."""
        return float(np.interp(instant_ns / 1e9, self.samples[:, 0], self.samples[:, 1]))


def drive(plan: str, url: str, cpu: int, *, extra: tuple[str, ...] = (), halved: bool = False) -> Drive:
    """Run a plan (TOML text) pinned to one core.

    ``halved`` stops the process (SIGSTOP) for 10 ms out of every 20 ms, from the first second of the run on.
    Raises SystemExit with the client's last line if it fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "bench.toml"
        file.write_text(plan, "utf-8")
        target = Target(url=url, model="ref")
        argv = locust_argv(str(file), target=target, out=folder / "run", run_id=RUN_ID, extra=extra)
        said = folder / "stderr"
        with said.open("wb") as errors:
            child = subprocess.Popen([sys.executable, *argv], stderr=errors, stdout=subprocess.DEVNULL)
        os.sched_setaffinity(child.pid, {cpu})
        with _halving(child, folder / "run" / RUN_FILE) if halved else _nothing():
            samples = _watch(child)
        if child.returncode:
            lines = said.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            raise SystemExit(f"the client ended with {child.returncode}: {lines[-1]}")
        return Drive(read_run(folder / "run"), np.array(samples))


def _watch(child: subprocess.Popen[bytes]) -> list[tuple[float, float, float]]:
    """Sample CPU time and resident size until the child has ended."""
    samples = []
    deadline_s = time.monotonic() + _LONGEST_S
    try:
        while child.poll() is None:
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the client did not end within {_LONGEST_S} s")
            try:
                pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
                samples.append((time.monotonic(), cpu_seconds(child.pid), pages * _PAGE_MB))
            except (OSError, IndexError):  # it has just ended
                continue
            time.sleep(_SAMPLE_S)
    finally:
        if child.poll() is None:
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()
    return samples


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _halving(child: subprocess.Popen[bytes], begun: Path) -> Iterator[None]:
    """Leave the child every other 10 ms, once its run has begun."""
    over = threading.Event()

    def stop_and_go() -> None:
        while not begun.exists():
            if over.wait(_SAMPLE_S):
                return
        while not over.is_set():
            for order in (signal.SIGSTOP, signal.SIGCONT):
                child.send_signal(order)  # does nothing once the child has ended
                time.sleep(_HALF_S)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
