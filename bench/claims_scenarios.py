"""Scenarios in virtual time for the claims of docs/claims.md: a request alone, a steady batch, a bus."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from mockserver import config, roofline
from mockserver.engine import Engine, Job, Limits, StepDone
from mockserver.hardware import Chip, Deployment, Model
from mockserver.roofline import Law
from mockserver.tier_config import PrefixCache, Speculation
from mockserver.virtual import Finished, VirtualServer

S = 10**9
MANY = 10**9
"""Tokens that bound nothing."""
END_NS = 10**16

LLAMA = Deployment(chip="H100", chips=4, model="Llama-3.1-70B", weight_bits=8)
"""That of the profile ``h100-70b``."""
EXPERTS = config.load("fast-tier").deployment
"""DeepSeek-V3 in fp8 on 8 x B200."""


def ideal(deployment: Deployment) -> Deployment:
    """The same without overheads and at its peaks: a machine of which closed forms tell everything.

    Reading and computing overlap all but wholly (p = 16, the most a deployment may say).
    """
    return msgspec.structs.replace(
        deployment,
        mbu_ratio=1.0,
        mfu_ratio=1.0,
        overlap_exponent=16.0,
        layer_overhead_s=0.0,
        step_overhead_s=0.0,
        sequence_overhead_s=0.0,
        all_reduce_s=0.0,
        link_bytes_per_s=1e24,
    )


def seventy_billion(chips: int) -> Deployment:
    """70 billion parameters in 16 bits, 140 GB, on so many ideal chips of 2 TB/s."""
    chip = Chip(name="2 TB/s", bf16_flops_per_s=1e15, hbm_bytes=200e9, memory_bytes_per_s=2e12)
    model = Model(
        name="70B",
        parameters=70e9,
        active_parameters=70e9,
        layers=80,
        hidden=8192,
        query_heads=64,
        head_dim=128,
        kv_heads=8,
    )
    return ideal(Deployment(chip=chip, chips=chips, model=model))


def engine(
    law: Law,
    *,
    max_batch: int = 4096,
    prefill_tokens: int = 8192,
    speculation: Speculation | None = None,
    prefix_cache: PrefixCache | None = None,
    static: bool = False,
) -> Engine:
    """An engine of that law without noise, hidden load or ingest, whose KV memory is what fits."""
    limits = Limits(
        max_batch,
        step_tokens=MANY,
        prefill_tokens=prefill_tokens,
        kv_tokens=roofline.kv_capacity_tokens(law),
        batching="static" if static else "continuous",
        batch_wait_ns=3600 * S,
    )
    return Engine(
        roofline.step_function(law), limits, speculation=speculation, prefix_cache=prefix_cache, seed="claims"
    )


@dataclass(frozen=True, slots=True)
class Alone:
    """What one request with nobody else there saw, in seconds."""

    ttft_s: float
    end_s: float
    tpot_s: float


def alone(deployment: Deployment, prompt_tokens: int, output_tokens: int) -> Alone:
    """One request on an empty server."""
    serving = engine(roofline.law(deployment))
    serving.submit(Job(0, prompt_tokens, output_tokens), 0)
    done = next(end for step in serving.advance(END_NS) for end in step.finished)
    ttft_s, end_s = done.first_token_ns / S, done.ended_ns / S
    return Alone(ttft_s, end_s, (end_s - ttft_s) / max(1, output_tokens - 1))


def cached_ttft_s(deployment: Deployment, cached_tokens: int, fresh_tokens: int) -> float:
    """Time to first token of a prompt whose first ``cached_tokens`` an earlier request left in memory."""
    serving = engine(roofline.law(deployment), prefix_cache=PrefixCache(block_tokens=16))
    blocks = tuple(range(cached_tokens // 16))
    serving.submit(Job(0, cached_tokens + 1, 1, blocks=blocks), 0)
    serving.advance(1000 * S)
    serving.submit(Job(1, cached_tokens + fresh_tokens, 1, blocks=blocks), 1000 * S)
    done = next(end for step in serving.advance(END_NS) for end in step.finished)
    assert done.cached_tokens == cached_tokens
    return (done.first_token_ns - done.submitted_ns) / S


@dataclass(frozen=True, slots=True)
class Steady:
    """So many sequences decoding in every step, means over those steps."""

    batch: int
    context_tokens: float
    """Of one sequence."""
    step_s: float
    tokens_per_step: float
    """Of one sequence; 1 without speculation."""
    kv_tokens: int
    """Of all of them, at the end."""
    chips: int

    @property
    def tokens_per_s(self) -> float:
        """Output speed of one sequence."""
        return self.tokens_per_step / self.step_s

    @property
    def chip_s_per_mtok(self) -> float:
        """What a million output tokens cost, in chip-seconds."""
        return 1e6 * self.chips * self.step_s / self.batch / self.tokens_per_step


def steady(
    deployment: Deployment,
    batch: int,
    context_tokens: int,
    *,
    output_tokens: int = 33,
    speculation: Speculation | None = None,
) -> Steady:
    """``batch`` equal sequences that start together; only steps in which all of them decode are looked at.

    Raises ValueError if their KV does not fit the memory.
    """
    law = roofline.law(deployment)
    prompt_tokens = max(1, context_tokens - output_tokens // 2)
    serving = engine(law, max_batch=batch, prefill_tokens=MANY, speculation=speculation)
    if batch * (prompt_tokens + output_tokens) > serving.limits.kv_tokens:
        raise ValueError(f"{batch} contexts of {context_tokens} tokens do not fit the memory")
    for number in range(batch):
        serving.submit(Job(number, prompt_tokens, output_tokens), 0)
    steps = [each for each in serving.advance(END_NS) if each.decode_sequences == batch]
    return Steady(
        batch=batch,
        context_tokens=_mean([each.context_tokens for each in steps]) / batch,
        step_s=_mean([(each.ended_ns - each.started_ns) / S for each in steps]),
        tokens_per_step=_mean([each.generated_tokens for each in steps]) / batch,
        kv_tokens=steps[-1].context_tokens + batch,
        chips=law.chips,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bus(
    law: Law, seats: int, arrivals_ns: Sequence[int], output_tokens: int, *, static: bool = True
) -> list[StepDone]:
    """A batch starts when ``seats`` requests of 100 tokens have come; continuous batching does not wait."""
    serving, steps = engine(law, max_batch=seats, static=static), list[StepDone]()
    for number, arrival_ns in enumerate(arrivals_ns):
        serving.submit(Job(number, 100, output_tokens), arrival_ns)
        steps += serving.advance(arrival_ns)
    return steps + serving.advance(END_NS)


@dataclass
class Client:
    """Somebody who asks a profile's server for one thing at a time, in virtual time."""

    served: config.ServerConfig
    _now_ns: int = 0
    _asked: int = 0
    _virtual: VirtualServer = field(init=False)

    def __post_init__(self) -> None:
        self._virtual = VirtualServer(self.served, 1)

    def ask(self, tier: str, prompt_tokens: int, output_tokens: int) -> Finished:
        """Submit right after the previous answer has ended, and wait for this one."""
        self._virtual.submit(tier, Job(self._asked, prompt_tokens, output_tokens), self._now_ns)
        self._asked += 1
        done = self._virtual.next_finish(self._now_ns + 1000 * S)
        if done is None:
            raise RuntimeError(f"{tier}: no answer within 1,000 s")
        self._now_ns = done.ended_ns
        return done
