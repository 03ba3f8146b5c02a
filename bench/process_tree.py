"""CPU time of a command and of all processes it starts, however deep, watched from outside."""

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np

_SAMPLE_S = 0.1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class TreeCpu:
    """Watches the session whose leader is ``pid`` (a child of ours, started with ``start_new_session``).

    A process that has ended keeps counting through its parent, which has waited for it, or with what it had
    used when it was last looked at.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: dict[int, float] = {}
        self._samples: list[tuple[float, float]] = [(time.monotonic(), 0.0)]
        self._reaped = False
        self.total_s = 0.0
        """CPU seconds in all; after ``watch``."""

    def watch(self) -> None:
        """Sample until the leader has ended."""
        while True:
            self._samples.append((time.monotonic(), self._look()))
            pid, _, used = os.wait4(self._pid, os.WNOHANG)
            if pid:
                self._reaped = True
                self.total_s = max(used.ru_utime + used.ru_stime, self._samples[-1][1])
                return
            time.sleep(_SAMPLE_S)

    def until(self, instant_ns: int) -> float:
        """CPU seconds used until an instant of CLOCK_MONOTONIC."""
        times, used = zip(*self._samples, strict=True)
        return float(np.interp(instant_ns / 1e9, times, used))

    def kill(self) -> None:
        """End whatever is left of the session, by process id."""
        for pid in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._reaped:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            self._reaped = True

    def _look(self) -> float:
        """CPU seconds so far: own time of each process, living or gone."""
        for pid, fields in self._members().items():
            self._seen[pid] = (int(fields[11]) + int(fields[12])) * _TICK_S
        return sum(self._seen.values())

    def _members(self) -> dict[int, list[str]]:
        """The fields of /proc/PID/stat, from the state on, of each process of the session."""
        found = {}
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (place / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[3]) == self._pid:
                        found[int(place.name)] = fields
        return found
