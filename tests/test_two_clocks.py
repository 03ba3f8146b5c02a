"""A run on the clock and the same submissions in virtual time give the same events, to the nanosecond."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import msgspec
import pytest

from mockserver import config
from mockserver.config import ServerConfig
from mockserver.fleet import Fleet
from mockserver.job import Job, StepDone
from mockserver.realtime import RealTime, Steps
from mockserver.tier_config import PrefixCache, Speculation
from mockserver.virtual import VirtualServer

PLAIN = config.load("fast-tier", seed=11)


def crowded() -> ServerConfig:
    """Replicas, a tier that shares them, a prefix cache, preemption, speculation."""
    standard, fast = PLAIN.tiers
    cache = PrefixCache(block_tokens=16)
    one = msgspec.structs.replace(standard, replicas=2, prefix_cache=cache, max_batch=64)
    two = msgspec.structs.replace(fast, speculation=Speculation(), when_kv_is_full="preempt")
    three = msgspec.structs.replace(
        config.TierConfig(name="urgent", shares="standard", priority=5), service_tiers=("urgent",)
    )
    return msgspec.structs.replace(PLAIN, tiers=(one, two, three))


@dataclass
class Played:
    """What was asked of the server and when, and every step it then took."""

    asked: list[tuple[int, str, Job | None, int]] = field(default_factory=list)
    steps: dict[str, list[StepDone]] = field(default_factory=dict)
    lags_ns: list[int] = field(default_factory=list)


async def play(server_config: ServerConfig, *, seed: int, hold_up_s: float, requests: int = 40) -> Played:
    """Submit and cancel at odd moments for a while, with the event loop held up now and then."""
    fleet = Fleet(server_config)
    rng, played = random.Random(seed), Played(steps={name: [] for name in fleet.engines})

    def on_steps(steps: Steps) -> None:
        for engine_name, step in steps:
            played.steps[engine_name].append(step)
            played.lags_ns.append(clock.now_ns() - step.ended_ns)

    clock = RealTime(fleet, on_steps)
    clock.start()
    for number in range(requests):
        tier_name = rng.choice(server_config.tiers).name
        blocks = tuple(range(rng.randint(0, 3)))
        job = Job(number, rng.choice([50, 700, 9000]), rng.randint(1, 20), blocks=blocks)
        played.asked.append((clock.submit(tier_name, job), tier_name, job, number))
        await asyncio.sleep(rng.random() * 0.04)
        if rng.random() < 0.3:
            time.sleep(hold_up_s)  # the point: a loop that comes round late
        victim = rng.randint(0, number)
        at_ns = clock.cancel(tier_name, victim) if rng.random() < 0.2 else None
        if at_ns is not None:
            played.asked.append((at_ns, tier_name, None, victim))
    clock.tick()
    clock.stop()
    return played


def replay(server_config: ServerConfig, played: Played) -> dict[str, list[StepDone]]:
    steps: dict[str, list[StepDone]] = {name: [] for name in played.steps}
    server = VirtualServer(server_config, on_step=lambda name, step: steps[name].append(step))
    for at_ns, tier_name, job, job_id in played.asked:
        while server.next_finish(at_ns) is not None:
            pass
        if job is not None:
            server.submit(tier_name, job, at_ns)
        else:
            assert server.cancel(tier_name, job_id, at_ns)
    end_ns = max(steps[-1].ended_ns for steps in played.steps.values())
    while server.next_finish(end_ns) is not None:
        pass
    return steps


def told(steps: list[StepDone]) -> list[object]:
    plain = [msgspec.structs.replace(step, finished=()) for step in steps]
    ends = [(done.job, done.submitted_ns, done.token_ns.tolist()) for s in steps for done in s.finished]
    return [plain, ends]


@pytest.mark.parametrize("server_config", [PLAIN, crowded()], ids=["two tiers", "all at once"])
@pytest.mark.parametrize("hold_up_s", [0.0, 0.03])
def test_a_real_time_run_replayed_in_virtual_time_gives_the_same_events(
    server_config: ServerConfig, hold_up_s: float
) -> None:
    played = asyncio.run(play(server_config, seed=int(hold_up_s * 1000), hold_up_s=hold_up_s))
    again = replay(server_config, played)
    assert sum(len(step.finished) for steps in played.steps.values() for step in steps) >= 3
    for engine_name, steps in played.steps.items():
        assert len(steps) > 20
        assert told(steps) == told(again[engine_name])


def test_no_step_is_handed_over_before_it_has_ended() -> None:
    played = asyncio.run(play(PLAIN, seed=3, hold_up_s=0.0, requests=20))
    assert min(played.lags_ns) >= 0


def test_being_held_up_shows_in_the_lag() -> None:
    played = asyncio.run(play(PLAIN, seed=4, hold_up_s=0.05, requests=20))
    assert max(played.lags_ns) > 20_000_000
