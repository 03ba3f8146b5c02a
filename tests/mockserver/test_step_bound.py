"""A step is said to be bound by that which makes it shorter by being quicker."""

from collections import Counter

import msgspec
import pytest

from mockserver import config as profiles
from mockserver import explain, step_bound
from mockserver.fleet import Fleet
from mockserver.hardware import Deployment
from mockserver.job import Job, StepDone
from mockserver.server_config import ServerConfig
from mockserver.tier_config import Speculation, TierConfig

SPECULATION = Speculation(draft_tokens=7, acceptance_ratio=0.6)
QUICKER = 1.02


def server(tier: TierConfig, **deployment: object) -> ServerConfig:
    """Llama 70B without overheads, in steps that last as long as the law says."""
    plain = Deployment(
        chip="H100", model="Llama-3.1-70B", chips=4, weight_bits=8,
        layer_overhead_s=0.0, step_overhead_s=0.0, sequence_overhead_s=0.0, all_reduce_s=0.0,
        link_bytes_per_s=1e15, mfu_ratio=0.6, mbu_ratio=0.6,
    )  # fmt: skip
    return ServerConfig(
        name="bound", deployment=msgspec.structs.replace(plain, **deployment), tiers=(tier,), ingest_s=0.0
    )


def played(config: ServerConfig) -> list[StepDone]:
    """Every step of 96 answers that begin together and end one after the other."""
    fleet = Fleet(config, keep_tokens=False)
    for number in range(96):
        fleet.submit("t", Job(number, 2500, 30 + 3 * number), 0)
    return [step for _, step in fleet.advance(10**12)]


@pytest.mark.parametrize("speculation", [None, SPECULATION])
def test_a_step_is_bound_by_what_makes_it_shorter_by_being_quicker(speculation: Speculation | None) -> None:
    tier = TierConfig(name="t", noise_ratio=0.0, max_batch=96, speculation=speculation)
    config = server(tier)
    bound_by, steps = step_bound.of_config(config), played(config)
    reading = played(server(tier, mbu_ratio=0.6 * QUICKER))
    computing = played(server(tier, mfu_ratio=0.6 * QUICKER))
    seen: Counter[str] = Counter()
    for step, read, computed in zip(steps, reading, computing, strict=True):
        lasted = [one.ended_ns - one.started_ns for one in (read, computed)]
        said = bound_by("t", step)
        assert said == ("memory" if lasted[0] < lasted[1] else "compute"), step
        seen[said] += 1
    assert min(seen["memory"], seen["compute"]) > 3


def test_launches_bind_where_nothing_else_takes_as_long() -> None:
    tier = TierConfig(name="t", noise_ratio=0.0)
    config = server(tier, layer_overhead_s=0.01)
    assert {step_bound.of_config(config)("t", step) for step in played(config)} == {"overhead"}


@pytest.mark.parametrize("name", profiles.shipped())
def test_what_is_explained_of_a_profile_is_said_of_its_steps(name: str) -> None:
    config = profiles.load(name)
    for tier, told in zip(config.tiers, explain.explain(config).tiers, strict=True):
        drafts = tier.speculation.draft_tokens if tier.speculation else 0
        step = StepDone(
            number=0, started_ns=0, ended_ns=1, decode_sequences=told.batch, prefill_tokens=0,
            context_tokens=round(told.batch * told.context_tokens), drafted_tokens=told.batch * drafts,
            generated_tokens=0, running=0, waiting=0, kv_tokens=0, emitted=(), finished=(),
        )  # fmt: skip
        assert told.bound_by == step_bound.of_config(config)(tier.name, step)
