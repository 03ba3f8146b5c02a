"""Names, kinds and meanings of all metrics, and which number of an engine each is. Pure.

``vllm:`` names are those of vLLM v1 (``vllm/v1/metrics/loggers.py``, 2026).
"""

from collections.abc import Callable, Mapping

from mockserver.engine_counts import EngineCounts
from mockserver.metrics_text import Family


def _kv_use_ratio(counts: EngineCounts) -> float:
    return counts.last.kv_tokens / counts.kv_capacity_tokens if counts.last else 0.0


def _gauge(name: str, text: str, of: Callable[[EngineCounts], float]) -> tuple[Family, Callable[..., float]]:
    return Family(name, "gauge", text), of


GAUGES = (
    _gauge("vllm:num_requests_running", "Sequences decoding or being prefilled, after the last step.",
           lambda counts: counts.last.running if counts.last else 0),
    _gauge("vllm:num_requests_waiting", "Sequences waiting for a slot or KV, after the last step.",
           lambda counts: counts.last.waiting if counts.last else 0),
    _gauge("vllm:kv_cache_usage_perc", "Share of KV memory held or reserved, 0 to 1.", _kv_use_ratio),
    _gauge("mockserver_batch", "Sequences that decoded in the last step: the true batch.",
           lambda counts: counts.last.decode_sequences if counts.last else 0),
    _gauge("mockserver_context_tokens", "Sum of their contexts.",
           lambda counts: counts.last.context_tokens if counts.last else 0),
    _gauge("mockserver_cached_kv_tokens", "KV beside that in use which the prefix cache keeps.",
           lambda counts: counts.last.cached_kv_tokens if counts.last else 0),
    _gauge("mockserver_kv_capacity_tokens", "KV that fits.", lambda counts: counts.kv_capacity_tokens),
)  # fmt: skip
COUNTERS = tuple(
    (Family(name, "counter", text), attribute)
    for name, text, attribute in (
        ("vllm:prompt_tokens_total", "Prompt tokens computed or found.", "found_or_computed_tokens"),
        ("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", "hit_tokens"),
        ("vllm:generation_tokens_total", "Tokens generated.", "generated_tokens"),
        ("vllm:num_preemptions_total", "Sequences thrown out of memory, to be recomputed.", "preemptions"),
        ("vllm:prefix_cache_queries_total", "Tokens looked for in the prefix cache.", "queried_tokens"),
        ("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", "hit_tokens"),
        ("vllm:spec_decode_num_drafts_total", "Drafts that were checked.", "drafts"),
        ("vllm:spec_decode_num_draft_tokens_total", "Tokens that were drafted.", "drafted_tokens"),
        ("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens accepted.", "accepted_tokens"),
    )
)
SPLIT_COUNTERS: tuple[tuple[Family, str, Callable[[EngineCounts], Mapping[str, int]]], ...] = (
    (
        Family("vllm:prompt_tokens_by_source_total", "counter", "Prompt tokens by where they came from."),
        "source",
        lambda counts: {"local_compute": counts.computed_tokens, "local_cache_hit": counts.hit_tokens},
    ),
    (
        Family("mockserver_steps_total", "counter", "Steps by what their duration came from."),
        "bound_by",
        lambda counts: counts.steps_by_bound,
    ),
)
HISTOGRAMS = tuple(
    (Family(name, "histogram", text), attribute)
    for name, text, attribute in (
        ("vllm:iteration_tokens_total", "Prompt tokens computed and tokens generated, per step.",
         "iteration_tokens"),
        ("vllm:time_to_first_token_seconds", "From submission to first token.", "ttft_s"),
        ("vllm:inter_token_latency_seconds", "From step to step of a decoding sequence.", "itl_s"),
        ("vllm:request_time_per_output_token_seconds", "Mean time per token after the first.", "tpot_s"),
        ("vllm:e2e_request_latency_seconds", "From submission to last token.", "e2e_s"),
        ("vllm:request_queue_time_seconds", "From submission to the first step on it.", "queue_s"),
        ("vllm:request_prefill_time_seconds", "From there to the first token.", "prefill_s"),
        ("vllm:request_decode_time_seconds", "From first to last token.", "decode_s"),
        ("vllm:request_inference_time_seconds", "From the first step on it to the last token.",
         "inference_s"),
        ("vllm:request_prompt_tokens", "Prompt tokens of a request.", "prompt_tokens"),
        ("vllm:request_generation_tokens", "Output tokens of a request.", "output_tokens"),
        ("mockserver_step_seconds", "True duration of steps.", "step_s"),
        ("mockserver_step_batch", "Sequences that decoded in a step.", "batch"),
        ("mockserver_lag_seconds", "How late steps that brought a client's token were handed out.", "lag_s"),
    )
)  # fmt: skip
ENDS = Family("vllm:request_success_total", "counter", "Answers to clients that ended.")
MAX_TOKENS = Family("vllm:request_params_max_tokens", "histogram", "Limit of output that requests set.")
CHOICES = Family("vllm:request_params_n", "histogram", "Answers that requests asked for.")
REFUSALS = Family("mockserver_refusals_total", "counter", "Requests refused, by status.")
DOWNGRADES = Family("mockserver_downgrades_total", "counter", "Requests served by another tier in silence.")
FAULTS = Family("mockserver_faults_total", "counter", "Requests struck by a fault, by kind.")
ENGINE_S = Family("mockserver_engine_seconds_total", "counter", "Time that computing steps took this host.")
LATE = Family("mockserver_late", "gauge", "1 while the host is too slow for the profile.")
