"""A trace offered to a fleet: times against the law, counts against brute force, replicas by symmetry."""

import tracemalloc

import msgspec
import numpy as np
import pytest

from mockserver import config, roofline
from mockserver.config import ServerConfig, TierConfig
from mockserver.offered import Goal, Offered, Service, alone, serve
from mockserver.server_config import deployment_of
from mockserver.tier_config import PrefixCache

H100 = config.load("h100-70b", seed=2)
S = 10**9
LOOSE = Goal(ttft_s=3600.0, tpot_s=60.0, goodput_ratio=0.99)


def tier(**changes: object) -> TierConfig:
    plain = msgspec.structs.replace(H100.tiers[0], noise_ratio=0.0, prefix_cache=None)
    return msgspec.structs.replace(plain, **changes)


def server(one: TierConfig) -> ServerConfig:
    return msgspec.structs.replace(H100, tiers=(one,))


def offered(*rows: tuple[float, int, int]) -> Offered:
    at_s, prompt, output = (np.array(column) for column in zip(*rows, strict=True))
    return Offered(np.rint(at_s * 1e9).astype(np.int64), prompt.astype(np.int64), output.astype(np.int64))


def poisson(count: int, rate_per_s: float, seed: int = 1) -> Offered:
    rng = np.random.default_rng(seed)
    at_ns = np.cumsum(rng.exponential(1e9 / rate_per_s, count)).astype(np.int64)
    return Offered(at_ns, rng.integers(50, 4000, count), rng.integers(1, 200, count))


def served(one: TierConfig, replicas: int, what: Offered, goal: Goal = LOOSE, **how: bool) -> Service:
    return serve(server(one), one, replicas, what, goal, **how)


def test_requests_that_never_meet_take_what_the_law_says() -> None:
    one = tier()
    service = served(one, 1, offered((0, 500, 3), (10, 3000, 2), (20, 100, 1)))
    law = roofline.law(deployment_of(server(one), one))
    step = roofline.step_function(law)
    for row, prompt in enumerate((500, 3000, 100)):
        expected_s = H100.ingest_s + roofline.prefill_s(law, prompt, one.prefill_tokens)
        assert service.ttft_s[row] == pytest.approx(expected_s, abs=2e-9)
    two_s = step(1, 501, 0, 0, 0.0) + step(1, 502, 0, 0, 0.0)
    assert service.tpot_s[0] == pytest.approx(two_s / 2, abs=2e-9)
    assert np.isnan(service.tpot_s[2])  # one token has no gap


def test_twice_the_same_traffic_on_two_replicas_waits_as_one_does_on_one() -> None:
    one, what = tier(balancer="round-robin"), poisson(120, 12.0)
    at_ns, prompts, outputs = (
        np.repeat(column, 2) for column in (what.at_ns, what.prompt_tokens, what.output_tokens)
    )
    twice = Offered(at_ns, prompts, outputs)
    single, double = served(one, 1, what), served(one, 2, twice)
    for replica in (0, 1):
        assert np.array_equal(double.ttft_s[replica::2], single.ttft_s)
        assert np.array_equal(double.tpot_s[replica::2], single.tpot_s, equal_nan=True)
    assert double.busy_ratio == pytest.approx(single.busy_ratio)
    assert double.mean_batch == pytest.approx(single.mean_batch)


def test_work_is_conserved_whoever_does_it() -> None:
    """All tokens are generated: sequences decoding over busy time times steps is what was asked for."""
    one, what = tier(), poisson(200, 15.0)
    for replicas in (1, 3):
        service = served(one, replicas, what)
        assert not np.isnan(service.ttft_s).any()
        assert (~np.isnan(service.tpot_s)).sum() == (what.output_tokens > 1).sum()
        decoding_s = service.mean_batch * service.busy_ratio * replicas * service.span_s
        tokens_s = np.nansum(service.tpot_s * (what.output_tokens - 1))
        assert decoding_s == pytest.approx(float(tokens_s), rel=1e-6)  # Little's law, exactly


def test_goodput_is_the_share_of_requests_that_keep_both_bounds() -> None:
    one, what = tier(), poisson(150, 20.0)
    full = served(one, 1, what)
    goal = Goal(float(np.median(full.ttft_s)), float(np.nanquantile(full.tpot_s, 0.8)), 0.1)
    service = served(one, 1, what, goal)
    kept = (full.ttft_s <= goal.ttft_s) & ~(full.tpot_s > goal.tpot_s)
    assert service.goodput_ratio == pytest.approx(kept.mean())
    assert 0.1 < service.goodput_ratio < 0.6


def test_giving_up_changes_no_decision() -> None:
    one, what = tier(), poisson(150, 20.0)
    goal = Goal(0.2, 0.05, 0.9)
    most = goal.misses_allowed(150)
    answers = []
    for replicas in (1, 2, 4, 6):
        quick, full = (served(one, replicas, what, goal, give_up=give_up) for give_up in (True, False))
        assert not full.given_up
        assert (quick.missed > most) == (full.missed > most)
        assert quick.given_up or quick.missed == full.missed
        answers.append(full.missed > most)
    assert answers == sorted(answers, reverse=True)
    assert set(answers) == {True, False}


def test_what_no_replica_can_hold_is_refused_and_missed() -> None:
    service = served(
        tier(), 1, offered((0, 100, 2), (1, H100.max_context_tokens, 1), (2, 100, 2)), give_up=False
    )
    assert (service.refused, service.missed) == (1, 1)
    assert np.isnan(service.ttft_s).tolist() == [False, True, False]


def test_equal_prefixes_are_found_where_the_tier_has_a_cache_and_not_elsewhere() -> None:
    rows = offered(*((k, 1600, 2) for k in range(4)))
    shared = Offered(rows.at_ns, rows.prompt_tokens, rows.output_tokens, blocks=lambda _: tuple(range(100)))
    with_cache = served(tier(prefix_cache=PrefixCache(block_tokens=16)), 1, shared)
    without = served(tier(), 1, shared)
    assert (with_cache.hit_tokens, without.hit_tokens) == (3 * 99 * 16, 0)  # the last block is computed
    assert (with_cache.ttft_s[1:] < without.ttft_s[1:]).all()


def test_a_tier_alone_has_its_own_engine_and_nobody_beside_it() -> None:
    fast = msgspec.structs.replace(H100.tiers[0], name="fast", shares="standard", priority=3)
    both = msgspec.structs.replace(H100, tiers=(tier(name="standard", target_batch=8, max_batch=99), fast))
    only = alone(both, fast, 5)
    (one,) = only.tiers
    assert (one.name, one.max_batch, one.replicas, one.target_batch, one.shares) == ("fast", 99, 5, 0, None)
    config.check(only, where="alone")


def test_the_same_seed_gives_the_same_times() -> None:
    one, what = tier(noise_ratio=0.05, balancer="random"), poisson(60, 20.0)
    first, again, other = (serve(server(one), one, 3, what, LOOSE, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.ttft_s, again.ttft_s)
    assert not np.array_equal(first.ttft_s, other.ttft_s)


def test_memory_does_not_grow_with_tokens() -> None:
    def peak_bytes(output_tokens: int) -> int:
        what = Offered(np.arange(4) * S, np.full(4, 50), np.full(4, output_tokens))
        tracemalloc.start()
        served(tier(max_batch=1), 1, what)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    assert peak_bytes(4000) < 2 * peak_bytes(500)
