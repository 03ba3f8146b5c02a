"""The law of a step: how long one forward pass takes, from hardware or from four fitted numbers. Pure.

One step serves the whole batch. Symbols, per step:

    B   sequences decoding, each gets one token          S   Σ of their contexts, tokens
    n   prompt tokens prefilled                          T   = B + n
    c   Σ of tokens cached before each prefilled chunk   P   Σ (n_i·c_i + n_i²/2), query-key pairs of chunks

    memory_s  = (W_dense + W_experts·D(T)/E + κ·(S + c)) / (chips · bandwidth · MBU)
    compute_s = (2·N_active·T + 4·L·H_q·d·(S + P)) / (chips · peak · MFU)
    step_s    = (memory_s^p + compute_s^p)^(1/p) + L·(2·all_reduce + layer) + step + B·sequence + T·link

D(T) = E·(1 − (1 − k/E)^T) is the number of distinct experts that T tokens touch under uniform routing.
With latent attention (DeepSeek) 4·H_q·d stands for 2·H_q·(2·latent + rope), the absorbed form that engines
decode in. In prefill they expand the latent, which costs less per pair, so that long prompts come out slow
here: 190 ms instead of 121 for 16,384 tokens of DeepSeek-V3 under the shipped profiles.
Everything takes floats or numpy arrays. The engine uses ``step_function``: the same law, scalars, no lookups.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mockserver import hardware
from mockserver.hardware import Deployment

Floats = TypeVar("Floats", float, NDArray[np.float64])

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
    expert_weight_bytes: float
    """All routed experts together; 0 for a dense model."""
    experts: int
    experts_per_token: int
    kv_bytes_per_token: float
    """Of layers that see the whole context; replicas counted (latent KV lies on every chip)."""
    window_kv_bytes_per_token: float
    window_tokens: int
    flops_per_token: float
    attention_flops_per_pair: float
    window_attention_flops_per_pair: float
    fixed_s: float
    """Launch and synchronisation, the same in every step."""
    sequence_s: float
    """Per decoding sequence."""
    link_s_per_token: float
    """Moving one token's activations between the chips, all layers."""
    kv_room_bytes: float
    """Memory left for KV, replicas counted as in ``kv_bytes_per_token``."""


def law(deployment: Deployment) -> Law:
    """Boil a deployment down to the coefficients of its law."""
    chip, model = hardware.chip_of(deployment), hardware.model_of(deployment)
    tp, full_layers = deployment.chips, model.layers - model.window_layers
    weights, experts = hardware.weight_bytes(deployment), model.expert_parameters * deployment.weight_bits / 8
    width = model.latent_dim + model.rope_dim if model.latent_dim else 2 * model.kv_heads * model.head_dim
    replicas = tp if model.latent_dim else max(1.0, tp / model.kv_heads)
    kv_bytes_per_layer = width * deployment.kv_bits / 8 * replicas
    attended = 2 * model.latent_dim + model.rope_dim if model.latent_dim else 2 * model.head_dim
    flops_per_pair = 2.0 * model.query_heads * attended
    room = tp * (chip.hbm_bytes * deployment.memory_use_ratio - deployment.activation_bytes) - weights
    return Law(
        memory_bytes_per_s=tp * chip.memory_bytes_per_s * deployment.mbu_ratio,
        flops_per_s=tp * hardware.peak_flops_per_s(deployment) * deployment.mfu_ratio,
        overlap_exponent=deployment.overlap_exponent,
        dense_weight_bytes=weights - experts,
        expert_weight_bytes=experts,
        experts=model.experts,
        experts_per_token=model.experts_per_token,
        kv_bytes_per_token=full_layers * kv_bytes_per_layer,
        window_kv_bytes_per_token=model.window_layers * kv_bytes_per_layer,
        window_tokens=model.window_tokens,
        flops_per_token=2.0 * model.active_parameters,
        attention_flops_per_pair=full_layers * flops_per_pair,
        window_attention_flops_per_pair=model.window_layers * flops_per_pair,
        fixed_s=deployment.step_overhead_s
        + model.layers * (deployment.layer_overhead_s + (2 * deployment.all_reduce_s if tp > 1 else 0.0)),
        sequence_s=deployment.sequence_overhead_s,
        link_s_per_token=_link_s_per_token(deployment, model.layers, model.hidden),
        kv_room_bytes=room,
    )


def _link_s_per_token(deployment: Deployment, layers: int, hidden: int) -> float:
    """Ring all-reduce, twice a layer: 2·(tp − 1)/tp of the 16-bit activations cross each link."""
    link, tp = hardware.link_bytes_per_s(deployment), deployment.chips
    if tp == 1 or link is None:
        return 0.0
    return layers * 2 * 2 * (tp - 1) / tp * hidden * 2 / link


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
    minimum: Any = (
        min if np.ndim(batch) == np.ndim(context_tokens) == np.ndim(prefill_tokens) == 0 else np.minimum
    )
    tokens = batch + prefill_tokens
    read = context_tokens + prefill_cached_tokens
    pairs = context_tokens + prefill_pairs
    moved = law.dense_weight_bytes + law.kv_bytes_per_token * read
    flops = law.flops_per_token * tokens + law.attention_flops_per_pair * pairs
    if law.experts:
        moved = moved + law.expert_weight_bytes * touched_experts(law, tokens) / law.experts
    if law.window_tokens:
        reach = law.window_tokens
        seen = minimum(context_tokens, batch * reach)
        moved = moved + law.window_kv_bytes_per_token * (seen + minimum(prefill_cached_tokens, reach))
        near = minimum(prefill_pairs, prefill_tokens * reach)
        flops = flops + law.window_attention_flops_per_pair * (seen + near)
    p = law.overlap_exponent
    busy = ((moved / law.memory_bytes_per_s) ** p + (flops / law.flops_per_s) ** p) ** (1.0 / p)
    seconds: Floats = busy + law.fixed_s + law.sequence_s * batch + law.link_s_per_token * tokens
    return seconds


def step_function(law: Law) -> StepFunction:
    """Return ``step_s`` as a scalar function with everything bound, for loops that call it once a step."""
    weights_s = law.dense_weight_bytes / law.memory_bytes_per_s
    experts_s = law.expert_weight_bytes / law.memory_bytes_per_s
    missed = 1.0 - law.experts_per_token / law.experts if law.experts else 0.0
    kv_s, window_kv_s = (
        law.kv_bytes_per_token / law.memory_bytes_per_s,
        law.window_kv_bytes_per_token / law.memory_bytes_per_s,
    )
    token_s, pair_s, window_pair_s = (
        law.flops_per_token / law.flops_per_s,
        law.attention_flops_per_pair / law.flops_per_s,
        law.window_attention_flops_per_pair / law.flops_per_s,
    )
    p, inverse_p, reach = law.overlap_exponent, 1.0 / law.overlap_exponent, law.window_tokens
    fixed_s, sequence_s, link_s = law.fixed_s, law.sequence_s, law.link_s_per_token

    def step(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
        tokens = batch + prefill
        memory = weights_s + kv_s * (context + cached)
        compute = token_s * tokens + pair_s * (context + pairs)
        if experts_s:
            memory += experts_s * (1.0 - missed**tokens)
        if reach:
            seen = min(context, batch * reach)
            memory += window_kv_s * (seen + min(cached, reach))
            compute += window_pair_s * (seen + min(pairs, prefill * reach))
        busy: float = (memory**p + compute**p) ** inverse_p
        return busy + fixed_s + sequence_s * batch + link_s * tokens

    return step


def touched_experts(law: Law, tokens: Floats) -> Floats:
    """Distinct experts that ``tokens`` tokens touch, D(T) = E·(1 − (1 − k/E)^T): 8 for one, 256 for many."""
    if not law.experts:
        return tokens * 0.0
    touched: Floats = law.experts * (1.0 - (1.0 - law.experts_per_token / law.experts) ** tokens)
    return touched


def reduced_step_s(
    batch: Floats,
    context_tokens: Floats,
    prefill_tokens: Floats | float = 0.0,
    *,
    floor_s: float,
    kv_s: float,
    seq_s: float,
    overhead_s: float = 0.0,
    compute_s: float = 0.0,
) -> Floats:
    """Seconds a step takes by the reduced law, max(floor + kv·S + seq·B, overhead + compute·T).

    Its coefficients can be seen from outside; weights and overhead do not fight each other for the floor.
    """
    memory = floor_s + kv_s * context_tokens + seq_s * batch
    compute = overhead_s + compute_s * (batch + prefill_tokens)
    seconds: Floats = max(memory, compute) if np.ndim(memory) == 0 else np.maximum(memory, compute)
    return seconds


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
    return weights_s * law.flops_per_s / law.flops_per_token


def prefill_s(law: Law, prompt_tokens: int, chunk_tokens: int) -> float:
    """Seconds to prefill one prompt alone, in chunks of ``chunk_tokens``: the sum of its steps."""
    step, total = step_function(law), 0.0
    for cached in range(0, prompt_tokens, chunk_tokens):
        chunk = min(chunk_tokens, prompt_tokens - cached)
        total += step(0, 0, chunk, cached, chunk * (cached + chunk / 2))
    return total
