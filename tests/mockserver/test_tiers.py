"""What a tier says reaches the engine that plays it."""

from typing import Any

import msgspec
import pytest

from mockserver import config, roofline, tiers
from mockserver.config import ServerConfig, TierConfig
from mockserver.engine import Engine, Job, StepDone
from mockserver.prefix_store import PrefixStore
from mockserver.tier_config import PrefixCache, Speculation

BASE = config.load("h100-70b")
LAW = roofline.law(BASE.deployment)


def tier(**more: Any) -> TierConfig:
    return TierConfig(name="t", **{"max_batch": 8, "noise_ratio": 0.0, **more})


def engine(**more: Any) -> Engine:
    server = msgspec.structs.replace(BASE, tiers=(tier(**more),), ingest_s=0.0)
    return tiers.engine(server, server.tiers[0], seed=1)


def two(server: Engine, *jobs: Job) -> list[StepDone]:
    for job in jobs:
        server.submit(job, 0)
    return server.advance(10**12)


def test_limits_are_the_tiers_own_or_follow_from_its_deployment() -> None:
    limits = tiers.limits(tier(), LAW)
    assert (limits.max_batch, limits.step_tokens, limits.prefill_tokens) == (8, 8200, 8192)
    assert limits.kv_tokens == roofline.kv_capacity_tokens(LAW)
    said = tier(
        kv_tokens=5000,
        step_tokens=900,
        prefill_tokens=500,
        batching="static",
        batch_wait_s=1.5,
        prefill="pause",
        when_kv_is_full="preempt",
    )
    limits = tiers.limits(said, LAW)
    assert (limits.kv_tokens, limits.step_tokens, limits.prefill_tokens) == (5000, 900, 500)
    assert (limits.batching, limits.batch_wait_ns) == ("static", 1_500_000_000)
    assert (limits.prefill, limits.when_kv_is_full) == ("pause", "preempt")


def test_a_step_budget_that_is_not_given_has_room_for_drafts() -> None:
    assert tiers.limits(tier(speculation=Speculation(draft_tokens=3)), LAW).step_tokens == 8192 + 8 * 4


def test_speculation_and_prefix_cache_are_the_tiers() -> None:
    blocks = tuple(range(10))
    jobs = [Job(0, 160, 9, blocks=blocks), Job(1, 160, 9, blocks=blocks)]
    plain = two(engine(max_batch=1), *jobs)
    rich = two(engine(max_batch=1, speculation=Speculation(), prefix_cache=PrefixCache()), *jobs)
    assert sum(step.hit_tokens for step in plain) == 0
    assert sum(step.hit_tokens for step in rich) == 144
    assert len(rich) < len(plain)


@pytest.mark.parametrize(("share", "hit"), [(True, 144), (False, 0)])
def test_tiers_that_are_given_one_store_find_what_the_other_wrote(share: bool, hit: int) -> None:
    one = tier(prefix_cache=PrefixCache(tokens=10_000, shared=True))
    server: ServerConfig = msgspec.structs.replace(BASE, tiers=(one, msgspec.structs.replace(one, name="u")))
    store = PrefixStore(16, 10_000) if share else None
    hits = 0
    for number, each in enumerate(server.tiers):
        played = tiers.engine(server, each, seed=1, prefix_store=store)
        played.submit(Job(0, 160, 2, blocks=tuple(range(10))), number * 10**9)
        hits += sum(step.hit_tokens for step in played.advance((number + 1) * 10**9))
    assert hits == hit
