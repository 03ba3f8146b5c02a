"""What a Prometheus client reads from the mock is what its engines did."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mockserver import config, request_truth, tiers
from mockserver.engine import Job
from mockserver.job import StepDone
from mockserver.metrics import ServerMetrics
from mockserver.tier_config import Speculation
from tests.mockserver.naive_steps import Sequence, played

CONFIG = config.load("fast-tier")
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
ENGINE = frozenset({("model_name", "m"), ("engine", "0"), ("tier", "a")})

# The questions of vLLM's own Grafana dashboards (examples/online_serving, 2026), and its other names (v1).
ASKED_OF_VLLM = set(
    """
vllm:e2e_request_latency_seconds_bucket vllm:prompt_tokens_total vllm:generation_tokens_total
vllm:inter_token_latency_seconds_bucket vllm:num_requests_running vllm:num_requests_waiting
vllm:time_to_first_token_seconds_bucket vllm:kv_cache_usage_perc vllm:request_prompt_tokens_bucket
vllm:request_generation_tokens_bucket vllm:request_success_total vllm:request_queue_time_seconds_sum
vllm:request_prefill_time_seconds_sum vllm:request_decode_time_seconds_sum
vllm:request_inference_time_seconds_count vllm:request_time_per_output_token_seconds_bucket
vllm:iteration_tokens_total_count vllm:num_preemptions_total vllm:prefix_cache_queries_total
vllm:prefix_cache_hits_total vllm:spec_decode_num_drafts_total vllm:spec_decode_num_draft_tokens_total
vllm:spec_decode_num_accepted_tokens_total vllm:request_params_max_tokens_bucket vllm:request_params_n_bucket
vllm:prompt_tokens_by_source_total vllm:prompt_tokens_cached_total
""".split()  # noqa: SIM905
)
# As vLLM v1 prints them (v0.11, 2025; the same in 2026).
BOUNDS_OF_VLLM = {
    "time_to_first_token_seconds": "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5"
    " 10.0 20.0 40.0 80.0 160.0 640.0 2560.0",
    "inter_token_latency_seconds": "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0"
    " 20.0 40.0 80.0",
    "request_queue_time_seconds": "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0"
    " 240.0 480.0 960.0 1920.0 7680.0",
    "iteration_tokens_total": "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0",
    "request_prompt_tokens": "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0 5000.0 10000.0"
    " 20000.0",
}
SAME_BOUNDS = {
    "request_time_per_output_token_seconds": "inter_token_latency_seconds",
    "e2e_request_latency_seconds": "request_queue_time_seconds",
    "request_prefill_time_seconds": "request_queue_time_seconds",
    "request_decode_time_seconds": "request_queue_time_seconds",
    "request_inference_time_seconds": "request_queue_time_seconds",
    "request_generation_tokens": "request_prompt_tokens",
    "request_params_max_tokens": "request_prompt_tokens",
}


def read(page: bytes) -> Samples:
    """A page as Prometheus' own parser has it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def counted(steps: Iterable[StepDone]) -> ServerMetrics:
    metrics = ServerMetrics("m", {"a": 100_000}, longest_tokens=32_768)
    for step in steps:
        metrics.on_step("a", step, 250_000)
    return metrics


def each(of: Callable[[Sequence], float], sequences: list[Sequence], *, ours: bool = False) -> list[float]:
    return [of(one) / 1e9 for one in sequences if one.ours or not ours]


@pytest.mark.parametrize("draft_tokens", [0, 3])
@pytest.mark.parametrize("pause", [False, True])
def test_histograms_hold_what_each_sequence_saw_whether_or_not_prefill_pauses_decode(
    pause: bool, draft_tokens: int
) -> None:
    steps, every = played(3, pause=pause, draft_tokens=draft_tokens)
    expected = {
        "vllm:time_to_first_token_seconds": each(lambda s: s.token_ns[0] - s.submitted_ns, every),
        "vllm:request_queue_time_seconds": each(lambda s: s.admitted_ns - s.submitted_ns, every),
        "vllm:request_prefill_time_seconds": each(lambda s: s.token_ns[0] - s.admitted_ns, every),
        "vllm:request_decode_time_seconds": each(lambda s: s.token_ns[-1] - s.token_ns[0], every),
        "vllm:e2e_request_latency_seconds": each(lambda s: s.token_ns[-1] - s.submitted_ns, every),
        "vllm:request_inference_time_seconds": each(
            lambda s: s.token_ns[-1] - s.admitted_ns, every, ours=True
        ),
        "vllm:request_time_per_output_token_seconds": each(
            lambda s: (s.token_ns[-1] - s.token_ns[0]) / max(1, s.output_tokens - 1), every, ours=True
        ),
        "vllm:inter_token_latency_seconds": [
            gap / 1e9 for one in every for gap in np.diff(sorted(set(one.token_ns))).tolist()
        ],
        "vllm:request_prompt_tokens": [float(one.prompt_tokens) for one in every if one.ours],
        "vllm:request_generation_tokens": [float(one.output_tokens) for one in every if one.ours],
        "mockserver_step_seconds": [(step.ended_ns - step.started_ns) / 1e9 for step in steps],
        "mockserver_step_batch": [float(step.decode_sequences) for step in steps],
        "mockserver_lag_seconds": [0.00025 for step in steps if step.emitted],
    }
    found = read(counted(steps).page())
    for name, values in expected.items():
        bounds = [float(dict(labels)["le"]) for (told, labels) in found if told == f"{name}_bucket"]
        reference = Histogram(name, "", registry=(registry := CollectorRegistry()), buckets=sorted(bounds))
        for value in values:
            reference.observe(value)
        for (told, labels), value in read(generate_latest(registry)).items():
            if not told.endswith("_created"):
                assert found[told, labels | ENGINE] == pytest.approx(value, rel=1e-9), (told, labels)


def test_counters_and_gauges_are_sums_and_last_values_of_the_steps() -> None:
    steps, every = played(5, pause=False, draft_tokens=2)
    found = read(counted(steps).page())

    def of(name: str, **labels: str) -> float:
        return found[name, ENGINE | frozenset(labels.items())]

    assert of("vllm:generation_tokens_total") == sum(one.output_tokens for one in every)
    computed, hits = sum(one.prompt_tokens for one in every), 4 * len(every)
    assert of("vllm:prompt_tokens_total") == computed + hits
    assert of("vllm:prompt_tokens_by_source_total", source="local_compute") == computed
    assert of("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == hits
    assert of("vllm:prefix_cache_hits_total") == of("vllm:prompt_tokens_cached_total") == hits
    assert of("vllm:prefix_cache_queries_total") == 10 * len(every)
    assert of("vllm:num_preemptions_total") == sum(step.preempted for step in steps)
    drafts = of("vllm:spec_decode_num_drafts_total")
    assert of("vllm:spec_decode_num_draft_tokens_total") == 2 * drafts
    accepted = of("vllm:spec_decode_num_accepted_tokens_total")
    assert accepted == sum(one.output_tokens for one in every) - len(every) - drafts
    assert of("vllm:num_requests_waiting") == steps[-1].waiting
    assert of("vllm:kv_cache_usage_perc") == steps[-1].kv_tokens / 100_000
    assert of("mockserver_batch") == steps[-1].decode_sequences


def test_a_real_engines_steps_add_up_hidden_sequences_included() -> None:
    tier = CONFIG.tiers[1]
    engine = tiers.engine(CONFIG, tier, seed=1)
    engine.submit(Job(0, 300, 50), 0)
    steps = engine.advance(20 * 10**9)
    found = read(counted(steps).page())
    name = "vllm:inter_token_latency_seconds"
    assert found[f"{name}_count", ENGINE] == sum(step.decode_sequences for step in steps)
    seconds = [(step.ended_ns - step.started_ns) / 1e9 * step.decode_sequences for step in steps]
    assert found[f"{name}_sum", ENGINE] == pytest.approx(sum(seconds))
    assert found["vllm:request_generation_tokens_sum", ENGINE] == 50
    assert found["vllm:e2e_request_latency_seconds_count", ENGINE] > 1


def test_every_question_that_is_put_to_vllm_is_answered_before_the_first_step() -> None:
    metrics = ServerMetrics("m", {"standard": 1000, "fast/0": 1000, "fast/11": 1000}, longest_tokens=32_768)
    found = read(metrics.page())
    names = {name for name, _ in found}
    assert names >= ASKED_OF_VLLM
    assert set(found.values()) == {0.0, 1000.0}  # capacities
    engines = {
        (dict(labels)["tier"], dict(labels)["engine"]) for name, labels in found if name == "mockserver_batch"
    }
    assert engines == {("standard", "0"), ("fast", "0"), ("fast", "11")}
    for name, bounds in BOUNDS_OF_VLLM.items():
        for one in (name, *(other for other, same in SAME_BOUNDS.items() if same == name)):
            lines = [labels for told, labels in found if told == f"vllm:{one}_bucket"]
            assert {dict(labels)["le"] for labels in lines} == {*bounds.split(), "+Inf"}, one


def test_ends_refusals_faults_and_downgrades_are_told_by_tier_and_kind() -> None:
    metrics = ServerMetrics(
        "m", {"standard": 1000}, tiers=("standard", "priority"), bound_by=lambda _, step: "memory"
    )
    for reason in ("length", "stop", "stop_sequence", "tool", "abort", "error"):
        metrics.on_end("priority", reason)
    metrics.on_refusal("priority", 429)
    metrics.on_refusal("priority", 429)
    metrics.on_refusal("", 404)
    metrics.on_fault("cut")
    metrics.on_downgrade("priority", "standard")
    metrics.on_request("priority", max_tokens=300, choices=2)
    metrics.on_request("priority", max_tokens=None)
    metrics.set_late(late=True)
    steps, _ = played(1, pause=False)
    for step in steps:
        metrics.on_step("standard", step, 0)
    found = read(metrics.page())

    def of(name: str, **labels: str) -> float | None:
        return found.get((name, frozenset({"model_name": "m", **labels}.items())))

    ends = {
        why: of("vllm:request_success_total", tier="priority", finished_reason=why)
        for why in ("stop", "error")
    }
    assert ends == {"stop": 3, "error": 1}
    assert of("vllm:request_success_total", tier="standard", finished_reason="stop") == 0
    assert of("mockserver_refusals_total", tier="priority", status="429") == 2
    assert of("mockserver_refusals_total", tier="", status="404") == 1
    assert of("mockserver_faults_total", kind="cut") == 1
    assert of("mockserver_downgrades_total", tier="priority", served_by="standard") == 1
    assert of("vllm:request_params_max_tokens_sum", tier="priority") == 300
    assert of("vllm:request_params_n_count", tier="priority") == 2
    assert of("mockserver_late") == 1
    assert of("mockserver_steps_total", engine="0", tier="standard", bound_by="memory") == len(steps)


@pytest.mark.parametrize("name", ['a "quoted" one', "back\\slash\\n", "two\nlines", "{}=,", "größer", ""])
def test_a_model_of_any_name_is_read_back_by_it(name: str) -> None:
    found = read(ServerMetrics(name, {"a": 1000}).page())
    assert {dict(labels)["model_name"] for _, labels in found} == {name}


MODES: dict[str, dict[str, object]] = {
    "chunked": {},
    "pause": {"prefill": "pause"},
    "static": {"batching": "static", "max_batch": 4, "batch_wait_s": 0.5},
    "speculation": {"speculation": Speculation(draft_tokens=3, acceptance_ratio=0.7)},
    "preempt": {"when_kv_is_full": "preempt", "kv_tokens": 2000},
}


@pytest.mark.parametrize("mode", MODES)
def test_what_an_engine_counts_by_step_is_what_its_requests_saw(mode: str) -> None:
    tier = structs.replace(CONFIG.tiers[0], target_batch=0, **MODES[mode])
    engine = tiers.engine(CONFIG, tier, seed=1)
    rng, now_ns = np.random.default_rng(3), 0
    for number in range(120):
        now_ns += int(rng.exponential(0.03) * 1e9)
        engine.submit(Job(number, int(rng.integers(1, 1500)), int(rng.choice([1, 2, 30, 100]))), now_ns)
    steps = engine.advance(now_ns + 10**12)
    ends = [one for step in steps for one in step.finished]
    found = read(counted(steps).page())
    expected = {
        "vllm:time_to_first_token_seconds": [one.first_token_ns - one.submitted_ns for one in ends],
        "vllm:request_queue_time_seconds": [one.admitted_ns - one.submitted_ns for one in ends],
        "vllm:request_prefill_time_seconds": [one.first_token_ns - one.admitted_ns for one in ends],
        "vllm:request_decode_time_seconds": [one.ended_ns - one.first_token_ns for one in ends],
        "vllm:request_inference_time_seconds": [one.ended_ns - one.admitted_ns for one in ends],
        "vllm:e2e_request_latency_seconds": [one.ended_ns - one.submitted_ns for one in ends],
    }
    if mode != "preempt":  # whose long gaps are told as shorter ones
        gaps = [np.diff(np.unique(one.token_ns)).tolist() for one in ends]
        expected["vllm:inter_token_latency_seconds"] = [gap for some in gaps for gap in some]
    for name, spans_ns in expected.items():
        assert found[f"{name}_count", ENGINE] == len(spans_ns), name
        assert found[f"{name}_sum", ENGINE] == pytest.approx(sum(spans_ns) / 1e9, rel=1e-9), name
    assert len(ends) == 120
    assert found["vllm:generation_tokens_total", ENGINE] == sum(one.job.output_tokens for one in ends)
    assert (found["vllm:num_preemptions_total", ENGINE] > 0) == (mode == "preempt")
    assert found["vllm:num_preemptions_total", ENGINE] == sum(one.preemptions for one in ends)
    for one in ends:
        truth = request_truth.of_finished([one])
        assert truth["steps"] >= len(np.unique(one.token_ns))
        assert one.job.output_tokens == 1 or truth["mean_batch"] >= (one.preemptions == 0)
