"""What the figures were measured on, and which cores are used for what."""

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("locust", "gevent", "httptools", "msgspec", "numpy")
_BUSY_LOAD = 0.5  # processes ready to run, over the last minute


def cores() -> tuple[int, int]:
    """A core for the server (and the benchmark itself) and one for the client; the same if there is one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def describe() -> str:
    """One line: processor, cores, system, versions."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if "model name" in line), model)
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    system = f"{platform.system()} {platform.release()}"
    return f"{model}, {os.cpu_count()} cores, {system}, Python {platform.python_version()}, {versions}"


def cautions(used: tuple[int, int]) -> list[str]:
    """What keeps figures from being taken on these cores now, a sentence each."""
    found = []
    if used[0] == used[1]:
        found.append("server and client share one core: costs are right, errors and limits are not")
    load = os.getloadavg()[0]
    if load > _BUSY_LOAD:
        found.append(
            f"the load average is {load:.1f}: other work takes the cores, and errors are not the client's"
        )
    return found
