"""The engine against closed forms, conservation laws and its promise that looking late changes nothing."""

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.background import Background, Lengths
from mockserver.engine import Engine, Finished, Job, Limits, StepDone
from mockserver.roofline import StepFunction
from mockserver.tier_config import PrefixCache, Speculation

MS = 1_000_000


def constant(step_ms: float) -> StepFunction:
    return lambda batch, context, prefill, cached, pairs: step_ms / 1e3


def affine(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    """A law whose every input shows: microseconds per unit, distinct for each."""
    return 1e-3 + 100e-6 * batch + 1e-6 * context + 10e-6 * prefill + 0.5e-6 * cached + 1e-9 * pairs


def limits(
    *, max_batch: int = 64, step: int = 4096, prefill: int = 1024, kv_tokens: int = 1_000_000
) -> Limits:
    return Limits(max_batch=max_batch, step_tokens=step, prefill_tokens=prefill, kv_tokens=kv_tokens)


def load(target: int, *, seed: str = "a", wander: float = 0.0) -> Background:
    return Background(
        target_batch=target,
        prompt=Lengths(300.0, 0.8, 10_000),
        output=Lengths(80.0, 0.8, 10_000),
        seed=seed,
        wander_ratio=wander,
    )


def finishes(steps: list[StepDone]) -> list[Finished]:
    return [done for step in steps for done in step.finished]


def test_one_job_alone_takes_the_sum_of_its_steps() -> None:
    engine = Engine(affine, limits(), ingest_ns=15 * MS)
    engine.submit(Job(0, prompt_tokens=2500, output_tokens=4), 1000)
    (done,) = finishes(engine.advance(10**12))
    chunks = [(1024, 0), (1024, 1024), (452, 2048)]
    prefill_s = sum(1e-3 + 10e-6 * n + 0.5e-6 * c + 1e-9 * (n * c + n * n / 2) for n, c in chunks)
    first_ns = 1000 + 15 * MS + round(prefill_s * 1e9)
    decode_s = [1e-3 + 100e-6 + 1e-6 * (2500 + k) for k in (1, 2, 3)]
    expected = first_ns + np.concatenate(([0], np.cumsum(decode_s) * 1e9))
    assert done.token_ns == pytest.approx(expected, abs=6)  # each step is rounded to the nanosecond
    assert done.submitted_ns == 1000


def test_a_job_of_one_token_ends_with_its_prefill() -> None:
    engine = Engine(constant(5), limits())
    engine.submit(Job(3, 10, 1), 7)
    (step,) = engine.advance(10**9)
    assert step.emitted == (3,)
    assert [done.token_ns.tolist() for done in step.finished] == [[7 + 5 * MS]]
    assert (step.running, step.waiting, step.kv_tokens) == (0, 0, 0)


def test_an_idle_engine_starts_at_the_instant_of_submission() -> None:
    engine = Engine(constant(10), limits())
    engine.submit(Job(0, 10, 1), 0)
    engine.submit(Job(1, 10, 1), 123 * MS)
    assert [step.started_ns for step in engine.advance(10**9)] == [0, 123 * MS]


@pytest.mark.parametrize("at_ms", [94, 95, 96])
def test_a_job_joins_the_step_that_begins_when_it_is_ready_or_the_next(at_ms: int) -> None:
    """Steps of 10 ms, ingest of 5: who is submitted at 95 is ready at the very instant at which one ends."""
    engine = Engine(constant(10), limits(), ingest_ns=5 * MS, start_ns=-5 * MS)
    engine.submit(Job(0, 10, 1000), -5 * MS)
    engine.submit(Job(1, 10, 1), at_ms * MS)
    done = next(done for done in finishes(engine.advance(10**12)) if done.job.id == 1)
    assert done.admitted_ns == (100 if at_ms <= 95 else 110) * MS


def test_the_ends_of_steps_are_kept_no_longer_than_a_running_job_needs_them() -> None:
    engine = Engine(constant(1), limits(max_batch=2), background=load(2))
    for number in range(10):
        engine.submit(Job(number, 10, 1500), number * 2000 * MS)
    steps = engine.advance(25 * 10**9)
    assert len(steps) > 15_000
    assert len(finishes(steps)) == 10
    assert len(engine._instants) < 9000


def test_steps_follow_each_other_without_a_gap_while_there_is_work() -> None:
    engine = Engine(affine, limits(max_batch=3))
    for number in range(20):
        engine.submit(Job(number, 200 + 50 * number, 5 + number), number)
    steps = engine.advance(10**12)
    assert len(finishes(steps)) == 20
    assert all(before.ended_ns == after.started_ns for before, after in pairwise(steps))


def test_every_token_and_every_prompt_token_is_counted_once() -> None:
    engine = Engine(affine, limits(max_batch=4, prefill=100))
    jobs = [Job(number, 30 + 70 * number, 1 + number) for number in range(15)]
    for job in jobs:
        engine.submit(job, job.id * MS)
    steps = engine.advance(10**12)
    assert sum(step.prefill_tokens for step in steps) == sum(job.prompt_tokens for job in jobs)
    assert sum(step.generated_tokens for step in steps) == sum(job.output_tokens for job in jobs)
    emitted = [job_id for step in steps for job_id in step.emitted]
    assert [emitted.count(job.id) for job in jobs] == [job.output_tokens for job in jobs]


def test_token_instants_are_the_ends_of_the_steps_that_emitted_them() -> None:
    engine = Engine(affine, limits(), background=load(10))
    for number in range(8):
        engine.submit(Job(number, 400, 30), number * 20 * MS)
    steps = engine.advance(3 * 10**9)
    for done in finishes(steps):
        told = [step.ended_ns for step in steps if done.job.id in step.emitted]
        assert done.token_ns.tolist() == told


def test_context_is_what_adding_up_every_sequence_would_give() -> None:
    engine = Engine(affine, limits(prefill=64, max_batch=5))
    jobs = {number: Job(number, 40 + 30 * number, 20 + number) for number in range(9)}
    for job in jobs.values():
        engine.submit(job, job.id * 3 * MS)
    had = dict.fromkeys(jobs, 0)
    for step in engine.advance(10**12):
        decoding = [job for job in jobs.values() if 0 < had[job.id] < job.output_tokens]
        assert step.decode_sequences == len(decoding)
        assert step.context_tokens == sum(job.prompt_tokens + had[job.id] for job in decoding)
        for job_id in step.emitted:
            had[job_id] += 1


def test_decoding_eats_into_the_chunk_only_when_the_step_budget_says_so() -> None:
    roomy = Engine(affine, limits(step=1024 + 64, prefill=1024))
    tight = Engine(affine, limits(step=1024, prefill=1024))
    for engine in (roomy, tight):
        for number in range(40):
            engine.submit(Job(number, 1, 1000), 0)
        engine.submit(Job(99, 3000, 1), 100 * MS)
    chunks = [
        [step.prefill_tokens for step in engine.advance(10**12) if step.prefill_tokens > 40]
        for engine in (roomy, tight)
    ]
    assert chunks == [[1024, 1024, 952], [984, 984, 984, 48]]


def test_the_hidden_load_keeps_the_batch_at_its_target_from_the_first_step() -> None:
    engine = Engine(affine, limits(), background=load(20))
    steps = engine.advance(20 * 10**9)
    batches = np.array([step.decode_sequences for step in steps])
    assert steps[0].started_ns == 0
    assert batches[0] == 20
    assert batches.max() == 20
    assert batches.mean() == pytest.approx(20, rel=0.03)


def test_own_requests_displace_hidden_ones() -> None:
    engine = Engine(affine, limits(), background=load(20))
    for number in range(12):
        engine.submit(Job(number, 100, 400), 10**9 + number)
    steps = [step for step in engine.advance(3 * 10**9) if len(step.emitted) == 12]
    assert len(steps) > 100
    assert {step.decode_sequences for step in steps[1:]} <= {18, 19, 20}


def test_own_requests_above_the_target_make_the_batch_larger() -> None:
    engine = Engine(affine, limits(), background=load(3))
    for number in range(10):
        engine.submit(Job(number, 100, 400), 10**9)
    steps = [step for step in engine.advance(3 * 10**9) if len(step.emitted) == 10]
    assert {step.decode_sequences for step in steps[1:]} == {10}


def test_a_warm_start_is_no_different_from_later() -> None:
    """Contexts met at time zero have the mean of those met after the first generation has gone."""
    early, late = [], []
    for seed in range(60):
        engine = Engine(constant(10), limits(max_batch=100), background=load(30, seed=str(seed)))
        early.append(engine.advance(10 * MS)[0].context_tokens / 30)
        if seed % 4 == 0:
            steps = engine.advance(30 * 10**9)[1000:]
            late.append(np.mean([step.context_tokens / step.decode_sequences for step in steps]))
    error = np.std(early) / np.sqrt(60)
    assert np.mean(early) == pytest.approx(np.mean(late), abs=4 * error)
    assert np.mean(late) == pytest.approx(300 + 0.5 * 80 * (1 + 0.8**2), rel=0.03)


def test_the_modulation_has_the_spread_that_was_asked_for() -> None:
    background = load(1000, wander=0.1)
    wanted = np.array([background.desired(second * 10**9) for second in range(40_000)])
    assert wanted.mean() == pytest.approx(1000, rel=0.01)
    assert wanted.std() == pytest.approx(100, rel=0.05)
    apart = np.corrcoef(wanted[:-10], wanted[10:])[0, 1]  # one correlation time is 10 s: e^-1
    assert apart == pytest.approx(np.exp(-1), abs=0.05)


def test_noise_leaves_the_mean_step_alone() -> None:
    engine = Engine(constant(10), limits(), noise_ratio=0.05, seed="n")
    engine.submit(Job(0, 10, 20_000), 0)
    (done,) = finishes(engine.advance(10**13))
    gaps_ms = np.diff(done.token_ns) / MS
    assert gaps_ms.mean() == pytest.approx(10, rel=0.002)
    assert gaps_ms.std() == pytest.approx(0.5, rel=0.03)


def test_a_cancelled_job_gives_back_its_slot_and_its_memory() -> None:
    engine = Engine(constant(10), limits(max_batch=1, kv_tokens=1000))
    engine.submit(Job(0, 500, 500), 0)
    engine.submit(Job(1, 500, 500), 0)
    assert engine.cancel(0, 35 * MS)
    assert not engine.cancel(0, 35 * MS)
    (done,) = finishes(engine.advance(10**12))
    assert done.job.id == 1
    assert done.first_token_ns == 50 * MS  # the step that was running ends at 40, the next one serves it


@pytest.mark.parametrize("job", [Job(-1, 1, 1), Job(0, 0, 1), Job(0, 1, 0), Job(0, 900, 101), Job(7, 1, 1)])
def test_a_job_that_can_never_run_is_refused(job: Job) -> None:
    engine = Engine(constant(10), limits(kv_tokens=1000))
    engine.submit(Job(7, 10, 10), 0)
    with pytest.raises(ValueError, match="Job"):
        engine.submit(job, 0)


def test_time_that_runs_backwards_is_refused() -> None:
    engine = Engine(constant(10), limits())
    engine.submit(Job(0, 10, 10), 500)
    with pytest.raises(ValueError, match="backwards"):
        engine.submit(Job(1, 10, 10), 499)


CALLS = st.lists(
    st.tuples(
        st.integers(0, 40 * MS),  # gap since the previous call
        st.sampled_from(["submit", "submit", "submit", "cancel"]),
        st.integers(1, 3000),  # prompt tokens
        st.integers(1, 40),  # output tokens
        st.integers(0, 30),  # which job to cancel
        st.lists(st.integers(0, 40 * MS), max_size=3),  # looks in between
    ),
    max_size=25,
)


def play(calls: list[tuple[int, str, int, int, int, list[int]]], *, looking: bool) -> list[StepDone]:
    engine = Engine(
        affine,
        limits(max_batch=6, kv_tokens=9000),
        background=load(2, wander=0.2),
        ingest_ns=5 * MS,
        noise_ratio=0.1,
    )
    now_ns, steps = 0, []
    for number, (gap, call, prompt, output, victim, looks) in enumerate(calls):
        if looking:
            for look in sorted(min(look, gap) for look in looks):
                steps += engine.advance(now_ns + look)
                engine.wakeup_ns()
        now_ns += gap
        if call == "submit":
            engine.submit(Job(number, prompt, output), now_ns)
        else:
            engine.cancel(victim, now_ns)
    return steps + engine.advance(now_ns + 10**9)


@settings(max_examples=60, deadline=None)
@given(calls=CALLS)
def test_a_late_poll_changes_no_event(calls: list[tuple[int, str, int, int, int, list[int]]]) -> None:
    often, never = play(calls, looking=True), play(calls, looking=False)
    assert [told(step) for step in often] == [told(step) for step in never]


def told(step: StepDone) -> tuple[object, ...]:
    """All of a step, comparable: arrays as lists."""
    ends = [(msgspec.structs.replace(done, token_ns=()), done.token_ns.tolist()) for done in step.finished]
    return (msgspec.structs.replace(step, finished=()), ends)


@pytest.mark.parametrize("when_kv_is_full", ["queue", "preempt"])
@pytest.mark.parametrize("prefill", ["chunked", "pause"])
@pytest.mark.parametrize("speculation", [None, Speculation()])
def test_steps_taken_in_one_go_are_those_taken_one_by_one(
    when_kv_is_full: Any, prefill: Any, speculation: Speculation | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = Limits(6, 4096, 512, 4000, prefill=prefill, when_kv_is_full=when_kv_is_full)
    runs = []
    for one_by_one in (False, True):
        if one_by_one:
            monkeypatch.setattr(Engine, "_quiet_steps", lambda self: 0)
        cache = PrefixCache(block_tokens=16)
        engine = Engine(
            affine,
            bounds,
            background=load(3, wander=0.2),
            noise_ratio=0.1,
            ingest_ns=5 * MS,
            prefix_cache=cache,
            speculation=speculation,
        )
        for number in range(40):
            blocks = tuple(range(20)) + tuple(1000 * number + place for place in range(200))
            engine.submit(
                Job(number, 330 + 10 * number, 150, priority=number % 2, blocks=blocks), number * 90 * MS
            )
            engine.cancel(number - 9, number * 90 * MS)
        runs.append([told(step) for step in engine.advance(20 * 10**9)])
    assert runs[0] == runs[1]


def test_waking_up_exactly_when_told_misses_nothing() -> None:
    engine = Engine(affine, limits(), ingest_ns=15 * MS)
    for number in range(5):
        engine.submit(Job(number, 800, 6), number * MS)
    steps: list[StepDone] = []
    while (wakeup_ns := engine.wakeup_ns()) is not None:
        steps += engine.advance(wakeup_ns)
    assert [done.job.id for done in finishes(steps)] == [0, 1, 2, 3, 4]


def test_advancing_to_the_next_finish_tells_the_same_and_stops_at_each() -> None:
    def engine() -> Engine:
        made = Engine(affine, limits(max_batch=3), background=load(2), ingest_ns=5 * MS, noise_ratio=0.1)
        for number in range(8):
            made.submit(Job(number, 300, 5 + 9 * (number % 3)), number * 40 * MS)
        return made

    straight, stops = engine().advance(10**9), engine()
    parts: list[list[StepDone]] = []
    while not parts or parts[-1]:
        parts.append(stops.advance_to_finish(10**9))
    assert [told(step) for part in parts for step in part] == [told(step) for step in straight]
    later = [part for part in parts[1:] if any(step.finished for step in part)]  # submitting looked ahead
    assert later
    assert all(part[-1].finished and not any(step.finished for step in part[:-1]) for part in later)
