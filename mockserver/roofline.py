"""The law of a step: how long one forward pass takes, from hardware and from the shape of the model. Pure.

One step serves the whole batch. Symbols, per step:

    B   sequences decoding, each gets one token          S   Σ of their contexts, tokens
    n   prompt tokens prefilled                          T   = B + n
    c   Σ of tokens cached before each prefilled chunk   P   Σ (n_i·c_i + n_i²/2), query-key pairs of chunks

    memory_s  = (W_dense + W_experts·D(T)/E + κ·(S + c)) / (chips · bandwidth · MBU)
    compute_s = (2·N_active·T + a_decode·S + a_prefill·P + x·c) / (chips · peak · MFU)
    step_s    = (memory_s^p + compute_s^p)^(1/p) + L·(2·all_reduce + layer) + step + B·sequence + T·link

D(T) = E·(1 − (1 − k/E)^T) is the number of distinct experts that T tokens touch under uniform routing.
a = 2·L·H_q·(d_key + d_value) FLOPs a query-key pair, and x = 0. With latent attention (DeepSeek) decode works
on the latent as it is stored, a_decode = 2·L·H_q·(2·latent + rope); prefill expands it to heads first, which
is cheaper by the pair, and x is what expanding the latents of earlier chunks costs.

Parallelism. ``chips`` share every matrix. Attention weights lie (and are read) once in each of the
``attention_data_parallel`` groups, and latent KV has copies only within a group. With ``expert_parallel``
groups a step waits for the group that most experts are touched in. With q pipeline stages q micro-batches of
B/q sequences are under way at once: one step of all of them takes what one of them takes through all layers,
and the pipeline is kept full.

Everything takes floats or numpy arrays. The engine uses ``step_function``: the same law, scalars, no lookups.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mockserver import hardware
from mockserver.hardware import Deployment

Floats = TypeVar("Floats", float, NDArray[np.float64])
Bound = Literal["memory", "compute", "overhead"]

StepFunction = Callable[[int, int, int, int, float], float]
"""(batch, context_tokens, prefill_tokens, prefill_cached_tokens, prefill_pairs) → seconds."""


@dataclass(frozen=True, slots=True)
class Law:
    """A deployment boiled down to the coefficients of the formula above; all of the whole scale-up domain."""

    memory_bytes_per_s: float
    """chips · bandwidth · MBU."""
    flops_per_s: float
    """chips · peak · MFU."""
    overlap_exponent: float
    dense_weight_bytes: float
    """Copies of attention weights included."""
    expert_weight_bytes: float
    """All routed experts together; 0 for a dense model."""
    experts: int
    experts_per_token: int
    expert_imbalance: float
    """z²·groups/E, 0 without expert parallelism: see ``touched_expert_ratio``."""
    kv_bytes_per_token: float
    """Of layers that see the whole context; replicas counted (latent KV lies on every chip of a group)."""
    window_kv_bytes_per_token: float
    window_tokens: int
    flops_per_token: float
    attention_flops_per_pair: float
    """In decode, as the next one."""
    window_attention_flops_per_pair: float
    prefill_flops_per_pair: float
    window_prefill_flops_per_pair: float
    expansion_flops_per_token: float
    """Per token that lies in the cache before a prefilled chunk."""
    fixed_s: float
    """Launch and synchronisation, the same in every step."""
    sequence_s: float
    """Per decoding sequence."""
    link_s_per_token: float
    """Moving one token's activations between the chips, all layers."""
    pipeline_stages: int
    kv_room_bytes: float
    """Memory left for KV, replicas counted as in ``kv_bytes_per_token``."""
    chips: int
    """Of all pipeline stages: what is paid for."""


def law(deployment: Deployment) -> Law:
    """Boil a deployment down to the coefficients of its law."""
    chip, model = hardware.chip_of(deployment), hardware.model_of(deployment)
    tp, full_layers = deployment.chips, model.layers - model.window_layers
    group = tp // deployment.attention_data_parallel
    replicas = group if model.latent_dim else max(1.0, group / model.kv_heads)
    kv_bytes_per_layer = model.kv_width * deployment.kv_bits / 8 * replicas
    groups = deployment.expert_parallel
    return Law(
        memory_bytes_per_s=tp * chip.memory_bytes_per_s * deployment.mbu_ratio,
        flops_per_s=tp * hardware.peak_flops_per_s(deployment) * deployment.mfu_ratio,
        overlap_exponent=deployment.overlap_exponent,
        dense_weight_bytes=hardware.dense_bytes(deployment),
        expert_weight_bytes=hardware.expert_bytes(deployment),
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        expert_imbalance=_largest_of(groups) ** 2 * groups / model.experts if groups > 1 else 0.0,
        kv_bytes_per_token=full_layers * kv_bytes_per_layer,
        window_kv_bytes_per_token=model.window_layers * kv_bytes_per_layer,
        window_tokens=model.window_tokens,
        flops_per_token=2.0 * model.active_parameters,
        attention_flops_per_pair=full_layers * model.decode_flops_per_pair,
        window_attention_flops_per_pair=model.window_layers * model.decode_flops_per_pair,
        prefill_flops_per_pair=full_layers * model.prefill_flops_per_pair,
        window_prefill_flops_per_pair=model.window_layers * model.prefill_flops_per_pair,
        expansion_flops_per_token=model.layers * model.expansion_flops_per_token,
        fixed_s=_fixed_s(deployment, model.layers),
        sequence_s=deployment.sequence_overhead_s,
        link_s_per_token=_link_s_per_token(deployment, model.layers, model.hidden),
        pipeline_stages=deployment.pipeline_stages,
        kv_room_bytes=hardware.usable_bytes(deployment) - hardware.weight_bytes(deployment),
        chips=deployment.all_chips,
    )


def _largest_of(count: int) -> float:
    """Expected maximum of so many standard normal variables (Blom's approximation, 1958)."""
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


def _fixed_s(deployment: Deployment, layers: int) -> float:
    """Launches of all layers, two all-reduces in each, and a hop to each further pipeline stage."""
    reduces = 2 * layers if deployment.chips > 1 else 0
    hops = deployment.pipeline_stages - 1
    return (
        deployment.step_overhead_s
        + layers * deployment.layer_overhead_s
        + (reduces + hops) * deployment.all_reduce_s
    )


def _link_s_per_token(deployment: Deployment, layers: int, hidden: int) -> float:
    """Ring all-reduce, twice a layer: 2·(tp − 1)/tp of the 16-bit activations cross each link.

    Attention in g data-parallel groups reduces within each group, and only its own tokens.
    """
    link, tp = hardware.link_bytes_per_s(deployment), deployment.chips
    if link is None:
        return 0.0
    groups = deployment.attention_data_parallel
    reduced = 2 * (tp - 1) / tp + 2 * (tp / groups - 1) / (tp / groups) / groups
    return (layers * reduced + deployment.pipeline_stages - 1) * hidden * 2 / link


class Parts(NamedTuple):
    """What a step consists of, in seconds: memory and compute overlap, overhead comes on top."""

    memory_s: Any
    compute_s: Any
    overhead_s: Any


def parts(
    law: Law,
    batch: Floats,
    context_tokens: Floats,
    prefill_tokens: Floats | float = 0.0,
    prefill_cached_tokens: Floats | float = 0.0,
    prefill_pairs: Floats | float = 0.0,
) -> Parts:
    """Seconds of reading, of computing and of everything else in one step; arguments as ``step_s``."""
    minimum, maximum = _extremes(batch, context_tokens, prefill_tokens)
    batch, context, cached, pairs = batch * 1.0, context_tokens * 1.0, prefill_cached_tokens, prefill_pairs
    if law.pipeline_stages > 1:
        share = 1.0 / law.pipeline_stages
        decoding = maximum(share, 1.0 / maximum(batch, 1.0))  # no fewer than one sequence in a micro-batch
        batch, context = batch * decoding, context * decoding
        prefill_tokens, pairs = prefill_tokens * share, pairs * share
    tokens = batch + prefill_tokens
    moved = law.dense_weight_bytes + law.kv_bytes_per_token * (context + cached)
    flops = law.flops_per_token * tokens + law.attention_flops_per_pair * context
    flops = flops + law.prefill_flops_per_pair * pairs + law.expansion_flops_per_token * cached
    if law.experts:
        moved = moved + law.expert_weight_bytes * touched_expert_ratio(law, tokens)
    if law.window_tokens:
        reach = law.window_tokens
        seen = minimum(context, batch * reach)
        moved = moved + law.window_kv_bytes_per_token * (seen + minimum(cached, reach))
        near = minimum(pairs, prefill_tokens * reach)
        flops = flops + law.window_attention_flops_per_pair * seen + law.window_prefill_flops_per_pair * near
    overhead_s = law.fixed_s + law.sequence_s * batch + law.link_s_per_token * tokens
    return Parts(moved / law.memory_bytes_per_s, flops / law.flops_per_s, overhead_s)


def _extremes(*values: Any) -> tuple[Any, Any]:
    """The functions min and max, for floats or for arrays."""
    if all(np.ndim(value) == 0 for value in values):
        return min, max
    return np.minimum, np.maximum


def step_s(
    law: Law,
    batch: Floats,
    context_tokens: Floats,
    prefill_tokens: Floats | float = 0.0,
    prefill_cached_tokens: Floats | float = 0.0,
    prefill_pairs: Floats | float = 0.0,
) -> Floats:
    """Seconds that one step takes, by the law above; floats or arrays that broadcast together.

    ``context_tokens`` is the sum over the batch, not the mean. In layers with an attention window the sum of
    min(context, window) is taken as min(S, B·window): exact when all contexts lie on the same side of it.
    """
    memory_s, compute_s, overhead_s = parts(
        law, batch, context_tokens, prefill_tokens, prefill_cached_tokens, prefill_pairs
    )
    p = law.overlap_exponent
    seconds: Floats = (memory_s**p + compute_s**p) ** (1.0 / p) + overhead_s
    return seconds


def bound_by(
    law: Law,
    batch: int,
    context_tokens: int,
    prefill_tokens: int = 0,
    prefill_cached_tokens: int = 0,
    prefill_pairs: float = 0.0,
) -> Bound:
    """Which of reading, computing and everything else takes the most of a step."""
    told = parts(
        law,
        float(batch),
        float(context_tokens),
        float(prefill_tokens),
        float(prefill_cached_tokens),
        prefill_pairs,
    )
    if told.overhead_s > max(told.memory_s, told.compute_s):
        return "overhead"
    return "memory" if told.memory_s >= told.compute_s else "compute"


def step_function(law: Law) -> StepFunction:
    """Return ``step_s`` as a scalar function with everything bound, for loops that call it once a step."""
    rate, flops = law.memory_bytes_per_s, law.flops_per_s
    weights_s, experts_s = law.dense_weight_bytes / rate, law.expert_weight_bytes / rate
    missed = 1.0 - law.experts_per_token / law.experts if law.experts else 0.0
    kv_s, window_kv_s = law.kv_bytes_per_token / rate, law.window_kv_bytes_per_token / rate
    token_s, cached_s = law.flops_per_token / flops, law.expansion_flops_per_token / flops
    pair_s, chunk_pair_s = law.attention_flops_per_pair / flops, law.prefill_flops_per_pair / flops
    window_pair_s = law.window_attention_flops_per_pair / flops
    window_chunk_pair_s = law.window_prefill_flops_per_pair / flops
    p, inverse_p, reach = law.overlap_exponent, 1.0 / law.overlap_exponent, law.window_tokens
    fixed_s, sequence_s, link_s = law.fixed_s, law.sequence_s, law.link_s_per_token
    imbalance = law.expert_imbalance

    def step(batch: float, context: float, prefill: float, cached: float, pairs: float) -> float:
        tokens = batch + prefill
        memory = weights_s + kv_s * (context + cached)
        compute = token_s * tokens + pair_s * context + chunk_pair_s * pairs + cached_s * cached
        if experts_s:
            touched = 1.0 - missed**tokens
            if imbalance:
                touched = min(1.0, touched + (imbalance * touched * (1.0 - touched)) ** 0.5)
            memory += experts_s * touched
        if reach:
            seen = min(context, batch * reach)
            memory += window_kv_s * (seen + min(cached, reach))
            compute += window_pair_s * seen + window_chunk_pair_s * min(pairs, prefill * reach)
        busy: float = (memory**p + compute**p) ** inverse_p
        return busy + fixed_s + sequence_s * batch + link_s * tokens

    if law.pipeline_stages == 1:
        return step
    share = 1.0 / law.pipeline_stages

    def staged(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
        decoding = max(share, 1.0 / max(batch, 1))
        return step(batch * decoding, context * decoding, prefill * share, cached, pairs * share)

    return staged


def touched_experts(law: Law, tokens: Floats) -> Floats:
    """Distinct experts that ``tokens`` tokens touch, D(T) = E·(1 − (1 − k/E)^T): 8 for one, 256 for many."""
    if not law.experts:
        return tokens * 0.0
    touched: Floats = law.experts * (1.0 - (1.0 - law.experts_per_token / law.experts) ** tokens)
    return touched


def touched_expert_ratio(law: Law, tokens: Floats) -> Floats:
    """Share of its experts that a group of chips reads in a step, in the group that reads most of them.

    Of E/g experts in each of g groups μ = D(T)/g are touched in the mean; the fullest group has about
    μ + z·√(μ·(1 − μ·g/E)), with z the expected maximum of g standard normal variables.
    """
    ratio: Any = touched_experts(law, tokens) / law.experts
    if law.expert_imbalance:
        minimum, _ = _extremes(ratio)
        ratio = minimum(1.0, ratio + (law.expert_imbalance * ratio * (1.0 - ratio)) ** 0.5)
    fullest: Floats = ratio
    return fullest


def floor_s(law: Law) -> float:
    """Seconds of the shortest step: one sequence without context, all weights it needs read once."""
    return step_s(law, 1.0, 0.0)


def kv_capacity_tokens(law: Law) -> int:
    """Tokens of KV that fit beside the weights.

    Layers with a window keep no more than ``window_tokens`` a sequence; that part is left out.
    """
    return int(law.kv_room_bytes / law.kv_bytes_per_token)


def best_batch(law: Law) -> float:
    """Batch at which reading all weights takes as long as computing: past it a token gets no cheaper.

    The classic (F/BW)·(bytes per weight/2)·(N/N_active), with the achieved rates instead of the peaks.
    """
    weights_s = (law.dense_weight_bytes + law.expert_weight_bytes) / law.memory_bytes_per_s
    return law.pipeline_stages * weights_s * law.flops_per_s / law.flops_per_token


def prefill_s(law: Law, prompt_tokens: int, chunk_tokens: int) -> float:
    """Seconds to prefill one prompt alone, in chunks of ``chunk_tokens``: the sum of its steps."""
    step, total = step_function(law), 0.0
    for cached in range(0, prompt_tokens, chunk_tokens):
        chunk = min(chunk_tokens, prompt_tokens - cached)
        total += step(0, 0, chunk, cached, chunk * (cached + chunk / 2))
    return total
