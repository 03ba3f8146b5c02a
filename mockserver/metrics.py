"""What the mock exposes to Prometheus: vLLM's own names and buckets, and the truth behind them.

Counted per tier for all sequences, hidden ones included, as a real server counts all its users. Histograms
are filled a step at a time: a step that brings B tokens is B observations of one value.
"""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from mockserver.engine import StepDone

# vLLM v1's bucket bounds (2026).
_TTFT_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
           40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
_ITL_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
          80.0)  # fmt: skip
_E2E_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
          480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
_ITERATION_TOKENS = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
# Ours: steps from 0.5 ms to 2 s and lags from 10 µs to 10 s, eight bounds to a doubling or one.
_STEP_S = tuple(0.0005 * 2 ** (k / 8) for k in range(97))
_LAG_S = tuple(1e-5 * 2**k for k in range(21))


class _Histogram:
    """Counts between bounds; ``le`` is inclusive, as Prometheus has it."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, and the sum."""
        total, told = 0, []
        for bound, count in zip((*map(repr, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            told.append((bound, float(total)))
        return told, self._sum


class _Tier:
    """Everything counted for one tier."""

    def __init__(self, kv_capacity_tokens: int) -> None:
        self.kv_capacity_tokens = kv_capacity_tokens
        self.last: StepDone | None = None
        self.generated_tokens = self.prompt_tokens = 0
        self.iteration_tokens = _Histogram(_ITERATION_TOKENS)
        self.ttft_s, self.itl_s, self.e2e_s = _Histogram(_TTFT_S), _Histogram(_ITL_S), _Histogram(_E2E_S)
        self.step_s, self.lag_s = _Histogram(_STEP_S), _Histogram(_LAG_S)

    def gauges(self) -> tuple[int, int, float, int]:
        """Running, waiting, share of KV in use, decoding in the last step."""
        last = self.last
        if last is None:
            return 0, 0, 0.0, 0
        return last.running, last.waiting, last.kv_tokens / self.kv_capacity_tokens, last.decode_sequences


class ServerMetrics(Collector):
    """Collects steps of all tiers; a Prometheus registry reads it."""

    def __init__(self, model_name: str, kv_capacity_tokens: dict[str, int]) -> None:
        self._model_name = model_name
        self._tiers = {name: _Tier(capacity) for name, capacity in kv_capacity_tokens.items()}
        self._outcomes = {
            (name, outcome): 0 for name in self._tiers for outcome in ("length", "stop", "abort")
        }

    def on_step(self, tier_name: str, step: StepDone, lag_ns: int) -> None:
        """Count one step."""
        tier = self._tiers[tier_name]
        seconds = (step.ended_ns - step.started_ns) / 1e9
        tier.last = step
        tier.generated_tokens += step.generated_tokens
        tier.prompt_tokens += step.prefill_tokens
        tier.iteration_tokens.add(step.decode_sequences + step.prefill_tokens)
        tier.step_s.add(seconds)
        if step.decode_sequences:
            tier.itl_s.add(seconds, step.decode_sequences)
        for waited_ns in step.ttft_ns:
            tier.ttft_s.add(waited_ns / 1e9)
        for took_ns in step.e2e_ns:
            tier.e2e_s.add(took_ns / 1e9)
        if step.emitted:
            tier.lag_s.add(lag_ns / 1e9)

    def on_end(self, tier_name: str, reason: str) -> None:
        """Count one request of a client that ended: length, stop or abort."""
        self._outcomes[tier_name, reason] += 1

    def collect(self) -> Iterator[Metric]:
        """All metric families, for a registry."""
        yield from self._gauges()
        yield from self._counters()
        for name, text, attribute in _HISTOGRAMS:
            family = HistogramMetricFamily(name, text, labels=["model_name", "tier"])
            for tier_name, tier in self._tiers.items():
                buckets, total = getattr(tier, attribute).buckets()
                family.add_metric([self._model_name, tier_name], buckets=buckets, sum_value=total)
            yield family

    def _gauges(self) -> Iterator[Metric]:
        families = [GaugeMetricFamily(name, text, labels=["model_name", "tier"]) for name, text in _GAUGES]
        for tier_name, tier in self._tiers.items():
            for family, value in zip(families, tier.gauges(), strict=True):
                family.add_metric([self._model_name, tier_name], value)
        yield from families

    def _counters(self) -> Iterator[Metric]:
        labels = ["model_name", "tier"]
        generated = CounterMetricFamily("vllm:generation_tokens", "Tokens generated.", labels=labels)
        prompt = CounterMetricFamily("vllm:prompt_tokens", "Prompt tokens prefilled.", labels=labels)
        for tier_name, tier in self._tiers.items():
            generated.add_metric([self._model_name, tier_name], tier.generated_tokens)
            prompt.add_metric([self._model_name, tier_name], tier.prompt_tokens)
        yield from (generated, prompt)
        ended = CounterMetricFamily(
            "vllm:request_success", "Requests of clients that ended.", labels=[*labels, "finished_reason"]
        )
        for (tier_name, reason), count in self._outcomes.items():
            ended.add_metric([self._model_name, tier_name, reason], count)
        yield ended


_GAUGES = (
    ("vllm:num_requests_running", "Sequences decoding or being prefilled, after the last step."),
    ("vllm:num_requests_waiting", "Sequences waiting for a slot or KV, after the last step."),
    ("vllm:kv_cache_usage_perc", "Share of the KV cache that is reserved, 0 to 1."),
    ("mockserver_batch", "True batch: sequences that decoded in the last step."),
)
_HISTOGRAMS = (
    ("vllm:iteration_tokens_total", "Tokens per step, decoding and prompt.", "iteration_tokens"),
    ("vllm:time_to_first_token_seconds", "From submission to first token.", "ttft_s"),
    ("vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", "itl_s"),
    ("vllm:e2e_request_latency_seconds", "From submission to last token.", "e2e_s"),
    ("mockserver_step_seconds", "True duration of steps.", "step_s"),
    ("mockserver_lag_seconds", "How late steps that brought a client's token were handed out.", "lag_s"),
)
