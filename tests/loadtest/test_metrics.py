"""Histograms against prometheus_client's own, and the page a run shows."""

import math
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import prometheus_client
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from loadtest import histogram
from loadtest.exposition import save
from loadtest.histogram import E2E_EDGES_S, GAP_EDGES_S, SPEED_EDGES_PER_S, TTFT_EDGES_S, Histogram
from loadtest.metrics import Gauges, RunMetrics
from loadtest.page import render
from loadtest.plan import Closed, Plan, Poisson, Stage, Target, Tier, Workload
from loadtest.plan_workload import Sessions, Uniform
from loadtest.records import OUTCOMES, RequestRecord

MS = 1_000_000
GRIDS = {"gap": GAP_EDGES_S, "ttft": TTFT_EDGES_S, "e2e": E2E_EDGES_S, "speed": SPEED_EDGES_PER_S}
BOUNDS = {"gap": (0.0005, 2.0), "ttft": (0.005, 60.0), "e2e": (0.005, 600.0), "speed": (0.5, 2000.0)}


@pytest.mark.parametrize("name", GRIDS)
def test_edges_are_an_eighth_of_an_octave_apart_and_reach_both_ends(name: str) -> None:
    edges, (low, high) = GRIDS[name], BOUNDS[name]
    assert edges[1:] / edges[:-1] == pytest.approx(np.full(edges.size - 1, 2 ** (1 / 8)), rel=1e-5)
    assert edges[0] <= low * 1.0001
    assert high <= edges[-1] * 1.0001
    assert edges[-2] < high


def test_a_speed_lies_in_the_mirrored_bucket_of_its_time_per_token() -> None:
    for gap in np.geomspace(0.0004, 3, 500):
        place = np.searchsorted(GAP_EDGES_S, gap, side="left")
        mirror = np.searchsorted(SPEED_EDGES_PER_S, 1 / gap, side="left")
        assert place + mirror == GAP_EDGES_S.size


def theirs(edges: np.ndarray, values: list[float]) -> dict[str, float]:
    """What prometheus_client's own Histogram shows of the same observations."""
    registry = prometheus_client.CollectorRegistry()
    reference = prometheus_client.Histogram("h", "h", buckets=edges.tolist(), registry=registry)
    for value in values:
        reference.observe(value)
    return {
        sample.labels.get("le", sample.name): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def ours(made: Histogram) -> dict[str, float]:
    bounds = [*(str(edge) for edge in made.edges.tolist()), "+Inf"]
    found = dict(zip(bounds, made.counts.cumsum().tolist(), strict=True))
    return found | {"h_count": made.count, "h_sum": made.sum}


VALUES = st.lists(
    st.floats(0, 100) | st.sampled_from([0.0, *GAP_EDGES_S[:4].tolist(), GAP_EDGES_S[-1].item(), 1e9]),
    max_size=40,
)


@given(VALUES)
@settings(max_examples=50, deadline=None)
def test_observations_are_exposed_as_prometheus_clients_own_histogram_does(values: list[float]) -> None:
    one_by_one, at_once = Histogram(GAP_EDGES_S), Histogram(GAP_EDGES_S)
    for value in values:
        one_by_one.observe(value)
    at_once.observe_many(np.array(values, dtype=float), np.ones(len(values), dtype=np.int64))
    expected = theirs(GAP_EDGES_S, values)
    assert ours(one_by_one) == pytest.approx(expected)
    assert ours(at_once) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 5)), max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_repeated_observation_counts_as_often_as_it_says(pairs: list[tuple[float, int]]) -> None:
    made = Histogram(GAP_EDGES_S)
    made.observe_many(np.array([v for v, _ in pairs]), np.array([k for _, k in pairs], dtype=np.int64))
    assert ours(made) == pytest.approx(theirs(GAP_EDGES_S, [v for v, k in pairs for _ in range(k)]))


@given(VALUES.filter(bool), st.floats(0, 1))
@settings(max_examples=50, deadline=None)
def test_a_quantile_is_the_edge_above_it(values: list[float], ratio: float) -> None:
    made = Histogram(GAP_EDGES_S)
    made.observe_many(np.array(values), np.ones(len(values), dtype=np.int64))
    truth = float(np.quantile(values, ratio, method="inverted_cdf"))
    above = GAP_EDGES_S[truth <= GAP_EDGES_S]
    assert made.quantile(ratio) == (above[0] if above.size else GAP_EDGES_S[-1])


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram(GAP_EDGES_S).quantile(0.5) is None


def test_a_copy_is_left_alone() -> None:
    made = Histogram(histogram.log_edges(1, 4))
    copied = made.copy()
    made.observe(2.0)
    assert (copied.count, made.count) == (0, 1)


# The page of a run

PLAN = Plan(
    name="ab",
    tiers=(Tier(name="standard"), Tier(name="fast", body={"service_tier": "priority"})),
    stages=(
        Stage(name="warmup", arrivals=Closed(streams=1), requests=2, warmup=True),
        Stage(name="compare", arrivals=Closed(streams=1), requests=2),
    ),
    workload=Workload(prompt_tokens=(64, 128), output_tokens=8),
)
HISTOGRAMS = (
    "ttft_seconds", "ttft_from_scheduled_seconds", "tpot_seconds", "itl_seconds",
    "otps_tokens_per_second", "e2e_seconds", "tokens_per_event",
)  # fmt: skip
LAG = "schedule_lag_seconds"


def fresh(plan: Plan = PLAN) -> RunMetrics:
    return RunMetrics(plan, Target(url="http://h", model="m"), "run-1", "kernel")


Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(text: str) -> Page:
    """What Prometheus's own reader finds in a page."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def page(metrics: RunMetrics) -> Page:
    return read(render(metrics).decode())


def value(metrics: "RunMetrics | Page", name: str, **labels: str) -> float:
    """The sum over all series that have these labels."""
    shown = page(metrics) if isinstance(metrics, RunMetrics) else metrics
    found = [v for (n, have), v in shown.items() if n == name and labels.items() <= dict(have).items()]
    assert found, (name, labels)
    return math.fsum(found)


def record(**more: object) -> RequestRecord:
    fields: dict[str, object] = {
        "index": 0, "stage": "compare", "requested_tier": "fast", "model": "m", "prompt_class_tokens": 64,
        "max_tokens": 8, "scheduled_ns": 0, "sent_ns": 1 * MS, "ended_ns": 90 * MS, "outcome": "ok",
        "stamp_source": "kernel", "event_ns": [11 * MS, 31 * MS, 51 * MS], "event_tokens": [1, 2, 1],
        "output_tokens": 4, "prompt_tokens": 60, "coalesced_events": 1, "echoed_tier": "priority",
        "tokens_source": "usage", "cached_tokens": 48,
    }  # fmt: skip
    return RequestRecord(**(fields | more))  # type: ignore[arg-type]


def after(*records: RequestRecord, plan: Plan = PLAN) -> RunMetrics:
    metrics = fresh(plan)
    for made in records:
        metrics.started(made.requested_tier)
        metrics.ended(made)
    return metrics


def test_every_series_that_is_sure_to_come_is_there_at_zero() -> None:
    shown = page(fresh())
    assert {v for (name, _), v in shown.items() if name != "tierscope_run_info"} == {0.0}
    for name in HISTOGRAMS:
        sets = [dict(have) for n, have in shown if n == f"tierscope_{name}_count"]
        assert {(s["requested_tier"], s["prompt_class"]) for s in sets} == {
            (tier, size) for tier in ("standard", "fast") for size in ("64", "128")
        }
        assert {s["stage"] for s in sets} == {"compare"}
        assert {s["served_tier"] for s in sets if s["requested_tier"] == "fast"} == {"priority"}
    counted = [dict(have) for n, have in shown if n == "tierscope_requests_total"]
    for served in ("priority", "unreported"):
        outcomes = {
            s["outcome"] for s in counted if (s["requested_tier"], s["served_tier"]) == ("fast", served)
        }
        assert outcomes == set(OUTCOMES), served


def test_a_good_request_fills_every_histogram_once_and_itl_per_token() -> None:
    metrics = page(after(record()))
    labels = {"requested_tier": "fast", "served_tier": "priority", "prompt_class": "64", "stage": "compare"}
    for name in HISTOGRAMS:
        assert value(metrics, f"tierscope_{name}_count", **labels) == (3 if name == "itl_seconds" else 1)
    assert value(metrics, "tierscope_ttft_seconds_sum") == pytest.approx(0.010)
    assert value(metrics, "tierscope_ttft_from_scheduled_seconds_sum") == pytest.approx(0.011)
    assert value(metrics, "tierscope_tpot_seconds_sum") == pytest.approx(0.040 / 3)
    assert value(metrics, "tierscope_otps_tokens_per_second_sum") == pytest.approx(75)
    assert value(metrics, "tierscope_itl_seconds_sum") == pytest.approx(0.040)
    assert value(metrics, "tierscope_e2e_seconds_sum") == pytest.approx(0.089)
    assert value(metrics, "tierscope_tokens_per_event_sum") == pytest.approx(4 / 3)
    assert not any(name.startswith(f"tierscope_{LAG}") for name, _ in metrics)  # a closed loop has none


def test_an_open_loop_shows_how_late_its_requests_left() -> None:
    opened = Stage(name="compare", arrivals=Poisson(rate_per_s=5), requests=2)
    plan = msgspec.structs.replace(PLAN, stages=(opened,))
    assert value(fresh(plan), f"tierscope_{LAG}_count") == 0
    metrics = after(record(), record(sent_ns=None, outcome="connect_error"), plan=plan)
    assert value(metrics, f"tierscope_{LAG}_count") == 1
    assert value(metrics, f"tierscope_{LAG}_sum") == pytest.approx(0.001)


def test_tokens_that_only_events_tell_are_no_tokens_per_event() -> None:
    metrics = after(record(tokens_source="events"))
    assert value(metrics, "tierscope_tokens_per_event_count") == 0


CLASSES = Workload(prompt_tokens=(64, 128), output_tokens=8)
DRAWN = Workload(prompt_tokens=Uniform(minimum=1, maximum=9), output_tokens=8)
TURNS = Workload(prompt_tokens=(64,), output_tokens=8, sessions=Sessions(turns=2, turn_tokens=64))


@pytest.mark.parametrize(
    ("workload", "size", "turn", "label"),
    [
        (CLASSES, 128, 0, "128"),
        (CLASSES, 129, 0, "mixed"),
        (DRAWN, 5, 0, "mixed"),
        (TURNS, 64, 0, "64"),
        (TURNS, 64, 1, "mixed"),
    ],
)
def test_the_prompt_class_is_one_of_the_plans_or_mixed(
    workload: Workload, size: int, turn: int, label: str
) -> None:
    plan = msgspec.structs.replace(PLAN, workload=workload)
    before = page(fresh(plan))
    metrics = page(after(record(prompt_class_tokens=size, turn=turn), plan=plan))
    assert value(metrics, "tierscope_requests_total", outcome="ok", prompt_class=label) == 1
    assert value(metrics, "tierscope_ttft_seconds_count", prompt_class=label) == 1
    sizes = {dict(have)["prompt_class"] for n, have in metrics if n == "tierscope_requests_total"}
    assert sizes <= {str(tokens) for tokens in workload.classes} | {"mixed"}
    if size in workload.classes or not workload.classes:  # which was sure to come
        assert before.keys() == metrics.keys()


def test_a_server_that_echoes_no_tier_is_noticed_in_the_warm_up_and_counted_from_zero() -> None:
    metrics = page(after(record(stage="warmup", warmup=True, echoed_tier=None)))
    assert value(metrics, "tierscope_ttft_seconds_count", stage="compare", served_tier="unreported") == 0


def test_records_of_a_stage_that_the_plan_does_not_name_are_counted() -> None:
    metrics = page(after(record(stage="calibration", warmup=True)))
    assert value(metrics, "tierscope_requests_total", stage="calibration", outcome="ok") == 1
    assert sum(value(metrics, f"tierscope_{name}_count") for name in HISTOGRAMS) == 0


def test_a_failed_request_counts_and_stays_out_of_the_histograms() -> None:
    metrics = page(after(record(outcome="truncated", echoed_tier=None)))
    assert value(metrics, "tierscope_requests_total", outcome="truncated", served_tier="unreported") == 1
    assert value(metrics, "tierscope_requests_total", outcome="ok") == 0
    assert sum(value(metrics, f"tierscope_{name}_count") for name in HISTOGRAMS) == 0


def test_warm_up_counts_its_traffic_and_feeds_no_histogram() -> None:
    metrics = page(after(record(stage="warmup", warmup=True)))
    assert value(metrics, "tierscope_requests_total", stage="warmup", outcome="ok") == 1
    assert value(metrics, "tierscope_output_tokens_total", stage="warmup") == 4
    assert sum(value(metrics, f"tierscope_{name}_count") for name in HISTOGRAMS) == 0


def test_a_tier_that_was_not_asked_for_has_a_series_of_its_own() -> None:
    metrics = page(after(record(echoed_tier="default")))
    assert value(metrics, "tierscope_ttft_seconds_count", served_tier="default") == 1
    assert value(metrics, "tierscope_ttft_seconds_count", served_tier="priority") == 0


def test_a_server_that_makes_up_tiers_does_not_grow_the_page_for_ever() -> None:
    metrics = page(after(*(record(echoed_tier=f"tier-{k}") for k in range(100))))
    served = {dict(have)["served_tier"] for n, have in metrics if n == "tierscope_requests_total"}
    assert len(served) < 40
    assert value(metrics, "tierscope_requests_total", outcome="ok") == 100
    assert value(metrics, "tierscope_requests_total", outcome="ok", served_tier="other") > 0


def test_tokens_coalesced_events_and_requests_in_flight_are_counted() -> None:
    metrics = after(record(), record(prompt_tokens=None, output_tokens=None))
    metrics.started("standard")
    assert value(metrics, "tierscope_prompt_tokens_total") == 60
    assert value(metrics, "tierscope_output_tokens_total") == 4
    assert value(metrics, "tierscope_cached_tokens_total") == 96
    assert value(metrics, "tierscope_coalesced_events_total") == 2
    assert value(metrics, "tierscope_requests_in_flight", requested_tier="standard") == 1
    assert value(metrics, "tierscope_requests_in_flight", requested_tier="fast") == 0


def test_the_run_is_named_and_the_client_watched() -> None:
    metrics = fresh()
    metrics.gauges = Gauges(
        stage="warmup", cpu_ratio=0.5, worst_lag_s=0.003, offered_per_s=7, hub_late_s=0.002
    )
    assert (
        value(metrics, "tierscope_run_info", run_id="run-1", plan="ab", model="m", stamp_source="kernel") == 1
    )
    assert value(metrics, "tierscope_client_cpu_ratio") == 0.5
    assert value(metrics, "tierscope_worst_lag_seconds") == 0.003
    assert value(metrics, "tierscope_hub_lateness_seconds") == 0.002
    assert value(metrics, "tierscope_offered_requests_per_second") == 7
    assert value(metrics, "tierscope_stage_info", stage="warmup", arrivals="closed") == 1
    assert value(metrics, "tierscope_stage_info", stage="compare", arrivals="closed") == 0


def test_a_copy_of_the_metrics_is_left_alone() -> None:
    metrics = fresh()
    copied = metrics.copy()
    metrics.started("fast")
    metrics.ended(record())
    metrics.gauges.cpu_ratio = 1.0
    assert value(copied, "tierscope_client_cpu_ratio") == 0
    assert value(copied, "tierscope_requests_total", outcome="ok") == 0
    assert value(copied, "tierscope_ttft_seconds_count") == 0


@given(st.text(max_size=20), st.text(min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_whatever_a_model_or_a_tier_is_called_prometheus_reads_the_same_name(model: str, tier: str) -> None:
    plan = msgspec.structs.replace(PLAN, tiers=PLAN.tiers[1:], stages=PLAN.stages[:1])
    metrics = RunMetrics(plan, Target(url="http://h", model=model), "run-1", "kernel")
    metrics.started("fast")
    metrics.ended(record(model=model, echoed_tier=tier, stage="warmup"))
    labels = {"model": model, "served_tier": tier, "outcome": "ok"}
    assert value(metrics, "tierscope_requests_total", **labels) == 1


def test_prometheus_clients_writer_says_the_same_of_the_same_observations() -> None:
    metrics = after(record(), record(event_ns=[11 * MS, 90 * MS], event_tokens=None))
    registry = prometheus_client.CollectorRegistry()
    names = ("model", "requested_tier", "served_tier", "stage", "prompt_class")
    theirs = prometheus_client.Histogram(
        "tierscope_ttft_seconds",
        "Time from sending a request to its first output token.",
        names,
        buckets=TTFT_EDGES_S.tolist(),
        registry=registry,
    ).labels("m", "fast", "priority", "compare", "64")
    theirs.observe(0.010)
    theirs.observe(0.010)

    expected = read(prometheus_client.generate_latest(registry).decode())
    shown = page(metrics)
    known = {key: count for key, count in expected.items() if not key[0].endswith("_created")}
    assert len(known) == TTFT_EDGES_S.size + 3
    assert {key: shown[key] for key in known} == pytest.approx(known)


def test_promtool_finds_nothing_wrong_with_the_page() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=render(after(record())), capture_output=True, check=False
    )
    complaints = (done.stdout + done.stderr).decode().splitlines()
    # "non-histogram and non-summary metrics should not have …" and the like would be ours to mend.
    assert [line for line in complaints if "no help text" not in line] == []


def test_names_follow_the_conventions(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("run")
    save(folder, after(record()))
    text = (folder / "metrics.prom").read_text()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert all(name.startswith("tierscope_") for name in types)
    assert all(name.endswith("_total") for name, kind in types.items() if kind == "counter")
    assert {name for name, kind in types.items() if kind == "histogram"} == {
        f"tierscope_{name}" for name in (*HISTOGRAMS, LAG)
    }


def test_the_documentation_names_every_metric_with_its_type_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "watching.md").read_text("utf-8")
    documented = dict(re.findall(r"^\| `(tierscope_\w+)` \| (\w+) \|", text, re.MULTILINE))
    shown = dict(re.findall(r"^# TYPE (\S+) (\S+)$", render(fresh()).decode(), re.MULTILINE))
    assert documented == shown
