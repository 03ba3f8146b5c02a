"""The engine obeys the laws that any queue obeys, whatever its physics."""

from typing import Any

import numpy as np
import pytest

from mockserver import config, roofline
from mockserver.engine import Engine, Finished, Job, Limits, StepDone
from mockserver.roofline import StepFunction
from mockserver.tier_config import Speculation

MS = 1_000_000


def run(
    step: StepFunction,
    jobs: list[Job],
    arrivals_ns: list[int],
    *,
    max_batch: int,
    kv_tokens: int = 10**9,
    speculation: Speculation | None = None,
    **modes: Any,
) -> tuple[list[StepDone], dict[int, Finished]]:
    limits = Limits(max_batch, step_tokens=4096, prefill_tokens=2048, kv_tokens=kv_tokens, **modes)
    engine = Engine(step, limits, speculation=speculation)
    steps: list[StepDone] = []
    for job, arrival_ns in zip(jobs, arrivals_ns, strict=True):
        engine.submit(job, arrival_ns)
        steps += engine.advance(arrival_ns)
    steps += engine.advance(10**15)
    return steps, {done.job.id: done for step_done in steps for done in step_done.finished}


MODES: dict[str, dict[str, Any]] = {
    "continuous": {},
    "pause": {"prefill": "pause"},
    "preempt": {"kv_tokens": 4000, "when_kv_is_full": "preempt"},
    "pause and preempt": {"prefill": "pause", "kv_tokens": 4000, "when_kv_is_full": "preempt"},
    "speculation": {"speculation": Speculation()},
    "speculation and preempt": {
        "speculation": Speculation(),
        "kv_tokens": 4000,
        "when_kv_is_full": "preempt",
    },
    "static": {"batching": "static", "batch_wait_ns": 300 * MS},
}


def poisson_ns(rate_per_s: float, count: int, seed: int) -> list[int]:
    gaps_s = np.random.default_rng(seed).exponential(1 / rate_per_s, size=count)
    return [int(at_ns) for at_ns in np.cumsum(gaps_s) * 1e9]


def ten_ms(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 0.010


def mixed(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 2e-3 + 1e-4 * batch + 1e-7 * context + 1e-5 * prefill


@pytest.mark.parametrize("load", [0.3, 0.8, 0.99])
@pytest.mark.parametrize("stop_ratio", [1.0, 0.2])
def test_one_slot_makes_everybody_wait_as_long_as_lindley_says(load: float, stop_ratio: float) -> None:
    """W' = max(0, W + s − a), to the nanosecond: one job after the other, in order, never idle with work."""
    count, step_ns = 3000, 10 * MS
    tokens = np.random.default_rng(2).geometric(stop_ratio, size=count)
    arrivals_ns = poisson_ns(load * 1e9 / (step_ns / stop_ratio), count, seed=3)
    jobs = [Job(number, 10, int(tokens[number])) for number in range(count)]
    _, ends = run(ten_ms, jobs, arrivals_ns, max_batch=1)
    wait_ns = 0
    for number, arrival_ns in enumerate(arrivals_ns):
        if number:
            served_ns = int(tokens[number - 1]) * step_ns
            wait_ns = max(0, wait_ns + served_ns - (arrival_ns - arrivals_ns[number - 1]))
        assert ends[number].admitted_ns - arrival_ns == wait_ns
        assert ends[number].ended_ns == arrival_ns + wait_ns + int(tokens[number]) * step_ns


def test_one_slot_and_equal_jobs_wait_as_long_as_in_m_d_1() -> None:
    """Pollaczek-Khinchine with deterministic service: W = ρ·s / (2·(1 − ρ))."""
    count, service_s, load = 30_000, 0.010, 0.6
    jobs = [Job(number, 10, 1) for number in range(count)]
    arrivals_ns = poisson_ns(load / service_s, count, seed=1)
    _, ends = run(ten_ms, jobs, arrivals_ns, max_batch=1)
    waits_s = [(ends[k].admitted_ns - arrivals_ns[k]) / 1e9 for k in range(count)]
    assert np.mean(waits_s) == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.06)


def test_two_priorities_wait_as_long_as_cobham_says() -> None:
    """No interruption: W_1 = R/(1 − ρ_1), W_2 = R/((1 − ρ_1)·(1 − ρ)), R = ρ·s/2 being what is under way."""
    count, service_s, load, urgent_ratio = 30_000, 0.010, 0.7, 0.4
    urgent = np.random.default_rng(10).random(count) < urgent_ratio
    jobs = [Job(number, 10, 1, priority=int(urgent[number])) for number in range(count)]
    arrivals_ns = poisson_ns(load / service_s, count, seed=11)
    _, ends = run(ten_ms, jobs, arrivals_ns, max_batch=1)
    waits_s = np.array([ends[k].admitted_ns - arrivals_ns[k] for k in range(count)]) / 1e9
    rest_s, first = load * service_s / 2, load * urgent_ratio
    assert waits_s[urgent].mean() == pytest.approx(rest_s / (1 - first), rel=0.05)
    assert waits_s[~urgent].mean() == pytest.approx(rest_s / ((1 - first) * (1 - load)), rel=0.08)


@pytest.mark.parametrize("seats", [2, 8])
def test_a_bus_makes_its_passengers_wait_until_it_is_full(seats: int) -> None:
    """Mean (B − 1)/(2λ), the first passenger (B − 1)/λ, the last one not at all; a ride is short."""
    count, rate_per_s = 16_000, 50.0

    def ride(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
        return 1e-6

    arrivals_ns = poisson_ns(rate_per_s, count, seed=12)
    jobs = [Job(number, 10, 1) for number in range(count)]
    _, ends = run(ride, jobs, arrivals_ns, max_batch=seats, batching="static")
    waits_s = np.array([ends[k].admitted_ns - arrivals_ns[k] for k in range(count)]).reshape(-1, seats) / 1e9
    assert waits_s.mean() == pytest.approx((seats - 1) / (2 * rate_per_s), rel=0.04)
    assert waits_s[:, 0].mean() == pytest.approx((seats - 1) / rate_per_s, rel=0.04)
    assert waits_s[:, -1].mean() < 1e-4


def test_who_comes_to_a_busy_continuous_batch_waits_half_a_step() -> None:
    count = 4000
    arrivals_ns = poisson_ns(20.0, count, seed=13)
    jobs = [Job(0, 10, 100_000)] + [Job(number, 10, 1) for number in range(1, count)]
    _, ends = run(ten_ms, jobs, arrivals_ns, max_batch=64)
    waits_ms = np.array([ends[k].admitted_ns - arrivals_ns[k] for k in range(1, count)]) / MS
    assert waits_ms.mean() == pytest.approx(5.0, rel=0.04)
    assert waits_ms.std() == pytest.approx(10 / np.sqrt(12), rel=0.04)
    assert 0 <= waits_ms.min() <= waits_ms.max() <= 10


def test_one_stream_alone_decodes_at_the_floor() -> None:
    law = roofline.law(config.load("h100-70b").deployment)
    _, ends = run(roofline.step_function(law), [Job(0, 1, 200)], [0], max_batch=64)
    gap_s = float(np.mean(np.diff(ends[0].token_ns))) / 1e9
    assert gap_s == pytest.approx(roofline.floor_s(law), rel=2e-3)


@pytest.mark.parametrize("mode", MODES)
def test_littles_law_holds_for_everyone_in_the_system(mode: str) -> None:
    """L = λ·W, with L integrated over steps and W taken from the jobs: two different records."""
    count = 1000
    rng = np.random.default_rng(4)
    jobs = [Job(k, int(rng.integers(1, 1500)), int(rng.integers(2, 60))) for k in range(count)]
    arrivals_ns = poisson_ns(25.0, count, seed=5)
    steps, ends = run(mixed, jobs, arrivals_ns, max_batch=16, **MODES[mode])
    # Decoding sequences: between their first and last token, integrated step by step.
    if not any(step.preempted for step in steps) and "pause" not in mode:
        area = sum(step.decode_sequences * (step.ended_ns - step.started_ns) for step in steps)
        assert area == sum(done.ended_ns - done.first_token_ns for done in ends.values())
    # Everyone: arrivals and departures against in-system counts at the ends of steps.
    at_ns = np.array([step.ended_ns for step in steps])
    inside = np.array([step.running + step.waiting for step in steps])
    arrived = np.searchsorted(arrivals_ns, at_ns, side="right")
    left = np.searchsorted(np.sort([done.ended_ns for done in ends.values()]), at_ns, side="right")
    late = arrived - left - inside  # arrived during the step, and not seen by it yet
    assert np.all(late >= 0)
    begun_ns = np.array([step.started_ns for step in steps])
    arrived_during = arrived - np.searchsorted(arrivals_ns, begun_ns, side="right")
    assert np.all(late <= arrived_during)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "static"])
def test_work_is_conserved_whatever_the_batch(mode: str) -> None:
    """Busy whenever somebody is there: the engine idles exactly while everyone who came has left."""
    count = 500
    rng = np.random.default_rng(6)
    jobs = [Job(k, int(rng.integers(1, 800)), int(rng.integers(1, 40))) for k in range(count)]
    arrivals_ns = poisson_ns(12.0, count, seed=7)
    for max_batch in (1, 4, 64):
        steps, ends = run(mixed, jobs, arrivals_ns, max_batch=max_batch, **MODES[mode])
        assert len(ends) == count
        edges = sorted(
            [(at_ns, 1) for at_ns in arrivals_ns] + [(done.ended_ns, -1) for done in ends.values()]
        )
        someone_ns, level, since_ns = 0, 0, 0
        for at_ns, change in edges:
            someone_ns += (at_ns - since_ns) * (level > 0)
            level, since_ns = level + change, at_ns
        assert someone_ns == sum(step.ended_ns - step.started_ns for step in steps)


@pytest.mark.parametrize("mode", MODES)
def test_first_come_is_first_admitted(mode: str) -> None:
    rng = np.random.default_rng(8)
    jobs = [Job(k, int(rng.integers(1, 3000)), int(rng.integers(1, 30))) for k in range(500)]
    arrivals_ns = poisson_ns(40.0, 500, seed=9)
    _, ends = run(mixed, jobs, arrivals_ns, max_batch=8, **{"kv_tokens": 12_000, **MODES[mode]})
    firsts_ns = [ends[k].first_token_ns for k in range(500)]
    assert firsts_ns == sorted(firsts_ns)


def test_saturated_throughput_is_the_batch_over_the_step() -> None:
    jobs = [Job(k, 1, 100) for k in range(400)]
    steps, _ = run(ten_ms, jobs, [0] * 400, max_batch=20)
    full = [step for step in steps if step.decode_sequences == 20]
    tokens = sum(step.generated_tokens for step in steps)
    assert len(full) > 1500
    assert tokens / (steps[-1].ended_ns / 1e9) == pytest.approx(20 / 0.010, rel=0.02)
