"""From a tier's configuration to the engine that plays it. Pure."""

from mockserver import roofline
from mockserver.background import Background, Lengths
from mockserver.engine import Engine, Limits
from mockserver.prefix_store import PrefixStore
from mockserver.roofline import Law
from mockserver.server_config import ServerConfig, deployment_of
from mockserver.tier_config import TierConfig


def engine(
    config: ServerConfig,
    tier: TierConfig,
    *,
    seed: int,
    start_ns: int = 0,
    prefix_store: PrefixStore | None = None,
    keep_tokens: bool = True,
) -> Engine:
    """The engine of one tier. Tiers of one seed are independent of each other: their names enter the seed.

    ``prefix_store`` is the one that tiers share whose prefix cache says so; see ``Engine`` for what comes of
    ``keep_tokens``.
    """
    law = roofline.law(deployment_of(config, tier))
    salt = f"{seed}/{tier.name}"
    return Engine(
        roofline.step_function(law),
        limits(tier, law),
        background=_background(config, tier, salt, start_ns),
        ingest_ns=round(config.ingest_s * 1e9),
        noise_ratio=tier.noise_ratio,
        seed=salt,
        start_ns=start_ns,
        speculation=tier.speculation,
        prefix_cache=tier.prefix_cache,
        prefix_store=prefix_store,
        keep_tokens=keep_tokens,
    )


def limits(tier: TierConfig, law: Law) -> Limits:
    """What bounds the steps of a tier."""
    return Limits(
        max_batch=tier.max_batch,
        step_tokens=tier.step_budget_tokens,
        prefill_tokens=tier.prefill_tokens,
        kv_tokens=tier.kv_tokens or roofline.kv_capacity_tokens(law),
        batching=tier.batching,
        batch_wait_ns=round(tier.batch_wait_s * 1e9),
        prefill=tier.prefill,
        when_kv_is_full=tier.when_kv_is_full,
    )


def _background(config: ServerConfig, tier: TierConfig, salt: str, start_ns: int) -> Background | None:
    if not tier.target_batch:
        return None
    hidden, longest = tier.hidden, config.max_context_tokens // 2
    return Background(
        target_batch=tier.target_batch,
        prompt=Lengths(hidden.prompt_tokens, hidden.prompt_variation_ratio, longest),
        output=Lengths(hidden.output_tokens, hidden.output_variation_ratio, longest),
        seed=salt,
        start_ns=start_ns,
        wander_ratio=hidden.wander_ratio,
        wander_s=hidden.wander_s,
    )
