"""Answers from counts per bucket, held against what was counted and the laws it was drawn from."""

import math
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from analysis.analyze import analyze
from analysis.model import Report
from analysis.sources import aggregate_report, exposition, prometheus
from analysis.sources.aggregate import Binned
from loadtest import page
from loadtest.histogram import GAP_EDGES_S, Histogram
from loadtest.metrics import RunMetrics
from loadtest.plan import Closed, Plan, Stage, Target, Tier, Workload
from loadtest.records import RequestRecord
from mockserver import config
from tierscope.errors import BadInputError

LENGTHS = (128, 2048, 8192, 16384)
WAIT_S = 30.0
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is asked directly, whatever the environment says."""
    monkeypatch.setenv("no_proxy", "*")


def metrics_of(records: list[RequestRecord], *, lengths: tuple[int, ...] = LENGTHS) -> RunMetrics:
    """What a run exports that ended with these records."""
    plan = Plan(
        name="drawn",
        stages=(Stage(name="compare", arrivals=Closed(streams=8), requests=320),),
        workload=Workload(prompt_tokens=lengths, output_tokens=33),
        tiers=(Tier(name="standard"), Tier(name="fast")),
    )
    made = RunMetrics(plan, Target(url="http://127.0.0.1:1", model="m"), "drawn-1", "kernel")
    for record in records:
        made.started(record.requested_tier)
        made.ended(record)
    return made


def from_buckets(records: list[RequestRecord], **options: Any) -> Report:
    return aggregate_report.answer(exposition.read(page.render(metrics_of(records)), where="page"), **options)


@given(
    values=st.lists(st.floats(1e-5, 50.0), min_size=1, max_size=200),
    q=st.floats(0.0, 1.0),
)
def test_a_quantile_of_what_was_counted_lies_in_the_bucket_that_is_given(
    values: list[float], q: float
) -> None:
    counted = Histogram(GAP_EDGES_S)
    counted.observe_many(np.array(values), np.ones(len(values), dtype=np.int64))
    shape = Binned(counted.edges, counted.counts, counted.sum)
    truth = float(np.quantile(values, q, method="inverted_cdf"))
    low, high = shape.bucket(q)
    assert (low or 0.0) < truth or math.isclose(low or 0.0, truth)
    assert truth <= (high or math.inf)
    found = shape.quantile(q)
    if found.value is not None:
        assert low is not None
        assert high is not None
        assert low <= found.value * (1 + 1e-12)
        assert found.value <= high * (1 + 1e-12)
    assert shape.mean == pytest.approx(np.mean(values))


def test_the_interval_of_a_median_covers_the_law_and_not_only_the_sample() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(200):
        counted = Histogram(GAP_EDGES_S)
        counted.observe_many(0.02 * np.exp(rng.normal(0, 0.5, 100)), np.ones(100, dtype=np.int64))
        found = Binned(counted.edges, counted.counts).quantile(0.5)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.02 <= found.high
    assert held >= 190


def test_what_lies_outside_all_edges_has_a_bound_and_no_value() -> None:
    edges = np.array([0.01, 0.02])
    above = Binned(edges, np.array([0, 0, 50])).quantile(0.5)
    below = Binned(edges, np.array([50, 0, 0])).quantile(0.5)
    assert (above.value, above.low, above.high) == (None, 0.02, None)
    assert (below.value, below.low, below.high) == (None, None, 0.01)
    assert Binned(edges, np.array([0, 0, 0])).quantile(0.5).value is None


def test_a_page_is_read_as_the_official_client_reads_it(draw: Any, server: Any) -> None:
    text = page.render(
        metrics_of(draw({"standard": server(), "fast": server()}, per_tier=12).records())
    ).decode()
    text += 'odd{a="q\\"uo\\\\te\\nline, b=\\"}",b=""} 1.5e-3 1700000000000\nplain 3\ninf{x="1"} +Inf\n'
    ours, damaged = exposition.parse(text)
    theirs = [
        (sample.name, tuple(sorted(sample.labels.items())), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert damaged == 0
    assert sorted((one.name, tuple(sorted(one.labels.items())), one.value) for one in ours) == sorted(theirs)


def test_records_and_their_buckets_tell_the_same(draw: Any, server: Any, folder: Callable[..., Path]) -> None:
    servers = {"standard": server(), "fast": server(step_s=0.008)}
    records = draw(servers, per_tier=120, seed=3).records()
    whole, binned = analyze([folder(records)]), from_buckets(records)
    for one, other in zip(
        whole.tiers, sorted(binned.tiers, key=lambda tier: tier.tier != "standard"), strict=True
    ):
        assert (one.tier, one.requests, one.output_tokens) == (
            other.tier,
            other.requests,
            other.output_tokens,
        )
        rows = {row.metric: row for row in other.quantiles}
        for row in one.quantiles:
            if row.metric in ("ttft", "tpot", "otps", "e2e", "itl"):
                assert rows[row.metric].mean == pytest.approx(row.mean, rel=1e-6)
                p50 = rows[row.metric].p50
                assert p50.low is not None
                assert p50.high is not None
                assert p50.low <= (row.p50.value or 0) <= p50.high
        assert other.step_s.low is not None
        assert other.step_s.high is not None
        assert other.step_s.low <= servers[one.tier].step_s <= other.step_s.high
    assert binned.verdict.decode is not None
    assert binned.verdict.decode.answer == "changed"
    ratio = binned.verdict.decode.speed_ratio
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= 2.5 <= ratio.high


def test_the_increment_of_prefill_is_found_from_buckets_within_its_own_error(draw: Any, server: Any) -> None:
    errors, scores = [], []
    for seed in range(5):
        servers = {"standard": server(), "fast": server(step_s=0.008, queued_ratio=0.1)}
        report = from_buckets(draw(servers, per_tier=80, seed=seed).records())
        assert report.verdict.prefill is not None
        ratio, error = report.verdict.prefill.speed_ratio.value, report.verdict.prefill.standard_error
        assert ratio is not None
        assert error is not None
        assert report.verdict.prefill.answer != "changed"
        errors.append(math.log(ratio))
        scores.append(math.log(ratio) / error)
    assert np.sqrt(np.mean(np.square(errors))) < 0.03
    assert max(np.abs(scores)) < 3


@pytest.mark.parametrize("faster", [1.3, 1 / 1.3])
def test_a_change_of_prefill_is_seen_from_buckets(draw: Any, server: Any, faster: float) -> None:
    servers = {"standard": server(), "fast": server(increment_s=0.30 / faster)}
    test = from_buckets(draw(servers, per_tier=80, seed=4).records()).verdict.prefill
    assert test is not None
    assert test.answer == "changed"
    assert (test.speed_ratio.value or 0) == pytest.approx(faster, rel=0.08)


def test_equal_tiers_are_never_called_changed_from_buckets(draw: Any, server: Any) -> None:
    for seed in range(3):
        servers = {"standard": server(memory=0.8), "fast": server(memory=0.8)}
        test = from_buckets(draw(servers, per_tier=40, seed=seed).records()).verdict.decode
        assert test is not None
        assert test.answer != "changed"


def test_a_batch_is_read_back_from_buckets_as_from_records(
    draw: Any, server: Any, folder: Callable[..., Path]
) -> None:
    deployment = config.load("fast-tier").deployment
    records = draw({"standard": server(), "fast": server(step_s=0.012)}, per_tier=40, seed=6).records()
    whole = analyze([folder(records)], deployment=deployment, context_tokens=2000.0)
    binned = from_buckets(records, deployment=deployment, context_tokens=2000.0)
    batches = {one.tier: one for one in whole.batch if one.method == "white box"}
    found = [one for one in binned.batch if one.method == "white box"]
    assert len(found) == 2
    for one in found:
        known = batches[one.tier].estimate
        assert one.estimate.low is not None
        assert one.estimate.high is not None
        assert known.low is not None
        assert known.high is not None
        assert one.estimate.low <= known.low * 1.02  # buckets know the step less well, and never better
        assert one.estimate.high >= known.high / 1.02


def gap_page(counts: dict[str, int], **more: str) -> bytes:
    """A page whose gaps and requests are in the buckets given by their upper edge."""
    lines, running = [], 0
    for edge, count in counts.items():
        running += count
        lines.append(f'tierscope_itl_seconds_bucket{{requested_tier="a",le="{edge}"}} {running}')
    lines += ['tierscope_itl_seconds_sum{requested_tier="a"} 1', f"{more.get('extra', '')}"]
    lines += ['tierscope_ttft_seconds_bucket{requested_tier="a",le="0.1"} 40']
    lines += ['tierscope_ttft_seconds_bucket{requested_tier="a",le="+Inf"} 40']
    return "\n".join(line for line in lines if line).encode()


def test_gaps_that_mostly_carry_prefill_have_no_step() -> None:
    edges = {"0.01": 0, "0.011": 300, "0.03": 0, "0.033": 700, "+Inf": 0}
    report = aggregate_report.answer(exposition.read(gap_page(edges), where="page"))
    assert report.tiers[0].step_s.value is None
    assert any("carry somebody's prefill" in note for note in report.notes)


def test_gaps_per_token_of_packed_events_are_no_steps() -> None:
    extra = (
        'tierscope_tokens_per_event_sum{requested_tier="a"} 80\n'
        'tierscope_tokens_per_event_count{requested_tier="a"} 40'
    )
    edges = {"0.01": 0, "0.011": 1000, "+Inf": 0}
    report = aggregate_report.answer(exposition.read(gap_page(edges, extra=extra), where="page"))
    assert report.tiers[0].step_s.value is None
    assert any("2.00 tokens in the mean" in note for note in report.notes)


def test_coarse_buckets_of_a_server_leave_the_step_as_wide_as_they_are() -> None:
    text = "\n".join(
        f'vllm:inter_token_latency_seconds_bucket{{model_name="m",le="{edge}"}} {count}'
        for edge, count in (("0.01", 0), ("0.025", 990), ("0.05", 1000), ("+Inf", 1000))
    )
    report = aggregate_report.answer(exposition.read(text.encode(), where="page"))
    (tier,) = report.tiers
    assert (tier.step_s.low, tier.step_s.high) == (0.01, 0.025)
    assert any(item.topic == "resolution" and item.level == "bad" for item in report.trust)
    assert "server's own" in " ".join(report.notes)


def test_counts_that_fall_are_left_out_and_said() -> None:
    text = 'tierscope_itl_seconds_bucket{requested_tier="b",le="0.1"} 5\n'
    text += 'tierscope_itl_seconds_bucket{requested_tier="b",le="+Inf"} 3\nnot a line at all !\n'
    report = aggregate_report.answer(
        exposition.read(gap_page({"0.1": 9, "+Inf": 0}) + b"\n" + text.encode(), where="p")
    )
    assert [tier.tier for tier in report.tiers] == ["a"]
    assert any("of one label set counts fall" in note for note in report.notes)
    assert any("1 lines could not be read" in note for note in report.notes)


def test_buckets_of_another_kind_are_left_out_and_said() -> None:
    other = b"\n" + b"\n".join(
        b'tierscope_itl_seconds_bucket{requested_tier="a",stage="old",le="%s"} %d' % pair
        for pair in ((b"0.5", 2), (b"+Inf", 2))
    )
    found = exposition.read(gap_page({"0.01": 0, "0.011": 1000, "+Inf": 0}) + other, where="page")
    report = aggregate_report.answer(found)
    assert any("1 histograms have other buckets" in note for note in report.notes)
    assert next(row.count for row in report.tiers[0].quantiles if row.metric == "itl") == 1000


# --- a Prometheus server ---


@contextmanager
def serving(status: int, body: bytes) -> Iterator[str]:
    """A server that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "does not answer as a Prometheus server"),
        (500, b"oops", "answers 500"),
        (400, b'{"status":"error","error":"bad\\nquery"}', "refuses: bad query"),
        (200, b'{"status":"success","data":{"result":[]}}', "has nothing of run 'x'"),
    ],
)
def test_a_server_that_cannot_tell_is_refused_in_one_line(status: int, body: bytes, said: str) -> None:
    with serving(status, body) as url, pytest.raises(BadInputError) as refused:
        prometheus.read(prometheus.Question(url, "x"))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_instant_is_unix_seconds_or_iso_8601_in_utc() -> None:
    assert prometheus.instant("1767225600", option="--from") == 1767225600
    assert prometheus.instant("2026-01-01T00:00:00", option="--from") == 1767225600
    assert prometheus.instant("2026-01-01T01:00:00+01:00", option="--from") == 1767225600
    for text in ("yesterday", "-5", "inf", "nan"):
        with pytest.raises(BadInputError, match=r"--from: .* is no instant"):
            prometheus.instant(text, option="--from")


def run_of(count: int) -> list[RequestRecord]:
    """Requests of two tiers in turns, two and a half times as fast on the second."""
    rng, records = np.random.default_rng(1), []
    for place in range(2 * count):
        tier, step_s = (("standard", 0.02), ("fast", 0.008))[place % 2]
        length, sent_s = LENGTHS[place // 2 % 2], 0.15 * place
        gaps = step_s * np.exp(rng.normal(0, 0.05, 32))
        at_s = sent_s + 0.05 + length / 50_000 + rng.exponential(0.003) + np.cumsum([0.0, *gaps])
        event_ns = np.rint(at_s * 1e9).astype(int).tolist()
        records.append(
            RequestRecord(
                index=place,
                stage="compare",
                requested_tier=tier,
                model="m",
                prompt_class_tokens=length,
                max_tokens=33,
                scheduled_ns=round(sent_s * 1e9),
                sent_ns=round(sent_s * 1e9),
                event_ns=event_ns,
                ended_ns=event_ns[-1],
                outcome="ok",
                stamp_source="kernel",
                prompt_tokens=length,
                output_tokens=33,
                tokens_source="usage",
            )
        )
    return records


def open_metrics(records: list[RequestRecord], begin_s: int, every_s: int) -> str:
    """What a scrape every few seconds of the run of these records brings, as promtool takes it."""
    ordered = sorted(records, key=lambda record: record.ended_ns)
    samples: dict[str, list[str]] = {}
    kinds: dict[str, str] = {}
    end_s = math.ceil(ordered[-1].ended_ns / 1e9)
    metrics, told = metrics_of([], lengths=LENGTHS[:2]), 0
    for at_s in range(0, end_s + every_s, every_s):
        while told < len(ordered) and ordered[told].ended_ns <= at_s * 1e9:
            metrics.started(ordered[told].requested_tier)
            metrics.ended(ordered[told])
            told += 1
        for line in page.render(metrics).decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
            elif not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                series = (
                    series.replace("{", '{job="j",instance="i",', 1)
                    if "{" in series
                    else f'{series}{{job="j"}}'
                )
                samples.setdefault(series, []).append(f"{series} {value} {begin_s + at_s}")
                kinds[series] = f"# TYPE {name.removesuffix('_total')} {kind}"
    lines: list[str] = []
    for series, each in samples.items():
        if kinds[series] not in lines:
            lines.append(kinds[series])
        lines += each
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, list[RequestRecord]]]:
    """A real Prometheus server that scraped a run a while ago: its URL, the run's begin, and the records."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        message = "prometheus is not installed (Debian package prometheus); NO query was tried"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    folder, begin_s = tmp_path_factory.mktemp("stored"), int(time.time()) - 3600
    records = run_of(count=36)
    (folder / "run.txt").write_text(open_metrics(records, begin_s, 1), encoding="utf-8")
    (folder / "p.yml").write_text("global: {}\n", encoding="utf-8")
    make: list[str | Path] = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        folder / "run.txt",
        folder / "data",
    ]
    subprocess.run(make, check=True, capture_output=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["prometheus", f"--config.file={folder / 'p.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
        "--storage.tsdb.retention.time=1y",
    ]
    with subprocess.Popen(command) as child:
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + WAIT_S
            while not ready(url):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield url, begin_s, records
        finally:
            child.terminate()


def ready(url: str) -> bool:
    try:
        with HTTP.open(f"{url}/-/ready", timeout=WAIT_S) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_a_run_in_prometheus_tells_what_its_page_told(stored: tuple[str, int, list[RequestRecord]]) -> None:
    url, begin_s, records = stored
    found = prometheus.read(prometheus.Question(url, "drawn-1"))
    theirs, ours = aggregate_report.answer(found), from_buckets(records)
    assert found.started_unix_s == begin_s
    by_name = {tier.tier: tier for tier in ours.tiers}
    for tier in theirs.tiers:
        own = by_name[tier.tier]
        assert (tier.requests, tier.outcomes, tier.prompt_tokens) == (
            own.requests,
            own.outcomes,
            own.prompt_tokens,
        )
        assert tier.step_s == own.step_s
        for row, other in zip(tier.quantiles, own.quantiles, strict=True):
            assert (row.metric, row.count, row.p50) == (other.metric, other.count, other.p50)
            assert (row.mean or 0.0) == pytest.approx(other.mean or 0.0, rel=1e-9)
    assert theirs.verdict.decode is not None
    assert theirs.verdict.decode.answer == "changed"
    assert theirs.verdict.cautions == []  # slices were paired in time


def test_a_range_within_a_run_counts_what_ended_in_it(stored: tuple[str, int, list[RequestRecord]]) -> None:
    url, begin_s, records = stored
    found = prometheus.read(prometheus.Question(url, None, begin_s + 3, begin_s + 8))
    counted = sum(one.outcomes["ok"] for one in found.counts)
    assert counted == sum(3e9 < record.ended_ns <= 8e9 for record in records)
    with pytest.raises(BadInputError, match=r"has nothing of run 'other'"):
        prometheus.read(prometheus.Question(url, "other"))
