"""Servers that no test has seen: models, policies, loads and noise from a seed, with their truth."""

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

import msgspec

from mockserver import config as profiles
from mockserver import roofline
from mockserver.config import HiddenLoad, ServerConfig, TierConfig
from mockserver.hardware import Deployment
from mockserver.hidden_load import decode_step_s
from mockserver.tier_config import Speculation
from tierscope.errors import BadInputError

Kind = Literal["batch", "speculation", "hardware", "kv", "priority", "none"]
KINDS: tuple[Kind, ...] = ("batch", "speculation", "hardware", "kv", "priority", "none")
ANSWERS: dict[Kind, str] = {
    "batch": "smaller batch",
    "speculation": "speculative decoding",
    "hardware": "faster hardware or smaller model",
    "kv": "KV quantisation",
    "priority": "priority only",
    "none": "none",
}
MACHINES: tuple[dict[str, Any], ...] = (
    {"chip": "H100", "chips": 4, "model": "Llama-3.1-70B", "weight_bits": 8},
    {"chip": "H200", "chips": 8, "model": "DeepSeek-V3", "weight_bits": 8},
    {"chip": "H100", "chips": 2, "model": "Qwen3-32B", "weight_bits": 8},
    {"chip": "A100-80", "chips": 8, "model": "Llama-3.1-70B"},
    {"chip": "MI300X", "chips": 4, "model": "Mixtral-8x7B"},
    {"chip": "H200", "chips": 8, "model": "Qwen3-235B-A22B", "weight_bits": 8},
    {"chip": "H100", "chips": 1, "model": "Llama-3.1-8B"},
    {"chip": "H100", "chips": 1, "model": "Qwen3-30B-A3B"},
    {"chip": "B200", "chips": 8, "model": "Llama-3.1-405B", "weight_bits": 8},
    {"chip": "H100", "chips": 2, "model": "gpt-oss-120b", "weight_bits": 4},
)
FASTER = {"A100-80": "H100", "H100": "B200", "H200": "B200", "MI300X": "B200"}
SMALLER = {
    "Llama-3.1-70B": "Llama-3.1-8B",
    "Llama-3.1-405B": "Llama-3.1-70B",
    "Qwen3-32B": "Qwen2-7B",
    "gpt-oss-120b": "gpt-oss-20b",
    "Qwen3-235B-A22B": "Qwen3-30B-A3B",
}
LEAST_STEP_RATIO, LEAST_PREFILL_RATIO = 1.15, 1.3
"""A mechanism that changes less than this is drawn again: there would be nothing to find."""
MOST_BUSY_RATIO = 0.3
"""Share of the time that hidden prompts may take: beyond 0.4 the analysis cautions, from 0.6 it refuses."""
_TRIES = 200


@dataclass(frozen=True, slots=True)
class Pair:
    """A server with a standard and a fast tier, and what sets them apart."""

    kind: Kind
    busy: bool
    config: ServerConfig
    step_ratio: float = field(default=1.0)
    """Of the law at the tiers' target batches and mean contexts."""
    prefill_ratio: float = field(default=1.0)
    """Of the increments from 128 to 16,384 tokens, chunks sharing their steps with the batch."""


def pair(seed: str, kind: Kind) -> Pair:
    """Draw a server whose fast tier is fast by one mechanism, strong enough to be there."""
    rng = Random(seed)
    for _ in range(_TRIES):
        busy = rng.random() < 0.5
        made = _server(rng, kind, busy)
        try:
            profiles.check(made, where="drawn")
        except BadInputError:
            continue
        steps = [law_step_s(made, tier) for tier in made.tiers]
        increments = [increment_s(made, tier) for tier in made.tiers]
        found = Pair(kind, busy, made, steps[0] / steps[1], increments[0] / increments[1])
        if _strong(found) and _bearable(made):
            return found
    raise RuntimeError(f"{seed}: no {kind} server in {_TRIES} draws")


def edge(seed: str) -> Pair:
    """Draw a server whose two tiers differ by 10 % of prefill and by nothing else that matters."""
    drawn = pair(seed, "none")
    standard, fast = drawn.config.tiers
    low = drawn.config.deployment.mfu_ratio
    high = min(1.0, 1.5 * low)
    made = drawn.config
    for _ in range(40):
        middle = (low + high) / 2
        tiers = (standard, msgspec.structs.replace(fast, deployment={"mfu_ratio": middle}))
        made = msgspec.structs.replace(drawn.config, tiers=tiers)
        if increment_s(made, tiers[0]) / increment_s(made, tiers[1]) < 1.10:
            low = middle
        else:
            high = middle
    increments = [increment_s(made, tier) for tier in made.tiers]
    return Pair("none", drawn.busy, made, 1.0, increments[0] / increments[1])


def alone(seed: str) -> tuple[ServerConfig, int]:
    """Draw a server with one tier and nobody else, and the most sequences that it decodes at once."""
    rng = Random(seed)
    for _ in range(_TRIES):
        largest = rng.choice((8, 12, 16, 24, 32, 48, 64, 96, 128, 192))
        tier = TierConfig(
            name="standard",
            service_tiers=("default",),
            max_batch=largest,
            noise_ratio=rng.choice((0.005, 0.01, 0.02)),
            **_policy(rng),
        )
        made = ServerConfig(name="alone", deployment=_machine(rng), tiers=(tier,), seed=rng.randrange(2**31))
        try:
            profiles.check(made, where="drawn")
        except BadInputError:
            continue
        if roofline.kv_capacity_tokens(roofline.law(made.deployment)) > 400 * largest:
            return made, largest
    raise RuntimeError(f"{seed}: no server in {_TRIES} draws")


def crowded(config: ServerConfig, largest: int, seed: str) -> ServerConfig:
    """The same server with others on it, whose batch nobody tells."""
    rng = Random(seed)
    for _ in range(_TRIES):
        changes = {
            "target_batch": rng.randint(2, max(3, round(0.9 * largest))),
            "hidden": _hidden(rng, "none", rng.random() < 0.5),
        }
        made = msgspec.structs.replace(config, tiers=(msgspec.structs.replace(config.tiers[0], **changes),))
        try:
            profiles.check(made, where="drawn")
        except BadInputError:
            continue
        if _bearable(made):
            return made
    raise RuntimeError(f"{seed}: no crowd in {_TRIES} draws")


def law_step_s(config: ServerConfig, tier: TierConfig) -> float:
    """The law's step at a tier's target batch and mean context, drafts included."""
    tier = config.tiers[0] if tier.shares else tier
    law = roofline.law(profiles.deployment_of(config, tier))
    return decode_step_s(law, tier, tier.target_batch, tier.target_batch * profiles.mean_context_tokens(tier))


def increment_s(config: ServerConfig, tier: TierConfig) -> float:
    """What 16,384 tokens of prompt take longer than 128, by the law, beside the tier's decoding batch."""
    tier = config.tiers[0] if tier.shares else tier
    law = roofline.law(profiles.deployment_of(config, tier))
    pause = tier.prefill == "pause"
    batch = 0 if pause else tier.target_batch
    context = batch * profiles.mean_context_tokens(tier)
    return _prompt_s(law, 16384, tier.prefill_tokens, batch, context) - _prompt_s(
        law, 128, tier.prefill_tokens, batch, context
    )


def _prompt_s(law: roofline.Law, tokens: int, chunk_tokens: int, batch: int, context: float) -> float:
    step, total = roofline.step_function(law), 0.0
    for cached in range(0, tokens, chunk_tokens):
        chunk = min(chunk_tokens, tokens - cached)
        total += step(batch, round(context), chunk, cached, chunk * (cached + chunk / 2))
    return total


def _machine(rng: Random) -> Deployment:
    return Deployment(
        **rng.choice(MACHINES),
        mfu_ratio=rng.uniform(0.5, 0.7),
        mbu_ratio=rng.uniform(0.65, 0.85),
        layer_overhead_s=rng.uniform(15e-6, 40e-6),
    )


def _policy(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.4:
        return {"prefill": "pause", "prefill_tokens": rng.choice((8192, 16384))}
    return {"prefill": "chunked", "prefill_tokens": rng.choice((2048, 4096, 8192))}


def _hidden(rng: Random, kind: Kind, busy: bool) -> HiddenLoad:
    prompt = rng.uniform(800, 3000) * (2.5 if kind == "kv" else 1.0)
    return HiddenLoad(
        prompt_tokens=prompt,
        prompt_variation_ratio=rng.uniform(0.4, 0.9),
        output_tokens=rng.uniform(300, 800) if busy else rng.uniform(1200, 2500),
        wander_ratio=rng.uniform(0.01, 0.06),
        wander_s=rng.uniform(2, 10),
    )


def _server(rng: Random, kind: Kind, busy: bool) -> ServerConfig:
    machine = _machine(rng)
    batch = rng.choice((16, 24, 32, 48, 64, 96))
    common: dict[str, Any] = {
        "max_batch": 256,
        "hidden": _hidden(rng, kind, busy),
        "noise_ratio": rng.choice((0.005, 0.01, 0.02)),
        **_policy(rng),
    }
    own: dict[str, Any] = {"target_batch": batch}
    if kind == "batch":
        own["target_batch"] = max(2, round(batch / rng.uniform(3, 10)))
    elif kind == "speculation":
        own["speculation"] = Speculation(
            draft_tokens=rng.choice((2, 3, 4)),
            acceptance_ratio=rng.uniform(0.6, 0.85),
            draft_s=rng.uniform(0.1e-3, 0.4e-3),
        )
    elif kind == "hardware":
        smaller = SMALLER.get(str(machine.model))
        changed = (
            {"model": smaller}
            if smaller and rng.random() < 0.5
            else {"chip": FASTER.get(str(machine.chip), "GB200")}
        )
        own["deployment"] = changed
    elif kind == "kv":
        own["deployment"] = {"kv_bits": 8}
    elif kind == "priority":
        batch = rng.choice((4, 5, 6))
        common["max_batch"], common["when_kv_is_full"] = batch, "preempt"
        own = {"shares": "standard", "priority": 1}
    standard = TierConfig(name="standard", service_tiers=("default",), target_batch=min(batch, 96), **common)
    if kind == "priority":
        standard = msgspec.structs.replace(standard, target_batch=max(1, batch // 2))
        common = {}
    fast = TierConfig(name="fast", service_tiers=("priority",), **common, **own)
    return ServerConfig(name="drawn", deployment=machine, tiers=(standard, fast), seed=rng.randrange(2**31))


def _strong(found: Pair) -> bool:
    if found.kind in ("batch", "kv"):
        return found.step_ratio >= (LEAST_STEP_RATIO if found.kind == "batch" else 1.08)
    return found.kind != "hardware" or found.prefill_ratio >= LEAST_PREFILL_RATIO


def _bearable(config: ServerConfig) -> bool:
    """Whether steps of both tiers are mostly free of hidden prompts."""
    shares = [
        profiles.hidden_prefill_ratio(roofline.law(profiles.deployment_of(config, tier)), tier)
        for tier in config.tiers
        if not tier.shares
    ]
    return all(math.isfinite(share) and share < MOST_BUSY_RATIO for share in shares)
