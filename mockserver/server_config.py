"""A mock server as a file says it: its deployment, its tiers, how it speaks and misbehaves. Typed, pure."""

from typing import Annotated

import msgspec
from msgspec import Meta

from mockserver.hardware import Deployment
from mockserver.tier_config import ModelName, Name, Seconds, TierConfig, Tokens
from mockserver.wire_config import Fault, Wire
from tierscope import typedtoml


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole server. The first tier serves requests that name none."""

    name: Name
    deployment: Deployment
    tiers: Annotated[tuple[TierConfig, ...], Meta(min_length=1, max_length=16)]
    description: str = ""
    model_name: ModelName = "mock"
    """What requests must give as ``model``; with it they can reach every tier."""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    ingest_s: Seconds = 0.015
    """From a request's arrival until a step can see it; about 15 ms on API servers (2025)."""
    max_context_tokens: Tokens = 131_072
    """Prompt and output of one request together."""
    default_output_tokens: Tokens = 128
    """Output of a request that sets no limit, or less where the context has no more room."""
    max_body_bytes: Annotated[int, Meta(ge=1024, le=2**31)] = 64 * 2**20
    body_timeout_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    """A request that is not whole by then is refused (408); a connection that says nothing is closed."""
    wire: Wire = Wire()
    faults: Annotated[tuple[Fault, ...], Meta(max_length=64)] = ()


def engine_tier(config: ServerConfig, tier: TierConfig) -> TierConfig:
    """The tier whose engine serves this one: itself, or the one that it shares."""
    return next((owner for owner in config.tiers if owner.name == tier.shares), tier)


def smooths(config: ServerConfig, tier: TierConfig) -> bool:
    """Whether the engine that serves a tier hands the tokens of a step on one by one."""
    speculation = engine_tier(config, tier).speculation
    return speculation is not None and speculation.smoothed


def deployment_of(config: ServerConfig, tier: TierConfig, *, where: str = "") -> Deployment:
    """The deployment that serves a tier: the server's, with what the tier that has the engine overrides."""
    own = engine_tier(config, tier).deployment
    if not own:
        return config.deployment
    merged = {**msgspec.to_builtins(config.deployment), **own}
    return typedtoml.convert(merged, Deployment, where=where or f"tier {tier.name}: deployment")
