"""What the hidden load of a tier amounts to in the mean: context, memory, time spent on its prompts. Pure."""

from mockserver import roofline, speculation
from mockserver.background import WANDER_LIMIT
from mockserver.tier_config import TierConfig


def mean_context_tokens(tier: TierConfig) -> float:
    """Mean context of a hidden sequence at a random instant: its prompt and half a length-biased output."""
    hidden = tier.hidden
    return hidden.prompt_tokens + 0.5 * hidden.output_tokens * (1.0 + hidden.output_variation_ratio**2)


def reserved_tokens(tier: TierConfig) -> float:
    """Mean KV that a hidden sequence met at a random instant reserves: its prompt and all of its output."""
    hidden = tier.hidden
    return hidden.prompt_tokens + hidden.output_tokens * (1.0 + hidden.output_variation_ratio**2)


def kv_need_tokens(tier: TierConfig) -> float:
    """Mean KV of a hidden sequence: reserved, or with ``when_kv_is_full = "preempt"`` only what it fills."""
    return reserved_tokens(tier) if tier.when_kv_is_full == "queue" else mean_context_tokens(tier)


def least_desired(tier: TierConfig) -> int:
    """Sequences that decode where the hidden load has wandered furthest below its target."""
    least = round(tier.target_batch * (1.0 - WANDER_LIMIT * tier.hidden.wander_ratio))
    return max(min(1, tier.target_batch), least)


def decode_step_s(
    law: roofline.Law, tier: TierConfig, batch: int, context_tokens: float, prefill_tokens: int = 0
) -> float:
    """Seconds of a step in which ``batch`` sequences decode, drafts included, and a prompt's chunk with them.

    With speculation, T = B·(g + 1) positions are computed, each of which attends to its sequence's context,
    and drafting takes g·draft_s on top.
    """
    step, context, pairs = roofline.step_function(law), round(context_tokens), 0.5 * prefill_tokens**2
    if tier.speculation is None:
        return step(batch, context, prefill_tokens, 0, pairs)
    drafts = tier.speculation.draft_tokens
    pairs += speculation.drafted_pairs(batch, context, drafts)
    draft_s = drafts * tier.speculation.draft_s
    return step(batch, context, batch * drafts + prefill_tokens, 0, pairs) + draft_s


def hidden_prefill_ratio(law: roofline.Law, tier: TierConfig) -> float:
    """Share of the time that prefilling hidden prompts takes, while the batch is at its target.

    Prefill of the prompts that replace finished sequences, over that and the decode steps they live for.
    """
    if not tier.target_batch:
        return 0.0
    batch = tier.target_batch
    context = batch * mean_context_tokens(tier)
    alone_s = decode_step_s(law, tier, batch, context)
    tokens = min(round(tier.hidden.prompt_tokens), tier.prefill_tokens)
    added_s = decode_step_s(law, tier, batch, context, tokens) - alone_s
    per_step_s = added_s * _prompt_tokens_per_step(tier) / tokens
    return per_step_s / (per_step_s + alone_s)


def chunk_use_ratio(tier: TierConfig) -> float:
    """Share of a step's room for prompts that hidden ones need, while the batch is at its target.

    Past 1 the batch cannot reach it. Where prompts pause decoding they have all the room they need: 0.
    """
    if not tier.target_batch or tier.prefill == "pause":
        return 0.0
    left = tier.step_budget_tokens - tier.target_batch * tier.checked_tokens
    return _prompt_tokens_per_step(tier) / min(tier.prefill_tokens, left)


def _prompt_tokens_per_step(tier: TierConfig) -> float:
    """Prompt tokens of those that come for the hidden sequences which end in a decode step, in the mean."""
    each = speculation.tokens_per_step(tier.speculation) if tier.speculation is not None else 1.0
    return tier.target_batch * each / tier.hidden.output_tokens * tier.hidden.prompt_tokens
