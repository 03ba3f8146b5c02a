"""Speculative decoding: tokens a step and its duration against closed forms, books against adding up."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.engine import Engine, Finished, Job, Limits, StepDone
from mockserver.speculation import Coming, Drafting, smoothed, tokens_per_step
from mockserver.tier_config import Speculation

MS = 1_000_000


def law(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 1e-3 + 100e-6 * batch + 1e-6 * context + 10e-6 * prefill + 1e-9 * pairs


def engine(speculation: Speculation | None, **more: object) -> Engine:
    limits = {"max_batch": 64, "step_tokens": 4096, "prefill_tokens": 1024, "kv_tokens": 10**6}
    return Engine(law, Limits(**{**limits, **more}), speculation=speculation)  # type: ignore[arg-type]


def finished(steps: list[StepDone]) -> dict[int, Finished]:
    return {done.job.id: done for step in steps for done in step.finished}


@pytest.mark.parametrize(
    ("draft", "acceptance", "expected"), [(3, 0.7, 2.533), (3, 0.8, 2.952), (1, 0.5, 1.5), (5, 0.0, 1.0)]
)
def test_a_step_brings_as_many_tokens_as_the_geometric_sum_says(
    draft: int, acceptance: float, expected: float
) -> None:
    """(1 − a^(g+1))/(1 − a)."""
    speculation = Speculation(draft_tokens=draft, acceptance_ratio=acceptance)
    assert tokens_per_step(speculation) == pytest.approx(expected, abs=5e-4)
    server = engine(speculation)
    for number in range(4):
        server.submit(Job(number, 10, 5000), 0)
    steps = [step for step in server.advance(10**13) if step.decode_sequences == 4]
    each = sum(step.generated_tokens for step in steps) / (4 * len(steps))
    assert each == pytest.approx(expected, rel=0.02)
    accepted = sum(step.accepted_tokens for step in steps) / (4 * len(steps))
    assert accepted == pytest.approx(expected - 1, abs=0.05)


def test_a_step_lasts_as_long_as_all_drafted_tokens_and_the_draft_take() -> None:
    """T = B(g + 1) tokens are computed, each drafted one attends to its context; KV is read once."""
    server = engine(Speculation(draft_tokens=3, acceptance_ratio=0.5, draft_s=0.002))
    for number in range(5):
        server.submit(Job(number, 100, 200), 0)
    steps = [step for step in server.advance(10**12) if step.decode_sequences == 5]
    assert len(steps) > 50
    for step in steps:
        pairs = 3 * step.context_tokens + 5 * (1 + 2 + 3)
        expected_s = law(5, step.context_tokens, 15, 0, pairs) + 3 * 0.002
        assert (step.ended_ns - step.started_ns) / 1e9 == pytest.approx(expected_s, abs=1e-9)


def test_prefill_alone_drafts_nothing() -> None:
    server = engine(Speculation(draft_s=1.0))
    server.submit(Job(0, 100, 1), 0)
    (step,) = server.advance(10**12)
    assert step.ended_ns == pytest.approx(1e9 * law(0, 0, 100, 0, 5000), abs=1)
    assert step.emitted_tokens == (1,)


def test_context_and_tokens_are_what_adding_up_every_sequence_would_give() -> None:
    server = engine(Speculation(draft_tokens=4, acceptance_ratio=0.8), max_batch=5, prefill_tokens=64)
    jobs = {number: Job(number, 40 + 30 * number, 1 + 9 * number) for number in range(12)}
    for job in jobs.values():
        server.submit(job, job.id * 3 * MS)
    steps = server.advance(40 * MS)
    server.cancel(3, 40 * MS)
    steps += server.advance(10**12)
    had = dict.fromkeys(jobs, 0)
    for step in steps:
        decoding = [
            job
            for job in jobs.values()
            if 0 < had[job.id] < job.output_tokens and (job.id != 3 or step.started_ns < 40 * MS)
        ]
        assert step.decode_sequences == len(decoding)
        assert step.context_tokens == sum(job.prompt_tokens + had[job.id] for job in decoding)
        assert step.emitted_tokens is not None
        for job_id, count in zip(step.emitted, step.emitted_tokens, strict=True):
            had[job_id] += count
        assert step.generated_tokens == sum(step.emitted_tokens)
        assert step.accepted_tokens <= step.drafted_tokens == 4 * step.decode_sequences
    ends = finished(steps)
    assert set(ends) == set(jobs) - {3}
    for job_id, done in ends.items():
        told = []
        for step in steps:
            mine = dict(zip(step.emitted, step.emitted_tokens or (), strict=True))
            told += [step.ended_ns] * mine.get(job_id, 0)
        assert done.token_ns.tolist() == told
        assert len(done.token_ns) == had[job_id] == jobs[job_id].output_tokens


def test_drafts_take_their_share_of_the_step_budget() -> None:
    server = engine(Speculation(draft_tokens=3), step_tokens=500, prefill_tokens=1000)
    for number in range(40):
        server.submit(Job(number, 1, 1000), 0)
    server.submit(Job(99, 3000, 1), 100 * MS)
    chunks = [step.prefill_tokens for step in server.advance(10**12) if step.prefill_tokens > 40]
    assert chunks[:3] == [340, 340, 340]


def test_memory_grows_by_what_a_step_really_brings_and_not_beyond_its_budget() -> None:
    server = engine(
        Speculation(draft_tokens=3, acceptance_ratio=0.9), kv_tokens=1500, when_kv_is_full="preempt"
    )
    for number in range(12):
        server.submit(Job(number, 50, 700), 0)
    steps = server.advance(10**12)
    assert max(step.kv_tokens for step in steps) > 1480
    assert all(step.context_tokens + step.generated_tokens <= 1500 for step in steps)
    assert all(len(done.token_ns) == 700 for done in finished(steps).values())
    assert sum(done.preemptions for done in finished(steps).values()) > 0


@given(
    tokens=st.lists(st.integers(1, 3000), min_size=1, max_size=20),
    acceptance=st.sampled_from([0.0, 0.3, 0.95]),
)
def test_a_pattern_ends_with_exactly_the_tokens_asked_for(tokens: list[int], acceptance: float) -> None:
    drafting = Drafting(Speculation(draft_tokens=6, acceptance_ratio=acceptance), "s")
    for count in tokens:
        pattern = drafting.pattern(count)
        assert pattern.sum(dtype=int) == count
        assert 1 <= pattern.min() <= pattern.max() <= 7


def test_patterns_past_the_end_of_what_was_drawn_at_once_are_whole_too() -> None:
    drafting = Drafting(Speculation(draft_tokens=1, acceptance_ratio=0.1), "s")
    assert [int(drafting.pattern(count).sum()) for count in (10_000, 10_000, 50_000, 3)] == [
        10_000,
        10_000,
        50_000,
        3,
    ]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 400), st.booleans()), max_size=12))
def test_what_comes_is_what_adding_up_all_patterns_gives(calls: list[tuple[int, int, bool]]) -> None:
    coming, expected, step = Coming(), np.zeros(20_000, dtype=int), 0
    rng = np.random.default_rng(1)
    for length, passed, leaves in calls:
        counts = rng.integers(1, 9, size=length).astype(np.uint8)
        coming.add(step, counts)
        expected[step : step + length] += counts
        for _ in range(passed):
            assert coming.at(step) == expected[step]
            assert coming.take(step) == expected[step]
            step += 1
        if leaves and passed < length:
            coming.remove(step, counts[passed:])
            expected[step : step + length - passed] -= counts[passed:]
    for _ in range(3100):
        assert coming.take(step) == expected[step]
        step += 1


def test_smoothing_spreads_a_steps_tokens_over_the_time_the_last_one_took() -> None:
    ends, counts = np.array([100, 200, 300, 440]), np.array([1, 4, 2, 3])
    assert smoothed(ends, counts).tolist() == [100, 200, 225, 250, 275, 300, 350, 440, 486, 533]


def test_a_step_that_ends_early_takes_along_what_was_held_back() -> None:
    ends, counts = np.array([100, 200, 220, 230]), np.array([1, 4, 2, 1])
    assert smoothed(ends, counts).tolist() == [100, 200, 220, 220, 220, 220, 230, 230]


@given(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 8)), min_size=1, max_size=30))
def test_smoothed_tokens_keep_their_order_and_leave_after_their_step_and_before_the_next(
    steps: list[tuple[int, int]],
) -> None:
    ends = np.cumsum([gap for gap, _ in steps])
    counts = np.array([count for _, count in steps])
    instants = smoothed(ends, counts)
    assert len(instants) == counts.sum()
    assert all(earlier <= later for earlier, later in pairwise(instants.tolist()))
    assert (instants >= np.repeat(ends, counts)).all()
    last_of_step = np.cumsum(counts)[:-1] - 1
    assert (instants[last_of_step] <= ends[1:]).all()
    firsts = np.cumsum(counts) - counts
    assert (instants[firsts] == ends).all()
