"""What tokens cost to make, and what public speeds and prices say of batches. Pure.

Costs are chip-seconds: what they are worth in dollars depends on the day. Everything is the law of
``roofline`` at a steady batch; margins, idle hours and everything that is not a chip are left out.
"""

import math
from typing import NamedTuple

from mockserver import hardware, roofline, speculation
from mockserver.hardware import Deployment
from mockserver.roofline import Law


class CostParts(NamedTuple):
    """Chip-seconds of one output token by what they go to: shares of the step, which add up to it."""

    weights: float
    """Reading weights: as 1/batch."""
    kv: float
    """Reading KV: the same for every batch. No waiting makes it cheaper."""
    compute: float
    """The same for every batch."""
    overhead: float
    """Launches and all-reduces: as 1/batch, and the part of every sequence and token."""

    @property
    def total(self) -> float:
        """Chip-seconds of one output token."""
        return sum(self)


def output_cost(law: Law, batch: float, context_tokens: float) -> float:
    """Chip-seconds of one output token, chips·step/batch; ``context_tokens`` is the mean of a sequence."""
    return law.chips * roofline.step_s(law, batch, batch * context_tokens) / batch


def output_cost_parts(law: Law, batch: float, context_tokens: float, *, drafts: int = 0) -> CostParts:
    """``output_cost`` taken apart.

    Where reading and computing overlap, the time of the two is shared out as each of them counts in the law's
    p-norm: the shorter one is nearly free. With ``drafts`` each sequence has so many further positions
    checked, and the costs are those of all that its step brings.
    """
    context, checked = batch * context_tokens, batch * drafts
    pairs = speculation.drafted_pairs(batch, context, drafts)
    memory_s, compute_s, overhead_s = roofline.parts(law, batch, context, checked, 0.0, pairs)
    p = law.overlap_exponent
    busy_s = (memory_s**p + compute_s**p) ** (1 / p)
    reading_s = busy_s * memory_s**p / (memory_s**p + compute_s**p)
    no_kv_s = roofline.parts(law, batch, 0.0, checked).memory_s
    per_token = law.chips / batch
    return CostParts(
        weights=per_token * reading_s * no_kv_s / memory_s,
        kv=per_token * reading_s * (1 - no_kv_s / memory_s),
        compute=per_token * (busy_s - reading_s),
        overhead=per_token * overhead_s,
    )


def input_cost(law: Law, prompt_tokens: int, chunk_tokens: int) -> float:
    """Chip-seconds of one prompt token, prefilled alone in chunks of ``chunk_tokens``."""
    return law.chips * roofline.prefill_s(law, prompt_tokens, chunk_tokens) / prompt_tokens


def largest_batch(law: Law, context_tokens: float) -> float:
    """Sequences of that context whose KV fits; those of layers with a window hold no more than the window."""
    window = law.window_kv_bytes_per_token * min(context_tokens, law.window_tokens)
    return law.kv_room_bytes / (law.kv_bytes_per_token * context_tokens + window)


def textbook_best_batch(deployment: Deployment) -> float:
    """(F/BW)·(bytes per weight/2)·(N/N_active) at the data sheet's peaks: ≈ 300 × sparsity on an H100."""
    chip, model = hardware.chip_of(deployment), hardware.model_of(deployment)
    flops_per_byte = hardware.peak_flops_per_s(deployment) / chip.memory_bytes_per_s
    return flops_per_byte * hardware.weight_bytes(deployment) / (2 * model.active_parameters)


def context_where_kv_reads_like_weights(law: Law, batch: float) -> float:
    """Mean context at which reading KV takes as long as reading the weights of a step; tokens."""
    weights = law.dense_weight_bytes
    if law.experts:
        weights += law.expert_weight_bytes * roofline.touched_expert_ratio(law, batch)
    return _context_of(weights / batch, law.kv_bytes_per_token, law.window_kv_bytes_per_token, law)


def context_where_kv_reads_like_compute(law: Law) -> float:
    """Mean context at which reading a sequence's KV takes as long as computing its token.

    Longer ones are bound by memory in a batch of any size; inf where attention itself computes for longer
    than it reads. Solves (κ·c)/bandwidth = (f + a·c)/flops for c, layers with a window apart.
    """
    per_flop = law.memory_bytes_per_s / law.flops_per_s
    return _context_of(
        law.flops_per_token * per_flop,
        law.kv_bytes_per_token - law.attention_flops_per_pair * per_flop,
        law.window_kv_bytes_per_token - law.window_attention_flops_per_pair * per_flop,
        law,
    )


def _context_of(bytes_: float, full: float, window: float, law: Law) -> float:
    """The c that solves full·c + window·min(c, W) = bytes; inf without one."""
    if full + window > 0:
        inside = bytes_ / (full + window)
        if inside <= law.window_tokens or not law.window_tokens:
            return inside
    if full <= 0:
        return math.inf
    return max(float(law.window_tokens), (bytes_ - window * law.window_tokens) / full)


class TwoTiers(NamedTuple):
    """What public speeds and prices of two tiers of one server say about it."""

    batch_ratio: float
    """Batch of the slow tier over that of the fast one."""
    fast_share_ratio: float
    """Part of the fast tier's step that grows with the batch, over the part that does not: β·B_f/α."""


def two_tiers_from_prices(speed_ratio: float, price_ratio: float) -> TwoTiers:
    """Batches from public ratios, with step = α + β·B: S = (α+βB_s)/(α+βB_f), C = (B_s/B_f)/S.

    ``speed_ratio`` S and ``price_ratio`` C are those of the fast tier over the slow one, C > 1. S = 2.5 and
    C = 6: a batch 15 times as large, and 0.12; C = 2: 5, and 0.6.
    """
    batch_ratio = speed_ratio * price_ratio
    return TwoTiers(batch_ratio, (speed_ratio - 1) / (batch_ratio - speed_ratio))
