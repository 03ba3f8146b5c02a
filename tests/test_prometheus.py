"""A real Prometheus scrapes a real run, and every question of dashboards and rules is put to it.

The mock server, the load generator and Prometheus are processes of their own. All questions are asked as of
one instant within the run's last stage, when the stages before it had ended and been scraped; what they
should say is computed from the run's records.
"""

import json
import math
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from grafana.dashboards import DASHBOARDS, FOLDER
from grafana.stack import Stack, export
from loadtest import derive, records
from loadtest.records import RequestRecord

WAIT_S = 60  # bounds what takes seconds on an idle machine
BUCKET = 2 ** (1 / 8)  # the width of a histogram's buckets
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback, whatever the environment
TIERS = {"standard", "fast"}
BEFORE_TAIL = 4 + 48
PLAN = """
name = "scraped"
seed = 5
[workload]
prompt_tokens = [128, 8192]
output_tokens = 24
[[tiers]]
name = "standard"
body = { service_tier = "default" }
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[stages]]
name = "warmup"
warmup = true
requests = 4
arrivals = { kind = "closed", streams = 1 }
[[stages]]
name = "compare"
requests = 48
arrivals = { kind = "closed", streams = 6 }
[[stages]]
name = "tail"  # a few seconds in which the stages before it are scraped to their end
requests = 6
arrivals = { kind = "constant", rate_per_s = 0.8 }
"""


@dataclass(frozen=True)
class Prometheus:
    """A running server's HTTP API."""

    url: str

    def ask(self, expr: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Evaluate an expression as of a Unix time (now if None); (labels, value) of each series."""
        asked = {"query": expr} | ({} if at is None else {"time": f"{at:.3f}"})
        try:
            answer = self._get(f"query?{urllib.parse.urlencode(asked)}")
        except urllib.error.HTTPError as error:
            with error:
                pytest.fail(f"{expr}\n{error.read().decode()}")
        return [(one["metric"], float(one["value"][1])) for one in answer["result"]]

    def total(self, expr: str) -> float:
        """The sum over all series, as of now."""
        return sum(value for _, value in self.ask(expr))

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, path: str) -> Any:
        with HTTP.open(f"{self.url}/api/v1/{path}", timeout=WAIT_S) as response:
            return json.load(response)["data"]


@dataclass(frozen=True)
class Scraped:
    """A finished run, and the instant within it as of which Prometheus is asked."""

    prometheus: Prometheus
    at: float
    records: list[RequestRecord]
    folder: Path

    def ask(self, expr: str) -> list[tuple[dict[str, str], float]]:
        return self.prometheus.ask(expr, self.at)

    def ended(self) -> list[RequestRecord]:
        """The records of the plan's stages that had ended before that instant."""
        return [record for record in self.records if record.stage not in ("tail", "calibration")]


def _until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {WAIT_S} s: {what}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _ready(url: str) -> bool:
    try:
        with HTTP.open(f"{url}/-/ready", timeout=WAIT_S) as response:
            return int(response.status) == 200
    except OSError:  # refused, or 503 while it starts
        return False


@contextmanager
def _process(*command: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.terminate()
            child.communicate(timeout=WAIT_S)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """host:port of the mock server."""
    with _process(sys.executable, "-m", "tierscope", "serve", "fast-tier", "--port", "0") as child:
        assert child.stdout is not None
        found = re.search(r"http://([^/\s]+)", child.stdout.readline())
        assert found is not None
        yield found[1]


@pytest.fixture(scope="module")
def scraped(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """Prometheus under the exported configuration, and a run that it scraped to its end."""
    if shutil.which("prometheus") is None:
        message = "prometheus is not installed (Debian package prometheus); NO query was tried"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    folder, port, metrics_port = tmp_path_factory.mktemp("scraped"), _free_port(), _free_port()
    # Debian 12 has Prometheus 2.42, which does not know native histograms made of classic ones.
    load_target = f"127.0.0.1:{metrics_port}"
    stack = Stack(load_target=load_target, server_target=server, native_histograms=False)
    export(folder / "stack", stack=stack)
    (folder / "plan.toml").write_text(PLAN)
    with _process(
        "prometheus",
        f"--config.file={folder / 'stack/prometheus/prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ):
        prometheus = Prometheus(f"http://127.0.0.1:{port}")
        _until("Prometheus answers", lambda: _ready(prometheus.url))
        # It begins to scrape some five seconds later; increases of a run that began before would be missed.
        _until("the server is scraped", lambda: bool(prometheus.ask("mockserver_batch")))
        at = _run(folder, f"http://{server}", metrics_port, prometheus)
        yield Scraped(prometheus, at, records.read_run(folder / "run").records, folder / "run")


def _run(folder: Path, url: str, metrics_port: int, prometheus: Prometheus) -> float:
    """Do the run; Unix time at which all stages but the last had been scraped to their end."""
    plan, out = folder / "plan.toml", folder / "run"
    arguments = (plan, "--url", url, "--out", out, "--metrics-port", metrics_port)
    before_tail = 'tierscope_requests_total{stage!~"tail|calibration"}'
    with _process(sys.executable, "-m", "tierscope", "run", *arguments) as child:
        _until("two stages are scraped", lambda: prometheus.total(before_tail) == BEFORE_TAIL)
        _until("rules are recorded", lambda: bool(prometheus.ask("tier:tierscope_otps:ratio_to_baseline")))
        at = time.time()
        assert child.wait(WAIT_S) == 0
    return at


def _queries() -> Iterator[tuple[str, str]]:
    """(panel and query, expression with its variables filled in) of all dashboards."""
    values = {"job": "tierscope", "instance": ".+", "model": ".+", "stage": ".+", "tier": "standard|fast"}
    values |= {"baseline": "standard", "compared": "fast", "__rate_interval": "30s", "__range": "2m"}
    for name in DASHBOARDS:
        for panel in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["panels"]:
            for target in panel.get("targets", []):
                expr = re.sub(r"\$(\w+)", lambda found: values[found[1]], target["expr"])
                yield f"{panel['title']} {target['refId']}", expr


QUERIES = dict(_queries())


@pytest.mark.parametrize("label", QUERIES)
def test_a_panel_shows_data_of_the_expected_labels(scraped: Scraped, label: str) -> None:
    expr = QUERIES[label]
    found = scraped.ask(expr)
    assert found, expr
    assert all(math.isfinite(value) for _, value in found), found
    by = re.match(r"(?:histogram_quantile\([\d.]+, )?(?:sum|max) by \(([^)]*)\)", expr)
    if by is not None:
        wanted = set(by[1].split(", ")) - ({"le"} if expr.startswith("histogram_quantile") else set())
        assert {frozenset(labels) for labels, _ in found} == {frozenset(wanted)}
        if "requested_tier" in wanted:
            assert {labels["requested_tier"] for labels, _ in found} == TIERS


def test_every_rule_is_healthy_and_records_each_tier(scraped: Scraped) -> None:
    rules = scraped.prometheus.rules()
    assert len(rules) >= 10
    for rule in rules:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", "")
        for expr in (rule["name"], rule["query"]):
            tiers = {labels["requested_tier"] for labels, _ in scraped.ask(expr)}
            assert tiers == ({"fast"} if "ratio_to_baseline" in rule["name"] else TIERS), expr


def test_requests_and_tokens_are_counted_exactly_as_recorded(scraped: Scraped) -> None:
    requests: Counter[tuple[str, ...]] = Counter()
    tokens: Counter[str] = Counter()
    for one in scraped.ended():
        labels = (one.stage, one.requested_tier, str(one.echoed_tier), str(one.prompt_class_tokens))
        requests[*labels, one.outcome] += 1
        tokens[one.requested_tier] += one.output_tokens or 0
    by = ("stage", "requested_tier", "served_tier", "prompt_class", "outcome")
    found = scraped.ask(
        f'sum by ({", ".join(by)}) (tierscope_requests_total{{stage!~"tail|calibration"}}) > 0'
    )
    assert {tuple(labels[name] for name in by): value for labels, value in found} == requests
    found = scraped.ask('sum by (requested_tier) (tierscope_output_tokens_total{stage!~"tail|calibration"})')
    assert {labels["requested_tier"]: value for labels, value in found} == tokens


def _counted(found: list[RequestRecord]) -> dict[str, Counter[tuple[str, ...]]]:
    """What every counter must say of these records, by its labels in the order of ``BY``."""
    counts: dict[str, Counter[tuple[str, ...]]] = {
        name: Counter() for name in ("requests", "prompt_tokens", "output_tokens", "cached_tokens",
                                     "coalesced_events")
    }  # fmt: skip
    for one in found:
        labels = (one.stage, one.requested_tier, one.echoed_tier or "unreported",
                  str(one.prompt_class_tokens) if one.stage != "calibration" else "mixed")  # fmt: skip
        counts["requests"][*labels, one.outcome] += 1
        for name in counts.keys() - {"requests"}:
            counts[name][labels] += getattr(one, name) or 0
    return counts


BY = ("stage", "requested_tier", "served_tier", "prompt_class", "outcome")


def test_once_the_run_has_ended_the_page_and_prometheus_hold_exactly_what_was_recorded(
    scraped: Scraped,
) -> None:
    page = list(text_string_to_metric_families((scraped.folder / "metrics.prom").read_text()))
    for name, expected in _counted(scraped.records).items():
        by = BY if name == "requests" else BY[:-1]
        wanted = {labels: count for labels, count in expected.items() if count}
        shown: Counter[tuple[str, ...]] = Counter()
        for family in page:
            for sample in family.samples:
                if sample.name == f"tierscope_{name}_total" and sample.value:
                    shown[tuple(sample.labels[label] for label in by)] += int(sample.value)
        assert shown == wanted, name
        # The process is gone and its series are stale: what was seen of them last is asked for.
        expr = f"sum by ({', '.join(by)}) (last_over_time(tierscope_{name}_total[10m])) > 0"
        found = scraped.prometheus.ask(expr)
        assert {tuple(labels[label] for label in by): value for labels, value in found} == wanted, name


def test_every_histogram_counts_the_good_requests_outside_of_warm_up(scraped: Scraped) -> None:
    good = [one for one in scraped.records if one.outcome == "ok" and not one.warmup]
    expected = {
        "ttft_seconds": sum(derive.ttft_s(one) is not None for one in good),
        "e2e_seconds": len(good),
        "itl_seconds": sum(int(derive.itl(one)[1].sum()) for one in good),
        "otps_tokens_per_second": sum(derive.otps_per_s(one) is not None for one in good),
        "schedule_lag_seconds": sum(one.stage == "tail" for one in good),
        "tokens_per_event": sum(bool(one.event_ns) for one in good),
    }
    for name, count in expected.items():
        assert scraped.prometheus.total(f"last_over_time(tierscope_{name}_count[10m])") == count, name


def test_server_and_client_count_the_same_requests(scraped: Scraped) -> None:
    ended = sum(record.outcome == "ok" for record in scraped.records)
    _until("counts agree", lambda: scraped.prometheus.total("vllm:request_success_total") == ended)
    for name in ("mockserver_batch", "vllm:num_requests_running"):
        assert {labels["tier"] for labels, _ in scraped.ask(name)} == TIERS


@pytest.mark.parametrize(
    ("title", "value_of"),
    [("Decode speed", derive.otps_per_s), ("Time to first token, $compared", derive.ttft_s)],
)
def test_a_verdict_agrees_with_the_records_within_the_buckets(
    scraped: Scraped, title: str, value_of: Callable[[RequestRecord], float | None]
) -> None:
    values: dict[tuple[int, str], list[float]] = {}
    for one in scraped.records:
        if one.stage == "compare" and (value := value_of(one)) is not None:
            values.setdefault((one.prompt_class_tokens, one.requested_tier), []).append(value)
    # A median of an even number lies anywhere between the two middle values; a bucket adds its width to each.
    low, high = statistics.median_low, statistics.median_high
    classes = {tokens for tokens, _ in values}
    least = [low(values[k, "fast"]) / high(values[k, "standard"]) / BUCKET**2 for k in classes]
    most = [high(values[k, "fast"]) / low(values[k, "standard"]) * BUCKET**2 for k in classes]
    (expr,) = (expr for label, expr in QUERIES.items() if label.startswith(title))
    ((_, shown),) = scraped.ask(expr.replace('stage=~".+"', 'stage="compare"'))
    assert statistics.geometric_mean(least) <= shown <= statistics.geometric_mean(most)
