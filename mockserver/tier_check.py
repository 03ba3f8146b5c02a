"""Whether the engine and the limits of one tier can be: what fits, what ends, what can be admitted. Pure."""

from mockserver import hardware, hidden_load, roofline
from mockserver.server_config import ServerConfig, deployment_of
from mockserver.tier_config import RateLimits, TierConfig
from tierscope.errors import BadInputError

_LONGEST_STEP_S = 3600.0


def check_engine(config: ServerConfig, tier: TierConfig, *, where: str) -> None:
    """Refuse an engine whose numbers contradict each other or what the hardware holds."""
    if "hardware_files" in tier.deployment:
        raise BadInputError(
            f"{where}.deployment.hardware_files: is not allowed; [deployment] names them for all tiers"
        )
    deployment = deployment_of(config, tier, where=f"{where}.deployment")
    hardware.check(deployment, where=f"{where}.deployment")
    law = roofline.law(deployment)
    capacity = _kv_capacity(config, tier, law, where=where)
    if tier.target_batch > tier.max_batch:
        raise BadInputError(
            f"{where}.target_batch: {tier.target_batch} is not allowed; expected at most max_batch "
            f"({tier.max_batch})"
        )
    decoding = tier.max_batch * tier.checked_tokens
    if tier.step_budget_tokens <= decoding:
        drafts = f" times {tier.checked_tokens} with its draft" if tier.checked_tokens > 1 else ""
        raise BadInputError(
            f"{where}.step_tokens: {tier.step_tokens} is not allowed; expected more than {decoding}, "
            f"max_batch{drafts}, or prompts could wait forever"
        )
    if tier.batching == "continuous" and tier.batch_wait_s != TierConfig(name=tier.name).batch_wait_s:
        raise BadInputError(
            f'{where}.batch_wait_s: {tier.batch_wait_s:g} has no effect; it needs batching = "static"'
        )
    _check_cache(tier, capacity, where=f"{where}.prefix_cache")
    _check_step(config, tier, law, where=where)
    if tier.target_batch:
        _check_hidden(config, tier, law, capacity, where=where)


def check_limits(config: ServerConfig, limits: RateLimits, *, where: str) -> None:
    """Refuse limits that limit nothing, and buckets too small for any request that sets no limit itself."""
    needs = {
        "requests_per_min": (1, "one request"),
        "input_tokens_per_min": (1, "one token"),
        "output_tokens_per_min": (
            config.default_output_tokens,
            f"default_output_tokens ({config.default_output_tokens})",
        ),
    }
    given = {key: rate for key in needs if (rate := getattr(limits, key)) is not None}
    if not given:
        raise BadInputError(f"{where}: limits nothing; give one of {', '.join(needs)}")
    for key, rate in given.items():
        need, said = needs[key]
        full = rate * limits.burst_s / 60
        if full < need:
            raise BadInputError(
                f"{where}.{key}: {rate:g} is not allowed; a full bucket of burst_s ({limits.burst_s:g} s) "
                f"holds {full:.3g} and could never admit {said}"
            )


def _kv_capacity(config: ServerConfig, tier: TierConfig, law: roofline.Law, *, where: str) -> int:
    """KV tokens of the engine, which must hold one request of the longest kind."""
    room = roofline.kv_capacity_tokens(law)
    if tier.kv_tokens is not None and tier.kv_tokens > room:
        raise BadInputError(
            f"{where}.kv_tokens: {tier.kv_tokens} is not allowed; expected at most the {room} tokens that "
            "fit beside the weights"
        )
    capacity = tier.kv_tokens or room
    if config.max_context_tokens > capacity:
        raise BadInputError(
            f"{where}: max_context_tokens: {config.max_context_tokens} is not allowed; expected at most the "
            f"KV capacity of {capacity} tokens"
        )
    return capacity


def _check_cache(tier: TierConfig, capacity: int, *, where: str) -> None:
    cache = tier.prefix_cache
    if cache is None:
        return
    most = capacity if cache.tokens is None else cache.tokens
    if cache.block_tokens > most:
        raise BadInputError(
            f"{where}.block_tokens: {cache.block_tokens} is not allowed; expected at most the cache's {most}"
        )


def _check_step(config: ServerConfig, tier: TierConfig, law: roofline.Law, *, where: str) -> None:
    """A full step must end: a rate that is far too small makes it last for ages."""
    tokens = min(tier.prefill_tokens, config.max_context_tokens)
    try:
        longest_s = hidden_load.decode_step_s(law, tier, tier.max_batch, tier.max_batch, tokens)
    except OverflowError:
        longest_s = float("inf")
    if not longest_s <= _LONGEST_STEP_S:
        raise BadInputError(
            f"{where}.deployment: a full step would take {longest_s:.3g} s; expected at most "
            f"{_LONGEST_STEP_S:g} s: the chip is too slow for the model, or prefill_tokens too many"
        )


def _check_hidden(
    config: ServerConfig, tier: TierConfig, law: roofline.Law, capacity: int, *, where: str
) -> None:
    """The hidden batch must fit, and its prompts must be prefilled faster than they come."""
    hidden = tier.hidden
    longest = config.max_context_tokens // 2
    for key, mean in (("prompt_tokens", hidden.prompt_tokens), ("output_tokens", hidden.output_tokens)):
        if mean > longest:
            raise BadInputError(
                f"{where}.hidden.{key}: {mean:g} is not allowed; expected at most half of max_context_tokens "
                f"({longest})"
            )
    need = tier.target_batch * hidden_load.kv_need_tokens(tier)
    if need > capacity:
        raise BadInputError(
            f"{where}.target_batch: {tier.target_batch} is not allowed; its hidden load needs {need:.0f} "
            f"tokens of KV and there are {capacity}"
        )
    decoding = tier.target_batch * tier.checked_tokens
    load = hidden_load.hidden_prefill_ratio(law, tier)
    if load >= 0.9:
        raise BadInputError(
            f"{where}.hidden.prompt_tokens: {hidden.prompt_tokens:g} is not allowed; prefilling the hidden "
            f"prompts would take {load:.0%} of the time (allowed: 90%); shorten them or lengthen outputs"
        )
    use = hidden_load.chunk_use_ratio(tier)
    if use >= 0.9:
        key = "step_tokens" if tier.step_budget_tokens - decoding < tier.prefill_tokens else "prefill_tokens"
        raise BadInputError(
            f"{where}.{key}: {getattr(tier, key)} is not allowed; hidden prompts would take {use:.0%} of a "
            "step's room for prompts (allowed: 90%); raise it, shorten them or lengthen outputs"
        )
