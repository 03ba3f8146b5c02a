"""What is needed to compare two runs: versions of what measured, and the machine's kind. No host names."""

import os
import platform
from importlib import metadata

_PACKAGES = ("locust", "gevent", "httptools", "msgspec", "numpy", "prometheus-client")


def tierscope_version() -> str:
    """Version of the installed distribution, ``unknown`` in a bare source tree."""
    return _version("tierscope")


def environment() -> dict[str, str]:
    """Name what a run's figures may depend on."""
    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
    }
    return found | {package: _version(package) for package in _PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
