"""What types cannot refuse in a profile: names that lead nowhere, numbers that contradict each other. Pure.

``tier_check`` looks at one tier by itself, this at what tiers say of each other and of the server.
"""

from mockserver import hardware
from mockserver.hidden_load import least_desired
from mockserver.server_config import ServerConfig, engine_tier
from mockserver.tier_check import check_engine, check_limits
from mockserver.tier_config import TierConfig
from mockserver.wire_config import Fault
from tierscope.errors import BadInputError

# What a tier that shares another's engine leaves at its default: it is the owner's.
ENGINE_KEYS = (
    "max_batch", "target_batch", "batching", "batch_wait_s", "prefill", "prefill_tokens", "step_tokens",
    "kv_tokens", "when_kv_is_full", "hidden", "noise_ratio", "speculation", "prefix_cache", "replicas",
    "balancer", "deployment",
)  # fmt: skip


def check(config: ServerConfig, *, where: str) -> None:
    """Refuse what cannot be, in one line that names place, key, value and what is allowed."""
    hardware.check(config.deployment, where=f"{where}: deployment")
    _check_names(config, where=f"{where}: tiers")
    if config.default_output_tokens >= config.max_context_tokens:
        raise BadInputError(
            f"{where}: default_output_tokens: {config.default_output_tokens} is not allowed; expected less "
            f"than max_context_tokens ({config.max_context_tokens})"
        )
    for place, tier in enumerate(config.tiers):
        here = f"{where}: tiers[{place}]"
        _check_downgrade(config, tier, where=here)
        if tier.limits is not None:
            check_limits(config, tier.limits, where=f"{here}.limits")
        if tier.shares is not None:
            _check_shares(config, tier, tier.shares, where=here)
        else:
            check_engine(config, tier, where=here)
            _check_shared_cache(config, tier, where=f"{here}.prefix_cache")
        if tier.priority < 0:
            _check_low_priority(engine_tier(config, tier), tier, where=here)
    for place, fault in enumerate(config.faults):
        _check_fault(config, fault, where=f"{where}: faults[{place}]")


def _check_names(config: ServerConfig, *, where: str) -> None:
    """Each name, and each value that chooses a tier, may lead to one tier only (a model to several)."""
    _refuse_twice([tier.name for tier in config.tiers], where, "name")
    _refuse_twice([value for tier in config.tiers for value in tier.service_tiers], where, "service_tiers")
    _refuse_twice([value for tier in config.tiers for value in tier.speeds], where, "speeds")
    for place, tier in enumerate(config.tiers):
        _refuse_twice(list(tier.model_names), f"{where}[{place}]", "model_names")
        if config.model_name in tier.model_names:
            raise BadInputError(
                f"{where}[{place}].model_names: {config.model_name!r} is not allowed; it is the server's "
                "model_name and leads to every tier"
            )


def _check_shares(config: ServerConfig, tier: TierConfig, owner_name: str, *, where: str) -> None:
    owner = _other(config, tier, owner_name, where=f"{where}.shares")
    if owner.shares is not None:
        raise BadInputError(
            f"{where}.shares: {owner_name!r} is not allowed; that tier has no engine of its own but shares "
            f"{owner.shares!r}'s"
        )
    defaults = TierConfig(name=tier.name)
    for key in ENGINE_KEYS:
        if getattr(tier, key) != getattr(defaults, key):
            raise BadInputError(
                f"{where}.{key}: is not allowed beside shares; the engine is that of {owner_name!r}"
            )


def _check_low_priority(owner: TierConfig, tier: TierConfig, *, where: str) -> None:
    """Hidden load, of priority 0, must leave a place now and then for who comes after it."""
    if (least := least_desired(owner)) >= owner.max_batch:
        raise BadInputError(
            f"{where}.priority: {tier.priority} is not allowed; the hidden load goes first and takes at "
            f"least {least} of {owner.max_batch} places (max_batch): nobody else would ever be admitted"
        )


def _check_downgrade(config: ServerConfig, tier: TierConfig, *, where: str) -> None:
    over = tier.limits is not None and tier.limits.over == "downgrade"
    if tier.downgrade_to is None:
        if over or tier.downgrade_ratio:
            key = 'limits.over: "downgrade"' if over else f"downgrade_ratio: {tier.downgrade_ratio:g}"
            raise BadInputError(f"{where}.{key} is not allowed without downgrade_to")
        return
    _other(config, tier, tier.downgrade_to, where=f"{where}.downgrade_to")
    if not over and not tier.downgrade_ratio:
        raise BadInputError(
            f"{where}.downgrade_to: {tier.downgrade_to!r} has no effect; give downgrade_ratio, or limits "
            'with over = "downgrade"'
        )
    by_name = {each.name: each for each in config.tiers}
    way = [tier.name]
    while (target := by_name[way[-1]].downgrade_to) in by_name and target is not None:
        way.append(target)
        if target in way[:-1]:
            raise BadInputError(f"{where}.downgrade_to: leads in a circle: {' -> '.join(way)}")


def _check_shared_cache(config: ServerConfig, tier: TierConfig, *, where: str) -> None:
    """A cache that is shared has somebody to be shared with, and is one size for all."""
    cache = tier.prefix_cache
    if cache is None or not cache.shared:
        return
    if cache.tokens is None:
        if all(other.shares != tier.name for other in config.tiers):
            raise BadInputError(
                f"{where}.tokens: is missing; shared = true needs it, unless other tiers share the engine"
            )
        return
    for place, other in enumerate(config.tiers):
        theirs = other.prefix_cache
        if theirs is None or not theirs.shared or theirs.tokens is None:
            continue
        if (theirs.tokens, theirs.block_tokens) != (cache.tokens, cache.block_tokens):
            raise BadInputError(
                f"{where}: tokens {cache.tokens} and block_tokens {cache.block_tokens} are not allowed; the "
                f"cache is shared with tiers[{place}], which gives {theirs.tokens} and {theirs.block_tokens}"
            )


def _check_fault(config: ServerConfig, fault: Fault, *, where: str) -> None:
    names = [tier.name for tier in config.tiers]
    for name in fault.tiers:
        if name not in names:
            raise BadInputError(f"{where}.tiers: {name!r} is not a tier; tiers: {', '.join(names)}")
    if fault.until_s is not None and fault.until_s <= fault.from_s:
        raise BadInputError(
            f"{where}.until_s: {fault.until_s:g} is not allowed; expected more than from_s ({fault.from_s:g})"
        )


def _other(config: ServerConfig, tier: TierConfig, name: str, *, where: str) -> TierConfig:
    """The tier of this name, which must be there and another one."""
    others = {other.name: other for other in config.tiers if other.name != tier.name}
    if name not in others:
        said = "is the tier itself" if name == tier.name else "is not a tier"
        raise BadInputError(f"{where}: {name!r} {said}; other tiers: {', '.join(others) or 'none'}")
    return others[name]


def _refuse_twice(values: list[str], place: str, key: str) -> None:
    for number, value in enumerate(values):
        if value in values[:number]:
            raise BadInputError(f"{place}: {key}: {value!r} is there twice; each may appear once")
