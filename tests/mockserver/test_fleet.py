"""All engines of a server together: late polls change nothing, nothing is lost, sharing is sharing."""

import random
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest

from mockserver import config, tiers
from mockserver.config import ServerConfig
from mockserver.fleet import Fleet
from mockserver.job import Finished, Job, StepDone
from mockserver.tier_config import PrefixCache

FAST = config.load("fast-tier", seed=5)
S = 10**9


def fleet_of(base: ServerConfig = FAST, **tier: object) -> ServerConfig:
    """The profile with the same keys changed in all of its tiers."""
    changed = tuple(msgspec.structs.replace(one, **tier) for one in base.tiers)
    return msgspec.structs.replace(base, tiers=changed)


IDLE = fleet_of(target_batch=0, noise_ratio=0.0)


@dataclass
class Told:
    steps: list[tuple[str, StepDone]] = field(default_factory=list)
    engines: dict[int, str] = field(default_factory=dict)

    @property
    def finished(self) -> list[Finished]:
        return [done for _, step in self.steps for done in step.finished]


def play(server: ServerConfig, *, polls_ns: int, count: int = 40, seed: int = 1) -> Told:
    """Jobs and hang-ups at seeded instants, looked at every ``polls_ns`` or only at the very end (0)."""
    rng, fleet, told = random.Random(seed), Fleet(server), Told()
    now_ns = 0
    for number in range(count):
        next_ns = now_ns + rng.randint(1, 30_000_000)
        while polls_ns and (now_ns := now_ns + polls_ns) < next_ns:
            told.steps += fleet.advance(now_ns)
        now_ns = next_ns
        tier = rng.choice(server.tiers).name
        job = Job(number, rng.choice([20, 700, 5000]), rng.randint(1, 30), blocks=(rng.randint(1, 9),))
        told.engines[number] = fleet.submit(tier, job, now_ns)
        if rng.random() < 0.2:
            victim = rng.randint(0, number)
            fleet.cancel(rng.choice(server.tiers).name, victim, now_ns)
    told.steps += fleet.advance(20 * S)
    dropped = count - len(told.finished)
    assert fleet.own_jobs == 0
    assert dropped < count / 4
    assert len({done.job.id for done in told.finished}) == len(told.finished)
    return told


def plain(steps: list[tuple[str, StepDone]]) -> list[object]:
    return [
        (
            name,
            msgspec.structs.replace(step, finished=()),
            [(d.job.id, d.token_ns.tolist()) for d in step.finished],
        )
        for name, step in steps
    ]


@pytest.mark.parametrize("balancer", ["least-loaded", "round-robin", "random", "prefix"])
def test_a_late_poll_changes_no_event(balancer: str) -> None:
    server = fleet_of(replicas=3, balancer=balancer)
    late, often = (play(server, polls_ns=polls_ns) for polls_ns in (0, 3_000_000))
    assert late.engines == often.engines
    assert plain(late.steps) == plain(often.steps)


def test_steps_come_in_the_order_of_their_ends_and_each_engine_counts_its_own() -> None:
    told = play(fleet_of(replicas=3), polls_ns=0)
    ends = [step.ended_ns for _, step in told.steps]
    assert ends == sorted(ends)
    for name in {name for name, _ in told.steps}:
        numbers = [step.number for engine, step in told.steps if engine == name]
        assert numbers == list(range(len(numbers)))


def test_one_engine_in_a_fleet_is_the_engine_alone() -> None:
    rng = random.Random(3)
    jobs = [(k * 20_000_000, Job(k, rng.randint(1, 4000), rng.randint(1, 40))) for k in range(60)]
    fleet, alone = Fleet(FAST), tiers.engine(FAST, FAST.tiers[0], seed=FAST.seed)
    for at_ns, job in jobs:
        assert fleet.submit("standard", job, at_ns) == "standard"
        alone.submit(job, at_ns)
    ours = [("standard", step) for step in alone.advance(5 * S)]
    assert plain([told for told in fleet.advance(5 * S) if told[0] == "standard"]) == plain(ours)


def test_a_job_runs_on_the_engine_that_was_named_and_nowhere_else() -> None:
    told = play(fleet_of(replicas=4), polls_ns=0)
    where = {done.job.id: name for name, step in told.steps for done in step.finished}
    assert where
    assert all(told.engines[job_id] == name for job_id, name in where.items())
    emitted = {(job_id, name) for name, step in told.steps for job_id in step.emitted}
    assert all(told.engines[job_id] == name for job_id, name in emitted)


def test_replicas_have_hidden_loads_of_their_own() -> None:
    fleet = Fleet(fleet_of(replicas=3))
    steps = fleet.advance(2 * S)
    target = FAST.tiers[0].target_batch
    loads = {
        f"standard/{k}": [s.decode_sequences for n, s in steps if n == f"standard/{k}"] for k in range(3)
    }
    assert all(np.mean(load) == pytest.approx(target, rel=0.15) for load in loads.values())
    contexts = {tuple(s.context_tokens for n, s in steps if n == f"standard/{k}")[:20] for k in range(3)}
    assert len(contexts) == 3


def test_twice_the_replicas_serve_twice_the_jobs_in_the_same_time() -> None:
    """A closed law: without queue and noise each replica with one job is alone, and all end together."""
    spans = []
    for replicas in (1, 4):
        fleet = Fleet(fleet_of(IDLE, replicas=replicas))
        for number in range(replicas):
            fleet.submit("standard", Job(number, 100, 50), 0)
        ends = [done.ended_ns for _, step in fleet.advance(60 * S) for done in step.finished]
        assert len(ends) == replicas
        spans.append(set(ends))
    assert spans[0] == spans[1]


def sharing(priority: int) -> ServerConfig:
    slow = msgspec.structs.replace(IDLE.tiers[0], max_batch=1)
    fast = msgspec.structs.replace(IDLE.tiers[1], shares="standard", priority=priority)
    return msgspec.structs.replace(IDLE, tiers=(slow, fast))


def test_a_tier_that_shares_has_no_engine_of_its_own() -> None:
    fleet = Fleet(sharing(0))
    assert list(fleet.engines) == list(fleet.capacities()) == ["standard"]
    assert fleet.submit("fast", Job(0, 10, 3), 0) == "standard"
    assert [d.job.id for _, step in fleet.advance(S) for d in step.finished] == [0]


def test_a_job_in_an_engine_shared_by_two_tiers_is_its_own_tiers_to_drop() -> None:
    fleet = Fleet(sharing(0))
    fleet.submit("fast", Job(0, 10, 500), 0)
    assert not fleet.cancel("standard", 0, 5)
    assert fleet.cancel("fast", 0, 5)
    assert not fleet.cancel("fast", 0, 6)
    assert fleet.own_jobs == 0


def test_what_no_engine_takes_leaves_no_trace() -> None:
    fleet = Fleet(IDLE)
    with pytest.raises(ValueError, match="larger than the KV capacity"):
        fleet.submit("standard", Job(0, 10**9, 1), 0)
    assert fleet.own_jobs == 0
    with pytest.raises(KeyError):
        fleet.submit("no-such-tier", Job(0, 1, 1), 0)
    fleet.submit("standard", Job(0, 1, 1), 0)
    with pytest.raises(ValueError, match="an id in use"):
        fleet.submit("fast", Job(0, 1, 1), 0)
    with pytest.raises(ValueError, match="backwards"):
        fleet.cancel("standard", 0, -1)


def test_the_next_wakeup_of_what_we_watch_ignores_engines_that_only_others_use() -> None:
    fleet = Fleet(FAST)
    assert fleet.wakeup_ns() is not None
    assert fleet.wakeup_ns(watched=True) is None
    fleet.submit("fast", Job(0, 100, 2), 0)
    watched = fleet.wakeup_ns(watched=True)
    assert watched == fleet.engines["fast"].wakeup_ns()


def test_an_idle_fleet_sleeps_until_something_is_submitted() -> None:
    fleet = Fleet(fleet_of(IDLE, replicas=2))
    assert fleet.wakeup_ns() is None
    fleet.submit("standard", Job(0, 100, 2), S)
    assert fleet.wakeup_ns() == S + round(IDLE.ingest_s * 1e9)
    fleet.advance(10 * S)
    assert fleet.wakeup_ns() is None


def remembering(*, shared: bool) -> ServerConfig:
    """Two tiers with engines of their own, whose prefix caches are one or two."""
    cache = PrefixCache(block_tokens=16, tokens=160_000, shared=shared)
    return fleet_of(IDLE, prefix_cache=cache, replicas=2, balancer="round-robin")


@pytest.mark.parametrize("shared", [True, False])
def test_tiers_find_each_others_prefixes_only_where_they_share_a_cache(shared: bool) -> None:
    fleet, blocks = Fleet(remembering(shared=shared)), tuple(range(50))
    found = []
    for number, tier in enumerate(["standard", "standard", "fast", "fast", "standard"]):
        fleet.submit(tier, Job(number, 801, 2, blocks=blocks), number * S)
        steps = fleet.advance(number * S + S - 1)
        found.append(sum(step.hit_tokens for _, step in steps))
    assert found == (
        [0, 800, 800, 800, 800] if shared else [0, 0, 0, 0, 800]
    )  # the fifth is back on the first


def test_a_late_poll_changes_no_event_where_engines_remember_together() -> None:
    late, often = (play(remembering(shared=True), polls_ns=polls_ns) for polls_ns in (0, 2_000_000))
    assert late.engines == often.engines
    assert plain(late.steps) == plain(often.steps)


@pytest.mark.parametrize("shared", [True, False])
def test_going_to_the_next_finish_and_going_on_see_the_same_steps(shared: bool) -> None:
    whole, piecewise = Fleet(remembering(shared=shared)), Fleet(remembering(shared=shared))
    for fleet in (whole, piecewise):
        for number in range(12):
            fleet.submit(("standard", "fast")[number % 2], Job(number, 300 + number, 5 + number % 4), 0)
    told: list[tuple[str, StepDone]] = []
    while piecewise.own_jobs:
        steps = piecewise.advance_to_finish(60 * S)
        ends = [step.ended_ns for _, step in steps if step.finished]
        assert ends
        assert set(ends) == {steps[-1][1].ended_ns}  # nobody has gone further
        told += steps
    assert plain(told) == plain(whole.advance(60 * S))
