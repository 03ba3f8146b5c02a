"""What the scenarios give for each claim of docs/claims.md: numbers without words."""

import statistics
from dataclasses import dataclass
from functools import cache

import msgspec
import numpy as np

from bench.claims_scenarios import (
    LLAMA,
    Alone,
    Client,
    S,
    Steady,
    alone,
    bus,
    ideal,
    seventy_billion,
    steady,
)
from mockserver import config, economics, hardware, roofline
from mockserver.hardware import Deployment
from mockserver.tier_config import Speculation

COST_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COST_CONTEXT_TOKENS = 2000
SLOW_CONTEXT_TOKENS = 8000
FAST_BATCH = 4
SPECULATION_BATCHES = (1, 16, 64, 256, 512)
CONTEXTS = (1000, 8000, 32_000, 128_000)
OPUS = config.load("opus-like").deployment


@dataclass(frozen=True, slots=True)
class Doubling:
    """One request, one with twice the output, one with twice the prompt."""

    base: Alone
    output_doubled: Alone
    input_doubled: Alone
    prompt_tokens: int

    @property
    def prompt_token_s(self) -> float:
        """What one more prompt token takes."""
        return (self.input_doubled.ttft_s - self.base.ttft_s) / self.prompt_tokens


@cache
def doubling(deployment: Deployment = LLAMA, prompt: int = 1000, output: int = 500) -> Doubling:
    return Doubling(
        alone(deployment, prompt, output),
        alone(deployment, prompt, 2 * output),
        alone(deployment, 2 * prompt, output),
        prompt,
    )


@dataclass(frozen=True, slots=True)
class Knee:
    """Where waiting for weights turns into waiting for arithmetic, on an ideal machine."""

    deployment: Deployment
    sparsity: float
    batch: float


def knee(deployment: Deployment) -> Knee:
    """The batch at which the lines of small and of large batches meet, from two runs of the engine.

    The small one is large enough to touch all experts, and still waits for memory.
    """
    model, machine = hardware.model_of(deployment), ideal(deployment)
    expected = economics.textbook_best_batch(deployment)
    small = steady(machine, 512 if model.experts else 1, 1, output_tokens=3)
    large = steady(machine, int(2 * expected), 1, output_tokens=3)
    return Knee(
        deployment, model.parameters / model.active_parameters, small.step_s * large.batch / large.step_s
    )


@cache
def knees() -> tuple[Knee, ...]:
    return tuple(
        knee(each)
        for each in (
            Deployment(chip="H100", model="Llama-3.1-8B"),
            Deployment(chip="H100", chips=2, model="Qwen3-30B-A3B"),
            Deployment(chip="H100", chips=16, model="DeepSeek-V3", weight_bits=8),
            Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8),
        )
    )


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier of the profile ``fast-tier`` as a client without load of its own sees it."""

    batch: int
    tokens_per_s: float
    added_prefill_s: float
    """What 8,064 more tokens of prompt add to the time to first token."""


@cache
def fast_tier() -> tuple[Tier, Tier]:
    """The standard and the fast one."""
    served = config.load("fast-tier")
    client, found = Client(served), list[Tier]()
    for tier in served.tiers:
        speeds, ttft_s = list[float](), dict[int, list[float]]()
        for _ in range(12):
            done = client.ask(tier.name, 128, 200)
            speeds.append(199 * S / (done.ended_ns - done.first_token_ns))
        for prompt in (128, 8192):
            asked = [client.ask(tier.name, prompt, 2) for _ in range(24)]
            ttft_s[prompt] = [(done.first_token_ns - done.submitted_ns) / S for done in asked]
        quarter = {prompt: float(np.quantile(own, 0.25)) for prompt, own in ttft_s.items()}
        found.append(Tier(tier.target_batch, statistics.median(speeds), quarter[8192] - quarter[128]))
    return found[0], found[1]


@cache
def slow_modes() -> tuple[Steady, ...]:
    """A batch of four, and those that fill a quarter, half, three quarters and all of the KV memory."""
    most = roofline.kv_capacity_tokens(roofline.law(LLAMA)) // (SLOW_CONTEXT_TOKENS + 17)
    batches = (FAST_BATCH, most // 4, most // 2, 3 * most // 4, most)
    return tuple(steady(LLAMA, batch, SLOW_CONTEXT_TOKENS) for batch in batches)


def kv_chip_s_per_mtok(deployment: Deployment, context_tokens: float) -> float:
    """What reading KV alone costs a million tokens, which no batch makes less."""
    law = roofline.law(deployment)
    return 1e6 * law.chips * law.kv_bytes_per_token * context_tokens / law.memory_bytes_per_s


@cache
def slow_opus() -> tuple[Steady, Steady]:
    """The standard tier of ``opus-like``, and one of four times the batch: its KV is small."""
    return steady(OPUS, 78, 6000), steady(OPUS, 312, 6000)


@dataclass(frozen=True, slots=True)
class Drafted:
    """What three drafted tokens bring at some batch."""

    batch: int
    tokens_per_step: float
    speed_ratio: float


def drafted(
    deployment: Deployment, batch: int, acceptance: float, *, context_tokens: int, output_tokens: int = 100
) -> Drafted:
    speculation = Speculation(draft_tokens=3, acceptance_ratio=acceptance)
    plain = steady(deployment, batch, context_tokens)
    drafting = steady(deployment, batch, context_tokens, output_tokens=output_tokens, speculation=speculation)
    return Drafted(batch, drafting.tokens_per_step, drafting.tokens_per_s / plain.tokens_per_s)


@cache
def drafted_tokens_per_step(acceptance: float) -> float:
    """What one sequence got a step, in the mean of 200,000 tokens."""
    drafts = Speculation(draft_tokens=3, acceptance_ratio=acceptance)
    return steady(LLAMA, 1, 1, output_tokens=200_000, speculation=drafts).tokens_per_step


@cache
def speculation(acceptance: float) -> tuple[Drafted, ...]:
    """By batch; small ones have more tokens, so that as many are counted."""
    return tuple(
        drafted(LLAMA, batch, acceptance, context_tokens=1000, output_tokens=max(100, 6000 // batch))
        for batch in SPECULATION_BATCHES
    )


@cache
def drafts_stop_paying(deployment: Deployment, acceptance: float, *, context_tokens: int, most: int) -> int:
    """The first batch at which they make a sequence no quicker, found by halving up to ``most``."""
    low, high = 1, most
    while high - low > 1:
        batch = (low + high) // 2
        pays = drafted(deployment, batch, acceptance, context_tokens=context_tokens).speed_ratio > 1
        low, high = (batch, high) if pays else (low, batch)
    return high


@dataclass(frozen=True, slots=True)
class Passenger:
    """Mean over all buses of whoever took one seat."""

    wait_s: float
    tpot_s: float


@cache
def bus_fill(rate_per_s: float, *, static: bool, seats: int = 8, output: int = 20) -> list[Passenger]:
    """Each seat of a bus, in the order of arrival, at Poisson arrivals; mean over 500 buses.

    With continuous batching, whoever would have had that seat.
    """
    buses = 500
    gaps_s = np.random.default_rng(7).exponential(1 / rate_per_s, size=seats * buses)
    arrivals_ns = [int(at_ns) for at_ns in np.cumsum(gaps_s) * S]
    steps = bus(roofline.law(LLAMA), seats, arrivals_ns, output, static=static)
    ends = {end.job.id: end for step in steps for end in step.finished}
    waits_s = [(ends[number].admitted_ns - at_ns) / S for number, at_ns in enumerate(arrivals_ns)]
    tpot_s = [(ends[k].ended_ns - ends[k].first_token_ns) / S / (output - 1) for k in range(len(ends))]
    return [
        Passenger(statistics.fmean(waits_s[seat::seats]), statistics.fmean(tpot_s[seat::seats]))
        for seat in range(seats)
    ]


@dataclass(frozen=True, slots=True)
class AtContext:
    """Steps of a batch at one context, in seconds."""

    context_tokens: int
    alone_s: float
    four_s: float
    four_kv_int8_s: float


@cache
def contexts() -> tuple[AtContext, ...]:
    int8 = msgspec.structs.replace(LLAMA, kv_bits=8)
    return tuple(
        AtContext(
            tokens,
            steady(LLAMA, 1, tokens).step_s,
            steady(LLAMA, 4, tokens).step_s,
            steady(int8, 4, tokens).step_s,
        )
        for tokens in CONTEXTS
    )


@cache
def costs() -> tuple[Steady, ...]:
    """The batches of the picture."""
    return tuple(steady(LLAMA, batch, COST_CONTEXT_TOKENS) for batch in COST_BATCHES)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """So many stages of four chips each, every one of them busy with a micro-batch of 16."""

    stages: int
    weights_gb_per_chip: float
    kv_gb_per_chip: float
    tpot_s: float


@cache
def pipeline(stages: int, micro_batch: int = 16, context_tokens: int = 8000) -> Pipeline:
    deployment = msgspec.structs.replace(LLAMA, pipeline_stages=stages)
    law = roofline.law(deployment)
    full = steady(deployment, micro_batch * stages, context_tokens)
    kv_bytes = full.kv_tokens * law.kv_bytes_per_token
    return Pipeline(
        stages,
        hardware.weight_bytes(deployment) / law.chips / 1e9,
        kv_bytes / law.chips / 1e9,
        full.step_s,
    )


def sweep_s(chips: int) -> float:
    """A token of 70 billion parameters in 16 bits on so many ideal chips of 2 TB/s."""
    return steady(seventy_billion(chips), 1, 1, output_tokens=8).step_s


def b200_step_s(chips: int) -> float:
    """A token of Llama-3.1-70B in 16 bits on so many B200, with the default efficiencies and overheads."""
    return steady(Deployment(chip="B200", chips=chips, model="Llama-3.1-70B"), 1, 1, output_tokens=8).step_s


def mi300x_step_s() -> float:
    """The same on one MI300X."""
    return steady(Deployment(chip="MI300X", model="Llama-3.1-70B"), 1, 1, output_tokens=8).step_s
