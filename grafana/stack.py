"""The files of a Prometheus and Grafana stack that watches a run, and the one function that writes them.

The texts are templates in ``grafana/files``; ``files`` fills them in and decides nothing else, ``export``
writes. ``@name`` is a place to fill in there, because ``$`` belongs to compose files and dashboards.
"""

import re
import string
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from grafana.dashboards import DASHBOARDS, text
from tierscope.errors import BadInputError

_TARGET = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")
_TIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")  # what a plan allows as a tier's name
_HISTOGRAMS = """
    # One native series for each classic histogram, the classic buckets kept: dashboards read those.
    convert_classic_histograms_to_nhcb: true
    always_scrape_classic_histograms: true"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """What a stack watches and where it listens; ports are on loopback."""

    load_target: str = "127.0.0.1:9464"
    """host:port of the load generator's metrics."""
    server_target: str = "127.0.0.1:8000"
    """host:port of the loaded server's metrics: the mock, vLLM, …"""
    scrape_interval_s: float = 1.0
    baseline_tier: str = "standard"
    """The tier that recorded ratios compare with."""
    prometheus_port: int = 9090
    grafana_port: int = 3000
    native_histograms: bool = True
    """Also keep histograms as native ones; needs Prometheus 3.0, older ones refuse the file."""


class _Template(string.Template):
    delimiter = "@"


def files(stack: Stack) -> dict[str, str]:
    """The text of every file by its path inside the stack's folder.

    Raises BadInputError, in one line, for a target, port, interval or tier that cannot be.
    """
    _check(stack)
    interval_ms = round(stack.scrape_interval_s * 1000)
    values = {
        "interval": _duration(interval_ms),
        # Four scrapes at least, so that a lost one leaves a rate; a minute, so that a quantile has requests.
        "window": _duration(max(60_000, 4 * interval_ms)),
        "histograms": _HISTOGRAMS if stack.native_histograms else "",
        "load_target": stack.load_target,
        "server_target": stack.server_target,
        "baseline": stack.baseline_tier,
        "prometheus_port": str(stack.prometheus_port),
        "grafana_port": str(stack.grafana_port),
    }
    filled = {place: _filled(name, values) for place, name in _PLACES.items()}
    return filled | {f"grafana/dashboards/{name}.json": text(name) for name in DASHBOARDS}


def export(folder: Path, *, force: bool = False, stack: Stack | None = None) -> list[Path]:
    """Write a stack's files below ``folder`` and return their paths.

    With ``force``, files of the same names are replaced, others kept. Raises BadInputError, in one line, if
    the folder holds files and ``force`` is not set, if it cannot be written, or if the stack cannot be.
    """
    wanted = files(stack or Stack())
    try:
        if not force and folder.exists() and any(folder.iterdir()):
            raise BadInputError(f"{folder}: holds files already; choose an empty folder or add --force")
        for place, content in wanted.items():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    return [folder / place for place in wanted]


_PLACES = {
    "compose.yaml": "compose.yaml",
    "prometheus/prometheus.yml": "prometheus.yml",
    "prometheus/rules.yml": "rules.yml",
    "grafana/provisioning/datasources/tierscope.yml": "datasource.yml",
    "grafana/provisioning/dashboards/tierscope.yml": "dashboards.yml",
}


def _filled(name: str, values: dict[str, str]) -> str:
    template = (resources.files("grafana") / "files" / name).read_text(encoding="utf-8")
    return _Template(template).substitute(values)


def _duration(milliseconds: int) -> str:
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def _check(stack: Stack) -> None:
    for name in ("load_target", "server_target"):
        target = getattr(stack, name)
        match = _TARGET.fullmatch(target)
        if match is None or not 1 <= int(match["port"]) <= 65535:
            raise BadInputError(
                f"{name}: {target!r} is not allowed; expected host:port, as in 127.0.0.1:9464"
            )
    for name in ("prometheus_port", "grafana_port"):
        port = getattr(stack, name)
        if not 1 <= port <= 65535:
            raise BadInputError(f"{name}: {port} is not allowed; expected 1 to 65535")
    if stack.prometheus_port == stack.grafana_port:
        raise BadInputError(f"grafana_port: {stack.grafana_port} is not allowed; it is prometheus_port too")
    interval_s = stack.scrape_interval_s
    if not 0.1 <= interval_s <= 3600:
        raise BadInputError(f"scrape_interval_s: {interval_s} is not allowed; expected 0.1 to 3600")
    if _TIER.fullmatch(stack.baseline_tier) is None:
        raise BadInputError(
            f"baseline_tier: {stack.baseline_tier!r} is not allowed; expected a plan's tier name"
        )
