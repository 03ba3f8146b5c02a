"""What a Prometheus client reads from the mock is what the engine did."""

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from mockserver import config, tiers
from mockserver.engine import Job
from mockserver.metrics import ServerMetrics

CONFIG = config.load("fast-tier")


def test_histograms_hold_every_token_of_every_sequence_with_inclusive_bounds() -> None:
    tier = CONFIG.tiers[1]
    engine = tiers.engine(CONFIG, tier, seed=1)
    metrics = ServerMetrics("mock", {tier.name: engine.limits.kv_tokens})
    engine.submit(Job(0, 300, 50), 0)
    steps = engine.advance(20 * 10**9)
    for step in steps:
        metrics.on_step(tier.name, step, 1000)
    registry = CollectorRegistry()
    registry.register(metrics)
    text = generate_latest(registry).decode()
    values = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    seconds = np.repeat(
        [(step.ended_ns - step.started_ns) / 1e9 for step in steps], [step.decode_sequences for step in steps]
    )
    name = "vllm:inter_token_latency_seconds"
    assert values[f"{name}_count", None] == len(seconds)
    assert np.isclose(values[f"{name}_sum", None], seconds.sum())
    for bound in ("0.01", "0.025", "0.15", "+Inf"):
        assert values[f"{name}_bucket", bound] == np.sum(seconds <= float(bound))
    tokens = np.array([step.decode_sequences + step.prefill_tokens for step in steps])
    for bound in ("8.0", "16.0", "1024.0"):
        assert values["vllm:iteration_tokens_total_bucket", bound] == np.sum(tokens <= float(bound))
    assert values["vllm:prompt_tokens_total", None] == sum(step.prefill_tokens for step in steps)
    assert values["mockserver_batch", None] == steps[-1].decode_sequences


def test_all_series_are_there_at_zero_before_the_first_step() -> None:
    registry = CollectorRegistry()
    registry.register(ServerMetrics("mock", {"standard": 1000, "fast": 1000}))
    families = {
        family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())
    }
    for name in ("vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:generation_tokens"):
        assert {(s.labels["tier"], s.value) for s in families[name].samples} == {
            ("standard", 0.0),
            ("fast", 0.0),
        }
