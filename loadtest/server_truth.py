"""What a server's own numbers say of a stretch of a run: batch, queue, cache, speculation. Pure.

Names and meanings are those of the servers' sources and documentation (2026). What a server does not tell is
None. Counters are differences over the stretch, exact; gauges are means over the scrapes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.server_samples import ServerSamples, matching

Ratio = tuple[str, str]
"""Names of a numerator and a denominator, both counters."""


@dataclass(frozen=True, slots=True)
class _Engine:
    """Under which names a server tells what."""

    name: str
    running: str
    waiting: str
    tokens_per_step: Ratio | None = None
    cached: Ratio | None = None
    cached_and_missed: Ratio | None = None
    """Hits and misses, where the whole is their sum."""
    cached_gauge: str = ""
    accepted: Ratio | None = None
    accepted_gauge: str = ""


_ENGINES = (
    _Engine(
        "vllm",
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        tokens_per_step=("vllm:generation_tokens_total", "vllm:iteration_tokens_total_count"),
        cached=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
        accepted=(
            "vllm:spec_decode_num_accepted_tokens_total",
            "vllm:spec_decode_num_draft_tokens_total",
        ),
    ),
    _Engine(
        "sglang",
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        cached=("sglang:cached_tokens_total", "sglang:prompt_tokens_total"),
        cached_gauge="sglang:cache_hit_rate",
        accepted_gauge="sglang:spec_accept_rate",
    ),
    _Engine("tgi", running="tgi_batch_current_size", waiting="tgi_queue_size"),
    _Engine(
        "trtllm",
        running="trtllm_num_requests_running",
        waiting="trtllm_num_requests_waiting",
        cached_and_missed=("trtllm_kv_cache_reused_blocks_total", "trtllm_kv_cache_missed_blocks_total"),
        cached_gauge="trtllm_kv_cache_hit_rate",
        accepted=(
            "trtllm_spec_decode_num_accepted_tokens_total",
            "trtllm_spec_decode_num_draft_tokens_total",
        ),
    ),
    _Engine(
        "llamacpp",
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        tokens_per_step=("llamacpp:tokens_predicted_total", "llamacpp:n_decode_total"),
    ),
)


@dataclass(frozen=True, slots=True)
class ServerTruth:
    """What a server told of one stretch of time; None: it did not tell."""

    engine: str
    running_mean: float | None
    running_max: float | None
    waiting_mean: float | None
    waiting_max: float | None
    mean_batch: float | None
    """Sequences that got a token, per step: from counters where there are any (all steps count, those with
    prompts only too), else the mean of the gauge of running requests."""
    mean_batch_source: str
    cache_hit_ratio: float | None
    """Share of prompt tokens (TensorRT-LLM: of KV blocks) that were cached."""
    speculation_accepted_ratio: float | None
    """Share of drafted tokens that were accepted."""


def truth(samples: ServerSamples, labels: Mapping[str, str] | None = None) -> ServerTruth | None:
    """Derive what the scrapes say, of the series that have ``labels``; None if no known server spoke.

    Hand in ``samples.within(begin_ns, end_ns)`` for one stage.
    """
    names = samples.names()
    engine = next((one for one in _ENGINES if one.running in names), None)
    if engine is None:
        return None
    running, waiting = samples.level(engine.running, labels)[1], samples.level(engine.waiting, labels)[1]
    running_mean = float(running.mean()) if running.size else None
    batch, source = _mean_batch(engine, samples, labels)
    if batch is None and running_mean is not None:
        batch, source = running_mean, f"mean of {engine.running}"
    cached = _ratio(samples, engine.cached, labels)
    if cached is None and engine.cached_and_missed is not None:
        cached = _share(samples, engine.cached_and_missed, labels)
    accepted = _ratio(samples, engine.accepted, labels)
    return ServerTruth(
        engine=engine.name,
        running_mean=running_mean,
        running_max=float(running.max()) if running.size else None,
        waiting_mean=float(waiting.mean()) if waiting.size else None,
        waiting_max=float(waiting.max()) if waiting.size else None,
        mean_batch=batch,
        mean_batch_source=source,
        cache_hit_ratio=_mean(samples, engine.cached_gauge, labels) if cached is None else cached,
        speculation_accepted_ratio=(
            _mean(samples, engine.accepted_gauge, labels) if accepted is None else accepted
        ),
    )


def _mean_batch(
    engine: _Engine, samples: ServerSamples, labels: Mapping[str, str] | None
) -> tuple[float | None, str]:
    """(Δ tokens − Δ accepted drafts) / Δ steps: each sequence of a step gets one token beside its drafts."""
    if engine.tokens_per_step is None:
        return None, ""
    tokens, steps = (samples.increase(name, labels) for name in engine.tokens_per_step)
    if tokens is None or not steps:
        return None, ""
    drafted = samples.increase(engine.accepted[0], labels) if engine.accepted else None
    return (tokens - (drafted or 0.0)) / steps, " / ".join(engine.tokens_per_step)


def _ratio(samples: ServerSamples, names: Ratio | None, labels: Mapping[str, str] | None) -> float | None:
    """Increase of the first over increase of the second; None where nothing was counted."""
    if names is None:
        return None
    part, whole = (samples.increase(name, labels) for name in names)
    return part / whole if part is not None and whole else None


def _share(samples: ServerSamples, names: Ratio, labels: Mapping[str, str] | None) -> float | None:
    """Increase of the first over that of both; None where nothing was counted."""
    part, rest = (samples.increase(name, labels) for name in names)
    return part / (part + rest) if part is not None and rest is not None and part + rest else None


def _mean(samples: ServerSamples, name: str, labels: Mapping[str, str] | None) -> float | None:
    """Mean of a gauge over series and scrapes."""
    values = [
        value
        for scrape in samples.scrapes
        for value in matching(scrape.samples.get(name, {}), labels).values()
    ]
    return sum(values) / len(values) if values else None
