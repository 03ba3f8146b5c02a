"""A mock server as a file: its deployment, its tiers, its hidden load. Typed, read from TOML, pure.

Every impossible number is refused in one line when the file is read, so that nothing downstream has to ask.
"""

from importlib import resources
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mockserver import hardware, roofline
from mockserver.hardware import Deployment
from tierscope import typedtoml
from tierscope.errors import BadInputError

_LONGEST_STEP_S = 3600.0
_SHIPPED = resources.files("mockserver") / "profiles"

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]  # $ would let a newline follow
TierName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,32}\Z")]


class HiddenLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The other users of a tier: lognormal lengths, and how far the batch wanders about its target."""

    prompt_tokens: Annotated[float, Meta(ge=1, le=1_000_000)] = 1000.0
    """Mean length of a hidden prompt."""
    prompt_variation_ratio: Annotated[float, Meta(ge=0, le=3)] = 0.8
    """Standard deviation over mean."""
    output_tokens: Annotated[float, Meta(ge=2, le=1_000_000)] = 500.0
    output_variation_ratio: Annotated[float, Meta(ge=0, le=3)] = 0.8
    wander_ratio: Annotated[float, Meta(ge=0, le=0.3)] = 0.03
    """Standard deviation of the slow modulation of the batch, over its target."""
    wander_s: Annotated[float, Meta(ge=0.1, le=3600)] = 5.0
    """Correlation time of the modulation."""


class TierConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tier: which requests it serves, how large its batch is, and what differs in its deployment."""

    name: Name
    service_tiers: Annotated[tuple[TierName, ...], Meta(min_length=1, max_length=16)]
    """Values of a request's ``service_tier`` that are served here; the first is what a response repeats."""
    max_batch: Count
    target_batch: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Sequences decoding in a step around which hidden load keeps the tier; 0: nobody but the client."""
    prefill_tokens: Tokens = 8192
    """Prompt tokens in one step at most."""
    step_tokens: Tokens | None = None
    """Token budget of a step, decoding included; by default prefill_tokens + max_batch, so that decoding
    never eats into a prompt's chunk."""
    hidden: HiddenLoad = HiddenLoad()
    noise_ratio: Annotated[float, Meta(ge=0, le=0.5)] = 0.01
    """Standard deviation of a step's duration over the law's."""
    deployment: dict[str, Any] = {}
    """Keys of ``[deployment]`` that differ in this tier."""

    @property
    def step_budget_tokens(self) -> int:
        """``step_tokens``, or its default."""
        return self.step_tokens or self.prefill_tokens + self.max_batch


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
