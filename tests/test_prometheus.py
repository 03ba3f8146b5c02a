"""A real Prometheus reads real expositions, and every question of every dashboard is put to it."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from grafana.dashboards import DASHBOARDS, FOLDER
from grafana.stack import Stack, export

WAIT_S = 30  # for what takes one to three seconds on an idle machine
LABELS = ("model", "requested_tier", "served_tier", "stage", "prompt_class")
FACTOR = 2 ** (1 / 8)
ARMS = {"standard": ("default", 1.0), "fast": ("priority", 2.5)}  # echoed tier, decode speed-up
TTFT_S = {"128": 0.05, "2048": 0.2}  # by prompt class, the same for both tiers
OTPS = 40.0
REQUESTS_PER_BEAT = {"standard": {"128": 3, "2048": 2}, "fast": {"128": 1, "2048": 4}}
BEATS = 4
Series = dict[str, str]


@dataclass(frozen=True)
class Prometheus:
    url: str

    def ask(self, expr: str) -> list[tuple[Series, float]]:
        """Evaluate an expression now; (labels, value) of each series."""
        data = urllib.parse.urlencode({"query": expr}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query", data, timeout=WAIT_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{expr}\n{error.read().decode()}")
        return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]

    def rules(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/api/v1/rules", timeout=WAIT_S) as response:
            groups = json.load(response)["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


def _until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if holds():
            return
        time.sleep(0.1)
    pytest.fail(f"not within {WAIT_S} s: {what}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=WAIT_S) as response:
            return int(response.status) == 200
    except (urllib.error.URLError, ConnectionError):
        return False


class Generator:
    """A load generator's exposition with the contract's names, filled with what is known in advance."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        grids = {
            "ttft_seconds": (0.005, 60.0),
            "ttft_from_scheduled_seconds": (0.005, 60.0),
            "tpot_seconds": (0.0005, 2.0),
            "itl_seconds": (0.0005, 2.0),
            "otps_tokens_per_second": (0.5, 2000.0),
            "e2e_seconds": (0.005, 600.0),
        }
        self._histograms = {
            name: Histogram(f"tierscope_{name}", name, LABELS, registry=registry, buckets=_grid(*ends))
            for name, ends in grids.items()
        }
        self._requests = Counter("tierscope_requests", "Ended.", (*LABELS, "outcome"), registry=registry)
        self._counters = {
            name: Counter(f"tierscope_{name}", name, LABELS, registry=registry)
            for name in ("prompt_tokens", "output_tokens", "coalesced_events")
        }
        in_flight = Gauge("tierscope_requests_in_flight", "Now.", ("requested_tier",), registry=registry)
        info = Gauge(
            "tierscope_run_info", "1.", ("run_id", "plan", "model", "stamp_source"), registry=registry
        )
        info.labels("run-1", "ab", "m", "kernel").set(1)
        Gauge("tierscope_client_cpu_ratio", "CPU.", registry=registry).set(0.25)
        Gauge("tierscope_worst_lag_seconds", "Lag.", registry=registry).set(0.001)
        for tier in ARMS:
            in_flight.labels(tier).set(4)
            for prompt_class in TTFT_S:
                self._touch(tier, prompt_class)
        self._server, self._thread = start_http_server(0, "127.0.0.1", registry)
        self.target = f"127.0.0.1:{self._server.server_port}"

    def beat(self) -> None:
        """End one beat's requests: all ok, save the first of each class."""
        for tier, classes in REQUESTS_PER_BEAT.items():
            for prompt_class, count in classes.items():
                labels = _labels(tier, prompt_class)
                for number in range(count):
                    self._requests.labels(*labels, "ok" if number else "timeout").inc()
                    self._end(labels, TTFT_S[prompt_class], OTPS * ARMS[tier][1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(WAIT_S)

    def _end(self, labels: tuple[str, ...], ttft_s: float, otps: float) -> None:
        seconds = {"ttft_seconds": ttft_s, "ttft_from_scheduled_seconds": ttft_s, "tpot_seconds": 1 / otps}
        values = seconds | {"otps_tokens_per_second": otps, "e2e_seconds": ttft_s + 63 / otps}
        for name, value in values.items():
            self._histograms[name].labels(*labels).observe(value)
        for _ in range(63):
            self._histograms["itl_seconds"].labels(*labels).observe(1 / otps)
        self._counters["output_tokens"].labels(*labels).inc(64)

    def _touch(self, tier: str, prompt_class: str) -> None:
        labels = _labels(tier, prompt_class)
        for metric in (*self._histograms.values(), *self._counters.values()):
            metric.labels(*labels)
        for outcome in ("ok", "timeout"):
            self._requests.labels(*labels, outcome)


def _labels(tier: str, prompt_class: str) -> tuple[str, ...]:
    return ("m", tier, ARMS[tier][0], "compare", prompt_class)


def _grid(low: float, high: float) -> list[float]:
    bounds = [low]
    while bounds[-1] < high:
        bounds.append(bounds[-1] * FACTOR)
    return bounds


@pytest.fixture(scope="module")
def generator() -> Iterator[Generator]:
    one = Generator()
    yield one
    one.close()


@pytest.fixture(scope="module")
def prometheus(generator: Generator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus with the exported configuration, once it has scraped all that the generator did."""
    if shutil.which("prometheus") is None:
        message = "prometheus is not installed (Debian package prometheus); no query was tried"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    folder = tmp_path_factory.mktemp("stack")
    # The server's target is closed: Prometheus must live with a server that has no metrics.
    stack = Stack(
        load_target=generator.target, server_target=f"127.0.0.1:{_free_port()}", native_histograms=False
    )
    export(folder, force=True, stack=stack)
    address = f"127.0.0.1:{_free_port()}"
    command = [
        "prometheus",
        f"--config.file={folder / 'prometheus' / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command, cwd=folder) as process:
        try:
            _until("Prometheus answers", lambda: _ready(f"http://{address}"))
            one = Prometheus(f"http://{address}")
            _drive(generator, one)
            yield one
        finally:
            process.terminate()
            process.wait(WAIT_S)


def _drive(generator: Generator, prometheus: Prometheus) -> None:
    def ended() -> float:
        return sum(value for _, value in prometheus.ask("tierscope_requests_total"))

    _until("the zeros are scraped", lambda: bool(prometheus.ask("tierscope_requests_total == 0")))
    for _ in range(BEATS):
        before = ended()
        generator.beat()
        _until("a beat is scraped", lambda before=before: ended() > before)  # type: ignore[misc]
    _until("the last rule has data", lambda: bool(prometheus.ask("tier:tierscope_otps:ratio_to_baseline")))


def _expressions(name: str) -> Iterator[tuple[str, str]]:
    """(panel and query, expression with its variables filled in) of a dashboard."""
    values = {"job": "tierscope", "instance": ".+", "model": "m", "stage": ".+", "tier": "standard|fast"}
    values |= {"baseline": "standard", "compared": "fast", "__rate_interval": "30s", "__range": "60s"}
    for panel in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["panels"]:
        for target in panel.get("targets", []):
            expr = re.sub(r"\$(\w+)", lambda found: values[found[1]], target["expr"])
            yield f"{panel['title']} {target['refId']}", expr


QUERIES = {label: expr for name in DASHBOARDS for label, expr in _expressions(name)}


def _counts() -> dict[tuple[str, str, str], int]:
    counts = {}
    for tier, classes in REQUESTS_PER_BEAT.items():
        for prompt_class, count in classes.items():
            counts[tier, prompt_class, "timeout"] = BEATS
            counts[tier, prompt_class, "ok"] = BEATS * (count - 1)
    return counts


@pytest.mark.parametrize("label", QUERIES)
def test_a_panel_shows_data(prometheus: Prometheus, label: str) -> None:
    found = prometheus.ask(QUERIES[label])
    assert found, QUERIES[label]
    assert all(value == value and value not in (float("inf"), -float("inf")) for _, value in found)
    by = re.search(r"sum by \(([^)]*)\)", QUERIES[label])
    if by is not None and "exp(avg" not in QUERIES[label]:
        wanted = set(by[1].replace(" ", "").split(",")) - ({"le"} if "quantile" in QUERIES[label] else set())
        assert {frozenset(labels) for labels, _ in found} == {frozenset(wanted)}
    if by is not None and "requested_tier" in by[1]:
        assert {labels["requested_tier"] for labels, _ in found} == set(ARMS)


def test_every_rule_is_healthy_and_records_both_tiers(prometheus: Prometheus) -> None:
    rules = prometheus.rules()
    assert rules
    for rule in rules:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", "")
        assert prometheus.ask(rule["query"]), rule["name"]
        tiers = {labels["requested_tier"] for labels, _ in prometheus.ask(rule["name"])}
        assert tiers == ({"fast"} if "baseline" in rule["name"] else set(ARMS)), rule["name"]


def test_request_counts_are_exact(prometheus: Prometheus) -> None:
    found = prometheus.ask("sum by (requested_tier, prompt_class, outcome) (tierscope_requests_total)")
    counted = {(one["requested_tier"], one["prompt_class"], one["outcome"]): int(v) for one, v in found}
    assert counted == _counts()


def test_ratios_are_right_within_a_bucket(prometheus: Prometheus) -> None:
    for label, truth in (("Decode speed", 2.5), ("Time to first token, $compared", 1.0)):
        (expr,) = (expr for name, expr in QUERIES.items() if name.startswith(label))
        ((_, value),) = prometheus.ask(expr)
        assert truth / FACTOR <= value <= truth * FACTOR
