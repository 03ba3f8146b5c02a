"""The engine obeys the laws that any queue obeys, whatever its physics."""

import numpy as np
import pytest

from mockserver.engine import Engine, Finished, Job, Limits, StepDone
from mockserver.roofline import StepFunction

MS = 1_000_000


def run(
    step: StepFunction, jobs: list[Job], arrivals_ns: list[int], *, max_batch: int, kv_tokens: int = 10**9
) -> tuple[list[StepDone], dict[int, Finished]]:
    limits = Limits(max_batch=max_batch, step_tokens=4096, prefill_tokens=2048, kv_tokens=kv_tokens)
    engine = Engine(step, limits)
    steps: list[StepDone] = []
    for job, arrival_ns in zip(jobs, arrivals_ns, strict=True):
        engine.submit(job, arrival_ns)
        steps += engine.advance(arrival_ns)
    steps += engine.advance(10**15)
    return steps, {done.job.id: done for step_done in steps for done in step_done.finished}


def poisson_ns(rate_per_s: float, count: int, seed: int) -> list[int]:
    gaps_s = np.random.default_rng(seed).exponential(1 / rate_per_s, size=count)
    return [int(at_ns) for at_ns in np.cumsum(gaps_s) * 1e9]


def ten_ms(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 0.010


def mixed(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 2e-3 + 1e-4 * batch + 1e-7 * context + 1e-5 * prefill


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_slot_and_equal_jobs_wait_as_long_as_in_m_d_1(load: float) -> None:
    """Pollaczek-Khinchine with deterministic service: W = ρ·s / (2·(1 − ρ))."""
    count, service_s = 60_000, 0.010
    jobs = [Job(number, 10, 1) for number in range(count)]
    arrivals_ns = poisson_ns(load / service_s, count, seed=1)
    _, ends = run(ten_ms, jobs, arrivals_ns, max_batch=1)
    waits_s = [(ends[k].ended_ns - arrivals_ns[k]) / 1e9 - service_s for k in range(count)]
    assert np.mean(waits_s) == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.06)


def test_one_slot_and_jobs_of_any_length_wait_as_long_as_in_m_g_1() -> None:
    """Pollaczek-Khinchine: W = λ·E[s²] / (2·(1 − ρ)), with as many equal steps in a job as it has tokens."""
    count, load = 40_000, 0.6
    tokens = np.random.default_rng(2).geometric(0.2, size=count)
    service_s = 0.010 * tokens
    rate_per_s = load / float(np.mean(service_s))
    arrivals_ns = poisson_ns(rate_per_s, count, seed=3)
    jobs = [Job(number, 10, int(tokens[number])) for number in range(count)]
    _, ends = run(ten_ms, jobs, arrivals_ns, max_batch=1)
    waits_s = [(ends[k].ended_ns - arrivals_ns[k]) / 1e9 - service_s[k] for k in range(count)]
    expected_s = rate_per_s * float(np.mean(service_s**2)) / (2 * (1 - load))
    assert np.mean(waits_s) == pytest.approx(expected_s, rel=0.06)


def test_littles_law_holds_for_everyone_in_the_system() -> None:
    """L = λ·W, with L integrated over steps and W taken from the jobs: two different records."""
    count = 4000
    rng = np.random.default_rng(4)
    jobs = [Job(k, int(rng.integers(1, 1500)), int(rng.integers(2, 60))) for k in range(count)]
    arrivals_ns = poisson_ns(25.0, count, seed=5)
    steps, ends = run(mixed, jobs, arrivals_ns, max_batch=16)
    # Decoding sequences: between their first and last token, integrated step by step.
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


def test_work_is_conserved_whatever_the_batch() -> None:
    """Busy whenever somebody is there: the engine idles exactly while everyone who came has left."""
    count = 3000
    rng = np.random.default_rng(6)
    jobs = [Job(k, int(rng.integers(1, 800)), int(rng.integers(1, 40))) for k in range(count)]
    arrivals_ns = poisson_ns(12.0, count, seed=7)
    for max_batch in (1, 4, 64):
        steps, ends = run(mixed, jobs, arrivals_ns, max_batch=max_batch)
        assert len(ends) == count
        edges = sorted(
            [(at_ns, 1) for at_ns in arrivals_ns] + [(done.ended_ns, -1) for done in ends.values()]
        )
        someone_ns, level, since_ns = 0, 0, 0
        for at_ns, change in edges:
            someone_ns += (at_ns - since_ns) * (level > 0)
            level, since_ns = level + change, at_ns
        assert someone_ns == sum(step.ended_ns - step.started_ns for step in steps)


def test_first_come_is_first_admitted() -> None:
    rng = np.random.default_rng(8)
    jobs = [Job(k, int(rng.integers(1, 3000)), int(rng.integers(1, 30))) for k in range(500)]
    _, ends = run(mixed, jobs, poisson_ns(40.0, 500, seed=9), max_batch=8, kv_tokens=12_000)
    firsts_ns = [ends[k].first_token_ns for k in range(500)]
    assert firsts_ns == sorted(firsts_ns)


def test_saturated_throughput_is_the_batch_over_the_step() -> None:
    jobs = [Job(k, 1, 100) for k in range(400)]
    steps, _ = run(ten_ms, jobs, [0] * 400, max_batch=20)
    full = [step for step in steps if step.decode_sequences == 20]
    tokens = sum(step.generated_tokens for step in steps)
    assert len(full) > 1500
    assert tokens / (steps[-1].ended_ns / 1e9) == pytest.approx(20 / 0.010, rel=0.02)
