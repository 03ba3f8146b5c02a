"""Memory taken by need: who is thrown out, what that costs, and what nobody sees of it."""

import numpy as np
import pytest

from mockserver.background import Background, Lengths
from mockserver.engine import Engine, Finished, Job, Limits, StepDone

MS = 1_000_000


def law(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 1e-3 * batch + 1e-5 * prefill


def engine(kv_tokens: int, **more: object) -> Engine:
    limits = {"max_batch": 16, "step_tokens": 4096, "prefill_tokens": 2048, "when_kv_is_full": "preempt"}
    return Engine(law, Limits(**{**limits, **more}, kv_tokens=kv_tokens))  # type: ignore[arg-type]


def finished(steps: list[StepDone]) -> dict[int, Finished]:
    return {done.job.id: done for step in steps for done in step.finished}


def test_memory_by_need_admits_who_would_wait_with_whole_reservations() -> None:
    both = {}
    for policy in ("preempt", "queue"):
        server = engine(1000, when_kv_is_full=policy)
        for number in range(2):
            server.submit(Job(number, 100, 450), 0)
        both[policy] = [(s.waiting, s.running, s.kv_tokens) for s in server.advance(3 * MS)]
    # One job's prefill is under way when the second comes; with its whole output only one fits.
    assert both["preempt"][-1][:2] == (0, 2)
    assert both["queue"][-1] == (1, 1, 550)


def test_the_youngest_is_thrown_out_and_computed_again_prompt_and_output() -> None:
    """Both hold 101 tokens after their prefill in one step; each step adds one, until 300 are held."""
    server = engine(300)
    server.submit(Job(9, 1, 2), 0)  # lets the two others be admitted to one step
    server.submit(Job(0, 100, 150), 0)
    server.submit(Job(1, 100, 150), 0)
    steps = server.advance(10**12)
    thrown = next(step for step in steps if step.preempted)
    before = steps[thrown.number - 1]
    assert before.kv_tokens == 300  # full to the last token: nothing was thrown out early
    assert (thrown.preempted, thrown.decode_sequences, thrown.kv_tokens) == (1, 1, 151)
    ends = finished(steps)
    assert (ends[0].preemptions, ends[1].preemptions) == (0, 1)
    # It comes back when the other has left, and is computed again: prompt and the 50 tokens it had.
    again = next(step for step in steps[thrown.number :] if step.prefill_tokens)
    assert again.prefill_tokens == 150
    assert again.started_ns == ends[0].ended_ns
    assert again.emitted == (1,)


@pytest.mark.parametrize("chunk", [2048, 16])
def test_what_was_sent_is_not_sent_again_and_nothing_is_left_out(chunk: int) -> None:
    """With small chunks some are thrown out while they are being computed again."""
    server = engine(1500, prefill_tokens=chunk)
    jobs = [Job(number, 50 + 37 * number, 100 + 53 * number) for number in range(12)]
    for job in jobs:
        server.submit(job, job.id * MS)
    steps = server.advance(10**12)
    ends = finished(steps)
    assert sum(step.preempted for step in steps) == sum(done.preemptions for done in ends.values()) > 5
    for job in jobs:
        told = [step.ended_ns for step in steps if job.id in step.emitted]
        assert ends[job.id].token_ns.tolist() == told
        assert len(told) == job.output_tokens
    assert sum(step.generated_tokens for step in steps) == sum(job.output_tokens for job in jobs)
    assert sum(len(step.started) for step in steps) == len(jobs)


def test_a_last_token_may_come_by_computing_again() -> None:
    server = engine(300)
    server.submit(Job(9, 1, 2), 0)
    server.submit(Job(0, 100, 150), 0)
    server.submit(Job(1, 100, 51), 0)
    steps = server.advance(10**12)
    done = finished(steps)[1]
    assert done.preemptions == 1
    assert done.token_ns.tolist() == [step.ended_ns for step in steps if 1 in step.emitted]
    assert done.ended_ns == next(step.ended_ns for step in steps if step.prefill_tokens == 150)


def test_hidden_sequences_that_are_thrown_out_are_not_replaced_by_new_ones() -> None:
    hidden = Background(
        target_batch=5, prompt=Lengths(200.0, 0.5, 500), output=Lengths(200.0, 0.5, 500), seed="h"
    )
    limits = Limits(16, 4096, 2048, 1200, when_kv_is_full="preempt")
    steps = Engine(law, limits, background=hidden).advance(30 * 10**9)
    assert sum(step.preempted for step in steps) > 50
    assert max(step.running + step.waiting for step in steps) == 5
    assert min(step.running + step.waiting for step in steps) >= 3  # those that ended in this very step


def test_memory_is_used_to_the_last_token_and_never_beyond() -> None:
    server = engine(1500)
    for number in range(12):
        server.submit(Job(number, 50, 700), 0)
    steps = server.advance(10**12)
    assert max(step.kv_tokens for step in steps) == 1500
    assert all(step.context_tokens + step.generated_tokens <= 1500 for step in steps if step.decode_sequences)


def test_a_higher_priority_is_thrown_out_last() -> None:
    server = engine(1200)
    for number in range(6):
        server.submit(Job(number, 100, 500, priority=number % 2), 0)
    ends = finished(server.advance(10**12))
    low, high = ([ends[n].preemptions for n in range(6) if n % 2 == priority] for priority in (0, 1))
    # Three of the higher one need 1800 at most and 1200 are there: of them, only the youngest ever goes.
    assert min(low) > 0
    assert (high[0], high[1]) == (0, 0)


def test_a_higher_priority_overtakes_those_who_wait_and_not_those_who_run() -> None:
    server = Engine(law, Limits(max_batch=1, step_tokens=4096, prefill_tokens=2048, kv_tokens=10_000))
    for number, priority in enumerate((0, 0, 0, 5, 1)):
        server.submit(Job(number, 100, 10, priority=priority), number)
    ends = finished(server.advance(10**12))
    order = sorted(ends, key=lambda number: ends[number].first_token_ns)
    assert order == [0, 3, 4, 1, 2]


def test_mean_batch_and_steps_are_those_of_the_steps_told() -> None:
    server = engine(100_000)
    for number in range(10):
        server.submit(Job(number, 100, 1 + 31 * number), number * 5 * MS)
    steps = server.advance(10**12)
    for done in finished(steps).values():
        mine = [step for step in steps if done.job.id in step.emitted]
        assert done.steps == len(mine)
        decoded = [step.decode_sequences for step in mine[1:]]
        assert done.mean_batch == pytest.approx(np.mean(decoded) if decoded else 0.0)


def test_a_job_thrown_out_has_the_mean_batch_of_the_steps_it_was_in() -> None:
    """Two together until memory is full, then one after the other, alone."""
    server = engine(300)
    server.submit(Job(9, 1, 2), 0)
    server.submit(Job(0, 100, 150), 0)
    server.submit(Job(1, 100, 150), 0)
    ends = finished(server.advance(10**12))
    # 49 steps together and 100 alone; the tokens that prefill brings come in no decode step.
    assert ends[0].mean_batch == pytest.approx((49 * 2 + 1 + 99 * 1) / 149, abs=0.02)
    assert ends[1].mean_batch == pytest.approx((49 * 2 + 1 + 99 * 1) / 148, abs=0.02)


def test_queue_and_end_to_end_times_add_up() -> None:
    server = Engine(
        law, Limits(max_batch=2, step_tokens=4096, prefill_tokens=64, kv_tokens=10_000), ingest_ns=7
    )
    for number in range(20):
        server.submit(Job(number, 100, 1 + number), number * MS)
    steps = server.advance(10**12)
    started = {begun.job_id: begun for step in steps for begun in step.started}
    for step in steps:
        assert step.ttft_ns == tuple(s.first_token_ns - s.submitted_ns for s in step.started)
        assert step.queue_ns == tuple(s.admitted_ns - s.submitted_ns for s in step.started)
        assert step.e2e_ns == tuple(done.ended_ns - done.submitted_ns for done in step.finished)
        assert step.decode_ns == tuple(done.ended_ns - done.first_token_ns for done in step.finished)
        for begun in step.started:
            # The first step of two chunks began one step earlier.
            assert begun.admitted_ns < step.started_ns
    assert {done.admitted_ns for done in finished(steps).values()} == {
        s.admitted_ns for s in started.values()
    }


def test_an_engine_that_keeps_no_tokens_tells_the_same_of_everything_else() -> None:
    limits = Limits(8, 1024, 512, 1500, when_kv_is_full="preempt")
    ends = []
    for keep in (True, False):
        server = Engine(law, limits, keep_tokens=keep)
        for number in range(20):
            server.submit(Job(number, 80, 1 + 15 * number), number * MS)
        ends.append(finished(server.advance(10**12)))
    for kept, light in zip(ends[0].values(), ends[1].values(), strict=True):
        assert light.token_ns.tolist() == sorted({kept.first_token_ns, kept.ended_ns})
        assert (light.mean_batch, light.steps, light.preemptions) == (
            kept.mean_batch,
            kept.steps,
            kept.preemptions,
        )
