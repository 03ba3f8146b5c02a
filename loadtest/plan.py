"""The plan of a run: what to ask, of which tiers, when, and when to stop. Typed, read from TOML, pure.

A plan is complete: together with a target and a seed it determines every request and every open-loop
instant. Rules for whoever edits this file:

1. Every number carries its unit in its name and its bound in its type.
2. A plan holds no secret; keys come from the environment when the run starts.
3. What cannot be checked by a type is checked in ``check`` and refused in one line.
"""

import math
from collections.abc import Sequence
from datetime import date, time
from importlib import resources
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from loadtest import headers
from tierscope import typedtoml
from tierscope.errors import BadInputError

Api = Literal["openai", "anthropic"]
_SHIPPED = resources.files("loadtest") / "plans"

Count = Annotated[int, Meta(ge=1, le=100_000_000)]
Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]
Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]
NonNegativeSeconds = Annotated[float, Meta(ge=0, le=1_000_000)]
PerSecond = Annotated[float, Meta(ge=1e-6, le=1_000_000)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]  # $ would let a newline follow


class Closed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="closed", tag_field="kind"
):
    """Closed loop: ``streams`` users, each sends its next request ``think_s`` after the last one ended."""

    streams: Annotated[int, Meta(ge=1, le=100_000)]
    think_s: NonNegativeSeconds = 0.0


class Poisson(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="poisson", tag_field="kind"
):
    """Open loop: exponential gaps with mean 1 / ``rate_per_s``, whatever the server does."""

    rate_per_s: PerSecond


class Constant(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="constant", tag_field="kind"
):
    """Open loop: one request each 1 / ``rate_per_s`` seconds."""

    rate_per_s: PerSecond


Arrivals = Closed | Poisson | Constant


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stretch of a run under one arrival process; stages run one after the other.

    It ends after ``requests`` requests have been sent or ``duration_s`` has passed, whichever comes first;
    at least one of the two is given. Streams in flight then run to their end within ``Timeouts.total_s``.
    """

    name: Name
    arrivals: Arrivals
    requests: Count | None = None
    duration_s: Seconds | None = None
    warmup: bool = False
    """Recorded, and left out of every statistic."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each request asks.

    ``prompt_tokens`` lists the exact prompt-length classes; each gets an equal share of the requests of each
    tier, in an order randomised per tier (docs/inference.md says why). Prompts are fresh: no two share a
    prefix, so no cache is hit by accident.
    """

    prompt_tokens: Annotated[tuple[Tokens, ...], Meta(min_length=1, max_length=64)]
    output_tokens: Tokens
    ignore_eos: bool = True
    """Ask servers that know the field (vLLM, SGLang, llama.cpp, mock) for exactly ``output_tokens``."""
    tokens_per_word: Annotated[float, Meta(ge=0.1, le=100)] = 1.0
    """How many of the server's tokens one of our prompt words costs; the mock's is 1 by construction."""


class Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm of a comparison: a name of ours and what to add to a request so that it is served there."""

    name: Name
    body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    model: str | None = None
    """Overrides the target's model, for providers that sell a tier under a model name of its own."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on one request; each that strikes gives outcome ``timeout`` with its own detail."""

    connect_s: Seconds = 10.0
    first_byte_s: Seconds = 120.0
    idle_s: Seconds = 60.0
    total_s: Seconds = 600.0


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The client's network as ``tierscope simulate`` models it; a real run ignores it."""

    latency_s: NonNegativeSeconds = 0.0002
    """One way, server to client and client to server each."""
    jitter_s: NonNegativeSeconds = 0.00005
    """Mean of an exponential delay added to each delivery, order kept."""


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run. ``seed`` determines prompts, class order, tier order and open-loop instants."""

    name: Name
    stages: Annotated[tuple[Stage, ...], Meta(min_length=1, max_length=1000)]
    workload: Workload
    description: str = ""
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    tiers: Annotated[tuple[Tier, ...], Meta(min_length=1, max_length=16)] = (Tier(name="standard"),)
    timeouts: Timeouts = Timeouts()
    network: Network = Network()


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom a run speaks to. ``url`` is scheme://host[:port][/prefix], never with credentials."""

    url: str
    model: str
    api: Api = "openai"


def load(name_or_path: str, *, seed: int | None = None) -> Plan:
    """Read a shipped plan by its name (``ab``) or any other from a TOML file; ``seed`` overrides the file's.

    Raises BadInputError, in one line, if there is no such plan or it is not a valid one.
    """
    where, text = typedtoml.find(name_or_path, what="plan", shipped=_SHIPPED)
    plan = typedtoml.parse(text, Plan, where=where)
    check(plan, where=where)
    return plan if seed is None else reseed(plan, seed)


def reseed(plan: Plan, seed: int) -> Plan:
    """Return the same plan under another seed."""
    return msgspec.structs.replace(plan, seed=seed)


def shipped() -> list[str]:
    """Names of the plans that come with tierscope, sorted."""
    return typedtoml.names_in(_SHIPPED)


def check(plan: Plan, *, where: str) -> None:
    """Refuse what types cannot: stages that never end, names used twice, tiers that cannot be sent."""
    for place, stage in enumerate(plan.stages):
        if stage.requests is None and stage.duration_s is None:
            raise BadInputError(f"{where}: stages[{place}]: never ends; give it requests or duration_s")
    _refuse_twice([stage.name for stage in plan.stages], "stages", where)
    _refuse_twice([tier.name for tier in plan.tiers], "tiers", where)
    for place, tier in enumerate(plan.tiers):
        headers.check(tier.headers, where=f"{where}: tiers[{place}].headers")
        _check_json(tier.body, where=f"{where}: tiers[{place}].body")
    _refuse_twice([str(tokens) for tokens in plan.workload.prompt_tokens], "workload.prompt_tokens", where)


def _check_json(value: Any, *, where: str) -> None:
    """Refuse what TOML can say and JSON cannot: dates, and numbers that are none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_json(inner, where=f"{where}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _check_json(inner, where=f"{where}[{place}]")
    elif isinstance(value, date | time) or (isinstance(value, float) and not math.isfinite(value)):
        raise BadInputError(f"{where}: {value} is not allowed; expected what JSON can say")


def _refuse_twice(names: Sequence[str], key: str, where: str) -> None:
    for place, name in enumerate(names):
        if name in names[:place]:
            raise BadInputError(f"{where}: {key}[{place}]: {name!r} is there twice; each may appear once")
