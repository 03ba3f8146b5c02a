"""The plan of a run: what to ask, of which tiers, when, and when to stop. Typed, read from TOML, pure.

A plan is complete: together with a target and a seed it determines every request and every open-loop
instant. Rules for whoever edits this file:

1. Every number carries its unit in its name and its bound in its type.
2. A plan holds no secret; keys come from the environment when the run starts.
3. What cannot be checked by a type is checked in ``check`` and refused in one line.
"""

import math
from collections.abc import Iterator, Sequence
from datetime import date, time
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from loadtest import endpoint, headers, plan_workload
from loadtest.plan_arrivals import Arrivals, Burst, Closed, Constant, Gamma, Poisson, Ramp, TraceTimes
from loadtest.plan_control import ENDS, Control
from loadtest.plan_workload import Workload
from loadtest.quantities import Count, Name, NonNegativeSeconds, Seconds
from tierscope import typedtoml
from tierscope.errors import BadInputError

__all__ = [
    "CALIBRATION",
    "Api",
    "Arrivals",
    "Burst",
    "Closed",
    "Constant",
    "Control",
    "Gamma",
    "Network",
    "Plan",
    "Poisson",
    "Ramp",
    "Stage",
    "Target",
    "Tier",
    "Timeouts",
    "TraceTimes",
    "Workload",
    "check",
    "check_model",
    "ending",
    "folder_of",
    "load",
    "parse",
    "reseed",
    "shipped",
]  # fmt: skip

Api = Literal["openai", "completions", "responses", "anthropic"]
_WORKLOADS = {
    "messages": "workload.prompt_tokens, prompts or trace",
    "prompt": "workload.prompt_tokens, prompts or trace",
    "input": "workload.prompt_tokens, prompts or trace",
    "stream": "workload.stream",
}
_SHIPPED = resources.files("loadtest") / "plans"
CALIBRATION = "calibration"
"""The stage of requests that a run sends to measure how words become tokens."""


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One stretch of a run under one arrival process; stages run one after the other.

    It ends after ``requests`` requests have been sent or ``duration_s`` has passed, whichever comes first;
    at least one of the two is given, or the arrivals end by themselves (a trace). Streams in flight then run
    to their end within ``Timeouts.total_s``.
    """

    name: Name
    arrivals: Arrivals
    requests: Count | None = None
    duration_s: Seconds | None = None
    warmup: bool = False
    """Recorded, and left out of every statistic."""
    levels: Annotated[tuple[Annotated[float, Meta(gt=0, le=1_000_000)], ...], Meta(max_length=100)] = ()
    """Shorthand for a sweep: the stage is run once for each level, as ``NAME-1`` and so on, with the level as
    ``streams`` or ``rate_per_s``, and ``requests`` per stream (closed loops) or in all (open ones). ``load``
    writes them out, so a loaded plan has none."""


class Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One arm of a comparison: a name of ours and what to add to a request so that it is served there."""

    name: Name
    body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    model: str | None = None
    """Overrides the target's model, for providers that sell a tier under a model name of its own."""
    url: str | None = None
    """Overrides the target's URL, for providers that sell a tier at an address of its own."""


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
    control: Control = Control()
    network: Network = Network()


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom a run speaks to. ``url`` is scheme://host[:port][/prefix], never with credentials."""

    url: str
    model: str
    api: Api = "openai"


def load(name_or_path: str, *, seed: int | None = None) -> Plan:
    """Read a shipped plan by its name (``ab``) or any other from a TOML file; ``seed`` overrides the file's.

    Raises BadInputError, in one line, if there is no such plan or it is not a valid one. Files that a plan
    names are looked for when its workload is opened (``workload.open_source``), not here.
    """
    where, text = typedtoml.find(name_or_path, what="plan", shipped=_SHIPPED)
    plan = parse(text, where=where)
    return plan if seed is None else reseed(plan, seed)


def parse(text: str, *, where: str) -> Plan:
    """Read a plan from TOML text, levels written out, and check it; ``where`` names it in errors."""
    plan = typedtoml.parse(text, Plan, where=where)
    plan = msgspec.structs.replace(plan, stages=tuple(_written_out(plan.stages, where)))
    # Levels lengthen names and multiply requests and stages, and what run.json will hold must be readable.
    typedtoml.convert(msgspec.to_builtins(plan), Plan, where=f"{where}: with its levels written out")
    check(plan, where=where)
    return plan


def _written_out(stages: Sequence[Stage], where: str) -> Iterator[Stage]:
    """Each stage as it is, or one stage for each of its levels."""
    for place, stage in enumerate(stages):
        for number, level in enumerate(stage.levels, start=1):
            yield _at_level(stage, number, level, where=f"{where}: stages[{place}]")
        if not stage.levels:
            yield stage


def _at_level(stage: Stage, number: int, level: float, *, where: str) -> Stage:
    arrivals, requests = stage.arrivals, stage.requests
    if isinstance(arrivals, Closed):
        if level != int(level) or level > 100_000:
            raise BadInputError(
                f"{where}.levels: {level:g} is not allowed; expected a whole number of streams up to 100000"
            )
        arrivals = msgspec.structs.replace(arrivals, streams=int(level))
        requests = None if requests is None else requests * int(level)
    elif isinstance(arrivals, Poisson | Constant | Gamma):
        arrivals = msgspec.structs.replace(arrivals, rate_per_s=level)
    else:
        raise BadInputError(
            f"{where}.levels: has no meaning for these arrivals; expected closed, poisson, constant or gamma"
        )
    return msgspec.structs.replace(
        stage, name=f"{stage.name}-{number}", arrivals=arrivals, requests=requests, levels=()
    )


def reseed(plan: Plan, seed: int) -> Plan:
    """Return the same plan under another seed."""
    return msgspec.structs.replace(plan, seed=seed)


def ending(plan: Plan, until: str) -> Plan:
    """Return the same plan with another end, ``stages`` or ``verdict``.

    Raises BadInputError for any other, and where the plan cannot end so.
    """
    known = next((end for end in ENDS if end == until), None)
    if known is None:
        raise BadInputError(f"--until: {until!r} is not allowed; expected {' or '.join(ENDS)}")
    ended = msgspec.structs.replace(plan, control=msgspec.structs.replace(plan.control, until=known))
    _check_end(ended, where=f"--until {until}: plan {plan.name}")
    return ended


def folder_of(name_or_path: str) -> Path:
    """The folder from which files that a plan names are found: that of its own file."""
    path = Path(name_or_path)
    return path.parent if path.suffix == ".toml" or typedtoml.is_file(path) else Path()


def shipped() -> list[str]:
    """Names of the plans that come with tierscope, sorted."""
    return typedtoml.names_in(_SHIPPED)


def check(plan: Plan, *, where: str) -> None:
    """Refuse what types cannot: stages that never end, names used twice, tiers that cannot be sent."""
    for place, stage in enumerate(plan.stages):
        if stage.name == CALIBRATION:
            raise BadInputError(
                f"{where}: stages[{place}].name: {stage.name!r} is kept for what a run adds itself"
            )
        endless = stage.requests is None and stage.duration_s is None
        if endless and not isinstance(stage.arrivals, TraceTimes):
            raise BadInputError(f"{where}: stages[{place}]: never ends; give it requests or duration_s")
        if isinstance(stage.arrivals, TraceTimes) and plan.workload.trace is None:
            raise BadInputError(f"{where}: stages[{place}].arrivals: trace needs a workload.trace to play")
    _refuse_twice([stage.name for stage in plan.stages], "stages", where)
    _refuse_twice([tier.name for tier in plan.tiers], "tiers", where)
    for place, tier in enumerate(plan.tiers):
        headers.check(tier.headers, where=f"{where}: tiers[{place}].headers")
        if tier.url is not None:
            _check_url(tier.url, where=f"{where}: tiers[{place}]")
        _check_body(tier.body, where=f"{where}: tiers[{place}].body")
    _refuse_twice([str(tokens) for tokens in plan.workload.classes], "workload.prompt_tokens", where)
    plan_workload.check(plan.workload, [tier.name for tier in plan.tiers], where=f"{where}: workload")
    _check_end(plan, where=f"{where}: control.until")


def _check_end(plan: Plan, *, where: str) -> None:
    """Refuse to end at a verdict that cannot be reached, or at looks that cannot be planned."""
    if plan.control.until != "verdict":
        return
    if len(plan.tiers) < 2:
        raise BadInputError(f"{where}: verdict needs two tiers to compare, and there is one")
    measured = [stage for stage in plan.stages if not stage.warmup]
    if not measured:
        raise BadInputError(f"{where}: verdict needs a stage that is measured, and all are warm-up")
    for stage in measured:
        if stage.requests is None:
            raise BadInputError(
                f"{where}: verdict needs requests in each measured stage, because looks are shares of them; "
                f"stage {stage.name} has none"
            )


def check_model(model: str) -> None:
    """Refuse a model's name that no server can have; raises BadInputError."""
    if not model.isprintable():  # neither is what the command line holds that is not UTF-8
        raise BadInputError(f"--model: {model!r} is not allowed; expected a name without control characters")


def _check_url(url: str, *, where: str) -> None:
    try:
        endpoint.parse(url, "")
    except BadInputError as error:
        raise BadInputError(f"{where}.{error}") from error


def _check_body(body: dict[str, Any], *, where: str) -> None:
    """Refuse fields that the workload decides, for then records would say what was not asked."""
    for key, instead in _WORKLOADS.items():
        if key in body:
            raise BadInputError(f"{where}.{key}: is not a tier's to say; expected {instead}")
    _check_json(body, where=where)


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
