"""A mock server as a file: its deployment, its tiers, its hidden load. Typed, read from TOML, pure.

Every impossible number is refused in one line when the file is read, so that nothing downstream has to ask.
"""

from importlib import resources
from typing import Annotated

import msgspec
from msgspec import Meta

from mockserver import hardware, roofline
from mockserver.hardware import Deployment
from mockserver.tier_config import HiddenLoad, Name, Seconds, TierConfig, Tokens
from mockserver.wire_config import Fault, Wire
from tierscope import typedtoml
from tierscope.errors import BadInputError

_LONGEST_STEP_S = 3600.0
__all__ = ["HiddenLoad", "ServerConfig", "TierConfig", "load", "shipped"]

_SHIPPED = resources.files("mockserver") / "profiles"


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole server. The first tier serves requests that name none."""

    name: Name
    deployment: Deployment
    tiers: Annotated[tuple[TierConfig, ...], Meta(min_length=1, max_length=16)]
    description: str = ""
    model_name: Annotated[str, Meta(min_length=1, max_length=200)] = "mock"
    """What requests must give as ``model``."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    ingest_s: Seconds = 0.015
    """From a request's arrival until a step can see it; about 15 ms on API servers (2025)."""
    max_context_tokens: Tokens = 131_072
    """Prompt and output of one request together."""
    default_output_tokens: Tokens = 128
    """Output of a request that sets no limit."""
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**31)] = 64 * 2**20
    body_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """A request that is not whole by then is refused (408); a connection that says nothing is closed."""
    wire: Wire = Wire()
    faults: Annotated[tuple[Fault, ...], Meta(max_length=64)] = ()


def load(name_or_path: str, *, seed: int | None = None) -> ServerConfig:
    """Read a shipped profile by its name (``fast-tier``) or any other from a TOML file.

    ``seed`` overrides the file's. Raises BadInputError, in one line, if there is none or it is not valid.
    """
    where, text = typedtoml.find(name_or_path, what="profile", shipped=_SHIPPED)
    config = typedtoml.parse(text, ServerConfig, where=where)
    check(config, where=where)
    return config if seed is None else msgspec.structs.replace(config, seed=seed)


def shipped() -> list[str]:
    """Names of the profiles that come with tierscope, sorted."""
    return typedtoml.names_in(_SHIPPED)


def deployment_of(config: ServerConfig, tier: TierConfig, *, where: str = "") -> Deployment:
    """The deployment that serves a tier: the server's, with what the tier overrides."""
    if not tier.deployment:
        return config.deployment
    merged = {**msgspec.to_builtins(config.deployment), **tier.deployment}
    return typedtoml.convert(merged, Deployment, where=where or f"tier {tier.name}: deployment")


def tier_for(config: ServerConfig, service_tier: str | None) -> TierConfig | None:
    """The tier that serves a request with this ``service_tier``; None for a value that no tier serves.

    None and ``auto`` are the first tier's, unless a tier lists ``auto``.
    """
    for tier in config.tiers:
        if service_tier in tier.service_tiers:
            return tier
    return config.tiers[0] if service_tier in (None, "auto") else None


def check(config: ServerConfig, *, where: str) -> None:
    """Refuse what types cannot: names used twice, a batch or context that does not fit, overload."""
    hardware.check(config.deployment, where=f"{where}: deployment")
    _refuse_twice([tier.name for tier in config.tiers], f"{where}: tiers", "name")
    values = [value for tier in config.tiers for value in tier.service_tiers]
    _refuse_twice(values, f"{where}: tiers", "service_tiers")
    if config.default_output_tokens >= config.max_context_tokens:
        raise BadInputError(
            f"{where}: default_output_tokens: {config.default_output_tokens} is not allowed; expected less "
            f"than max_context_tokens ({config.max_context_tokens})"
        )
    for place, tier in enumerate(config.tiers):
        _check_tier(config, tier, where=f"{where}: tiers[{place}]")


def _check_tier(config: ServerConfig, tier: TierConfig, *, where: str) -> None:
    deployment = deployment_of(config, tier, where=f"{where}.deployment")
    hardware.check(deployment, where=f"{where}.deployment")
    law = roofline.law(deployment)
    capacity = roofline.kv_capacity_tokens(law)
    if config.max_context_tokens > capacity:
        raise BadInputError(
            f"{where}: max_context_tokens: {config.max_context_tokens} is not allowed; expected at most the "
            f"KV capacity of {capacity} tokens"
        )
    if tier.target_batch > tier.max_batch:
        raise BadInputError(
            f"{where}.target_batch: {tier.target_batch} is not allowed; expected at most max_batch "
            f"({tier.max_batch})"
        )
    if tier.step_budget_tokens <= tier.max_batch:
        raise BadInputError(
            f"{where}.step_tokens: {tier.step_tokens} is not allowed; expected more than max_batch "
            f"({tier.max_batch}), or prompts could wait forever"
        )
    _check_step(config, tier, law, where=where)
    if tier.target_batch:
        _check_hidden(config, tier, law, capacity, where=where)


def _check_step(config: ServerConfig, tier: TierConfig, law: roofline.Law, *, where: str) -> None:
    """A full step must end: a rate that is far too small makes it last for ages."""
    tokens = min(tier.prefill_tokens, config.max_context_tokens)
    step = roofline.step_function(law)
    try:
        longest_s = step(tier.max_batch, tier.max_batch, tokens, 0, 0.5 * tokens * tokens)
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
    need = tier.target_batch * reserved_tokens(tier)
    if need > capacity:
        raise BadInputError(
            f"{where}.target_batch: {tier.target_batch} is not allowed; its hidden load needs {need:.0f} "
            f"tokens of KV and there are {capacity}"
        )
    load = hidden_prefill_ratio(law, tier)
    if load >= 0.9:
        raise BadInputError(
            f"{where}.hidden.prompt_tokens: {hidden.prompt_tokens:g} is not allowed; prefilling the hidden "
            f"prompts would take {load:.0%} of the time (allowed: 90%); shorten them or lengthen outputs"
        )


def mean_context_tokens(tier: TierConfig) -> float:
    """Mean context of a hidden sequence at a random instant: its prompt and half a length-biased output."""
    hidden = tier.hidden
    return hidden.prompt_tokens + 0.5 * hidden.output_tokens * (1.0 + hidden.output_variation_ratio**2)


def reserved_tokens(tier: TierConfig) -> float:
    """Mean KV that a hidden sequence met at a random instant reserves: its prompt and all of its output."""
    hidden = tier.hidden
    return hidden.prompt_tokens + hidden.output_tokens * (1.0 + hidden.output_variation_ratio**2)


def hidden_prefill_ratio(law: roofline.Law, tier: TierConfig) -> float:
    """Share of the time that prefilling hidden prompts takes, while the batch is at its target.

    Prefill of the prompts that replace finished sequences, over that and the decode steps they live for.
    """
    if not tier.target_batch:
        return 0.0
    hidden, batch = tier.hidden, tier.target_batch
    context = round(batch * mean_context_tokens(tier))
    step = roofline.step_function(law)
    alone_s = step(batch, context, 0, 0, 0.0)
    tokens = min(round(hidden.prompt_tokens), tier.prefill_tokens)
    added_s = (
        (step(batch, context, tokens, 0, 0.5 * tokens * tokens) - alone_s) * hidden.prompt_tokens / tokens
    )
    per_step_s = batch / hidden.output_tokens * added_s
    return per_step_s / (per_step_s + alone_s)


def _refuse_twice(values: list[str], place: str, key: str) -> None:
    for number, value in enumerate(values):
        if value in values[:number]:
            raise BadInputError(f"{place}: {key}: {value!r} is there twice; each may appear once")
