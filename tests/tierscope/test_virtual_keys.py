"""Every key of a profile changes what a simulated run says, or is known to be of bytes and sockets alone."""

from typing import Any, get_args

import msgspec
import pytest

from loadtest import plan as plans
from mockserver.config import ServerConfig, TierConfig
from mockserver.hardware import Deployment
from mockserver.tier_config import HiddenLoad, PrefixCache, RateLimits, Speculation
from mockserver.wire_config import Fault, FaultKind, Wire
from tierscope.simulate import simulate

PLAN = """
name = "keys"
[network]
jitter_s = 0.0
[workload]
prompt_tokens = [300]
output_tokens = 24
tokens_per_word = 1.0
sessions = { turns = 2, turn_tokens = 40 }
[[tiers]]
name = "standard"
body = { service_tier = "default" }
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[stages]]
name = "s"
requests = 24
arrivals = { kind = "closed", streams = 6 }
"""
SPEEDS = PLAN.replace('{ service_tier = "priority" }', '{ speed = "fast" }')
NAMED = PLAN.replace('{ service_tier = "priority" }', '{}\nmodel = "other"')
STANDARD, FAST = (
    TierConfig(name="standard", service_tiers=("default",)),
    TierConfig(name="fast", service_tiers=("priority",), max_batch=4),
)
PLAIN = ServerConfig(
    name="keys",
    deployment=Deployment(chip="H100", model="Llama-3.1-8B"),
    tiers=(STANDARD, FAST),
    wire=Wire(running_usage=True),
    faults=(Fault(kind="cut", every=9, after_tokens=0),),
)


def changed(before: ServerConfig, after: ServerConfig, plan: str = PLAN) -> bool:
    """Whether a run against one server says anything else than one against the other."""
    loaded = plans.parse(plan, where="plan")
    one, other = (list(simulate(loaded, config)) for config in (before, after))
    assert len(one) > 6
    return one != other


def with_tier(place: int, keys: dict[str, Any]) -> ServerConfig:
    tiers = list(PLAIN.tiers)
    tiers[place] = msgspec.structs.replace(tiers[place], **keys)
    return msgspec.structs.replace(PLAIN, tiers=tuple(tiers))


STATIC = {"batching": "static", "batch_wait_s": 0.05}
FULL = {"kv_tokens": 640}
SPECULATION, CACHE = Speculation(), PrefixCache(tokens=10_000)
HIDDEN = {"target_batch": 8, "hidden": HiddenLoad(prompt_tokens=200, output_tokens=30, wander_s=0.1)}
FEW = RateLimits(requests_per_min=6, burst_s=30)
DOWN = {"downgrade_to": "fast"}
# Key → what the tier has already, and the change; those that need a second tier or another plan below.
TIER_KEYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "name": ({}, {"name": "another"}),  # seeds have it
    "service_tiers": ({}, {"service_tiers": ("flex",)}),
    "max_batch": ({}, {"max_batch": 1}),
    "target_batch": ({}, {"target_batch": 8}),
    "batching": ({"max_batch": 2}, {"batching": "static"}),
    "batch_wait_s": (STATIC, {"batch_wait_s": 0.2}),
    "prefill": ({}, {"prefill": "pause"}),
    "prefill_tokens": ({}, {"prefill_tokens": 100}),
    "step_tokens": ({}, {"step_tokens": 100}),
    "kv_tokens": ({}, FULL),
    "when_kv_is_full": (FULL, {"when_kv_is_full": "preempt"}),
    "hidden": (HIDDEN, {"hidden": HiddenLoad()}),
    "noise_ratio": ({}, {"noise_ratio": 0.1}),
    "speculation": ({}, {"speculation": SPECULATION}),
    "prefix_cache": ({}, {"prefix_cache": PrefixCache()}),
    "replicas": ({}, {"replicas": 2}),
    "balancer": ({"replicas": 3}, {"balancer": "random"}),
    "deployment": ({}, {"deployment": {"kv_bits": 8}}),
    "limits": ({}, {"limits": FEW}),
    "downgrade_to": ({"downgrade_ratio": 1.0}, DOWN),
    "downgrade_ratio": (DOWN, {"downgrade_ratio": 1.0}),
    "echo": ({}, {"echo": "absent"}),
}
SECOND_TIER_KEYS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "speeds": ({"speeds": ("fast",)}, {"speeds": ()}, SPEEDS),
    "model_names": ({"model_names": ("other",)}, {"model_names": ()}, NAMED),
    "shares": ({}, {"shares": "standard"}, PLAN),
    "priority": ({"shares": "standard"}, {"priority": 5}, PLAN),
}
# Part of a tier → what the tier has already, and another value of each of its keys.
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "hidden": (
        HIDDEN,
        {
            "prompt_tokens": 900.0,
            "prompt_variation_ratio": 0.1,
            "output_tokens": 90.0,
            "output_variation_ratio": 0.1,
            "wander_ratio": 0.3,
            "wander_s": 9.0,
        },
    ),
    "speculation": (
        {"speculation": SPECULATION},
        {"draft_tokens": 5, "acceptance_ratio": 0.2, "draft_s": 0.01, "smoothed": True},
    ),
    "prefix_cache": (
        {"prefix_cache": CACHE, **DOWN, "downgrade_ratio": 0.5},
        {"block_tokens": 48, "tokens": 400, "shared": True},
    ),
    "limits": (
        {"limits": FEW, **DOWN, "prefix_cache": CACHE},
        {
            "requests_per_min": 20.0,
            "input_tokens_per_min": 900.0,
            "output_tokens_per_min": 60.0,
            "burst_s": 90.0,
            "cached_input_counts": True,
            "over": "downgrade",
        },
    ),
}
# What else a part needs for a key to matter.
BESIDE: dict[str, dict[str, Any]] = {
    "wander_s": {"wander_ratio": 0.3},
    "cached_input_counts": {"requests_per_min": None, "input_tokens_per_min": 2000.0, "burst_s": 60.0},
}
WIRE_KEYS: dict[str, dict[str, Any]] = {
    "tokens_per_event": {"tokens_per_event": 3},
    "role_first": {"role_first": False},
    "running_usage": {"running_usage": False},
    "refuse_unknown": {"refuse_unknown": True},
    "reasoning_ratio": {"reasoning_ratio": 0.5},
    "fast_needs_beta": {"fast_needs_beta": True},
}
BYTES_ALONE = {
    "split_bytes": 7, "obfuscation": True, "reasoning_field": "reasoning", "ping_s": 0.01, "truth": True,
}  # fmt: skip
FAULT_KEYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "kind": ({}, {"kind": "reset"}),
    "ratio": ({}, {"ratio": 0.5}),
    "tiers": ({}, {"tiers": ("fast",)}),
    "from_s": ({}, {"from_s": 0.02}),
    "until_s": ({}, {"until_s": 0.02}),
    "every": ({}, {"every": 2}),
    "after_tokens": ({}, {"after_tokens": 9}),
    "status": ({"kind": "http_error"}, {"status": 429}),
    "wait_s": ({"kind": "stall"}, {"wait_s": 0.3}),
}
UNSEEN_FAULTS = ("drip", "gzip")
SERVER_KEYS: dict[str, Any] = {
    "deployment": Deployment(chip="H200", model="Llama-3.1-8B"), "tiers": (STANDARD,), "model_name": "m",
    "seed": 5, "ingest_s": 0.1, "max_context_tokens": 200, "wire": Wire(tokens_per_event=2), "faults": (),
}  # fmt: skip
ELSEWHERE: dict[str, Any] = {
    "name": "n", "description": "d", "default_output_tokens": 3,
    "max_body_bytes": 1024, "body_timeout_s": 1.0,
}  # fmt: skip


def fields(kind: type[msgspec.Struct]) -> set[str]:
    return set(kind.__struct_fields__)


def test_no_key_is_left_out_here() -> None:
    assert fields(TierConfig) == {*TIER_KEYS, *SECOND_TIER_KEYS, "price"}
    for key, (own, values) in PARTS.items():
        assert fields(type(own[key])) == set(values)
    assert fields(Wire) == {*WIRE_KEYS, *BYTES_ALONE}
    assert fields(Fault) == set(FAULT_KEYS)
    assert fields(ServerConfig) == {*SERVER_KEYS, *ELSEWHERE}


@pytest.mark.parametrize("key", TIER_KEYS)
def test_every_key_of_a_tier_is_played(key: str) -> None:
    before, after = TIER_KEYS[key]
    assert changed(with_tier(0, before), with_tier(0, before | after))


@pytest.mark.parametrize("key", SECOND_TIER_KEYS)
def test_every_key_that_tiers_have_of_each_other_is_played(key: str) -> None:
    before, after, plan = SECOND_TIER_KEYS[key]
    assert changed(crowded(with_tier(1, before)), crowded(with_tier(1, before | after)), plan)


def crowded(config: ServerConfig) -> ServerConfig:
    """The same with two places in the first tier's engine, for which its requests wait."""
    first = msgspec.structs.replace(config.tiers[0], max_batch=2)
    return msgspec.structs.replace(config, tiers=(first, *config.tiers[1:]))


@pytest.mark.parametrize(("part", "key"), [(part, key) for part, (_, keys) in PARTS.items() for key in keys])
def test_every_key_of_a_part_of_a_tier_is_played(part: str, key: str) -> None:
    before, values = PARTS[part]
    own = msgspec.structs.replace(before[part], **BESIDE.get(key, {}))
    after = msgspec.structs.replace(own, **{key: values[key]})
    one, two = (with_tier(0, before | {part: value}) for value in (own, after))
    assert changed(cached_alike(one), cached_alike(two))


def cached_alike(config: ServerConfig) -> ServerConfig:
    """The same with the first tier's prefix cache in all tiers."""
    cache = config.tiers[0].prefix_cache
    tiers = tuple(msgspec.structs.replace(tier, prefix_cache=cache) for tier in config.tiers)
    return msgspec.structs.replace(config, tiers=tiers)


@pytest.mark.parametrize("key", [*WIRE_KEYS, *BYTES_ALONE])
def test_a_key_of_the_wire_is_played_or_is_of_bytes_alone(key: str) -> None:
    plan = SPEEDS if key == "fast_needs_beta" else PLAN
    own = {key: BYTES_ALONE[key]} if key in BYTES_ALONE else WIRE_KEYS[key]
    speeds = with_tier(1, {"speeds": ("fast",)})
    after = msgspec.structs.replace(speeds, wire=msgspec.structs.replace(PLAIN.wire, **own))
    assert changed(speeds, after, plan) == (key in WIRE_KEYS)


@pytest.mark.parametrize("key", FAULT_KEYS)
def test_every_key_of_a_fault_is_played(key: str) -> None:
    before, after = FAULT_KEYS[key]
    one, two = (Fault(**({"kind": "cut"} | keys)) for keys in (before, before | after))
    assert changed(with_fault(one), with_fault(two))


def with_fault(fault: Fault) -> ServerConfig:
    return msgspec.structs.replace(PLAIN, faults=(fault,))


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_every_kind_of_fault_is_played_that_a_record_shows(kind: Any) -> None:
    none = msgspec.structs.replace(PLAIN, faults=())
    assert changed(none, with_fault(Fault(kind=kind))) == (kind not in UNSEEN_FAULTS)


@pytest.mark.parametrize("key", [*SERVER_KEYS, *ELSEWHERE])
def test_a_key_of_the_server_is_played_or_is_of_sockets_and_words(key: str) -> None:
    value = (SERVER_KEYS | ELSEWHERE)[key]
    assert changed(PLAIN, msgspec.structs.replace(PLAIN, **{key: value})) == (key in SERVER_KEYS)
