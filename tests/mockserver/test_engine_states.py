"""Whatever is submitted, cancelled and awaited, in any order and any mode, the engine's promises hold.

Memory stays in budget, no job is lost or doubled, everyone gets the tokens asked for, equals are served in
the order they came, and a late poll changes no event.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mockserver.background import Background, Lengths
from mockserver.engine import Engine, Job, Limits, StepDone
from mockserver.tier_config import PrefixCache, Speculation

KV_TOKENS, MAX_BATCH, CHUNK, BLOCK = 6000, 7, 512, 16
DRAFT = 3


def law(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 1e-3 + 1e-4 * batch + 1e-7 * context + 1e-5 * prefill + 1e-9 * pairs


def busy(seed: str) -> Background:
    return Background(
        target_batch=3,
        prompt=Lengths(400.0, 1.0, 2000),
        output=Lengths(10.0, 1.0, 100),
        seed=seed,
        wander_ratio=0.3,
        wander_s=0.1,
    )


MODES = st.fixed_dictionaries(
    {
        "batching": st.sampled_from(["continuous", "continuous", "static"]),
        "prefill": st.sampled_from(["chunked", "pause"]),
        "when_kv_is_full": st.sampled_from(["queue", "preempt", "preempt"]),
        "speculates": st.booleans(),
        "cache": st.sampled_from(
            [None, PrefixCache(block_tokens=BLOCK), PrefixCache(block_tokens=BLOCK, tokens=2000)]
        ),
        "hidden": st.booleans(),
        "keep_tokens": st.sampled_from([True, True, False]),
    }
)


def engine_of(mode: dict[str, Any]) -> Engine:
    limits = Limits(
        max_batch=MAX_BATCH,
        step_tokens=CHUNK,
        prefill_tokens=CHUNK,
        kv_tokens=KV_TOKENS,
        batching=mode["batching"],
        batch_wait_ns=40_000_000,
        prefill=mode["prefill"],
        when_kv_is_full=mode["when_kv_is_full"],
    )
    return Engine(
        law,
        limits,
        background=busy("s") if mode["hidden"] else None,
        ingest_ns=3_000_000,
        noise_ratio=0.05,
        speculation=Speculation(draft_tokens=DRAFT, acceptance_ratio=0.6) if mode["speculates"] else None,
        prefix_cache=mode["cache"],
        keep_tokens=mode["keep_tokens"],
    )


def job_of(number: int, prompt: int, output: int, priority: int, family: int, common: int) -> Job:
    """A job whose text is its family's for ``common`` tokens, and its own from there on."""
    shared = min(common, prompt) // BLOCK
    blocks = [family * 1000 + place for place in range(shared)]
    blocks += [10**6 * (number + 1) + place for place in range(shared, (prompt + output) // BLOCK)]
    return Job(number, prompt, output, priority=priority, blocks=tuple(blocks))


class EngineUnderUse(RuleBasedStateMachine):
    """Keeps its own books of every job, from events alone, and compares; ``late`` is never looked at."""

    @initialize(mode=MODES)
    def begin(self, mode: dict[str, Any]) -> None:
        self.mode = mode
        self.engine, self.late = engine_of(mode), engine_of(mode)
        self.now_ns = 0
        self.jobs: dict[int, Job] = {}
        self.common: dict[int, int] = {}
        self.alive: set[int] = set()
        self.tokens: dict[int, int] = {}
        self.told: list[StepDone] = []
        self.started: dict[int, tuple[int, int]] = {}  # priority and instant, in order of submission
        self.finished: set[int] = set()
        self.cancelled: set[int] = set()

    @rule(
        prompt=st.integers(1, 4000),
        output=st.integers(1, 60) | st.integers(500, 1500),
        priority=st.integers(0, 2),
        family=st.integers(0, 2),
        common=st.integers(0, 3000),
        wait_ns=st.integers(0, 30_000_000),
    )
    def submit(self, prompt: int, output: int, priority: int, family: int, common: int, wait_ns: int) -> None:
        self.now_ns += wait_ns
        job = job_of(len(self.jobs), prompt, output, priority, family, common)
        self.engine.submit(job, self.now_ns)
        self.late.submit(job, self.now_ns)
        self.jobs[job.id], self.tokens[job.id], self.common[job.id] = job, 0, common
        self.alive.add(job.id)

    @precondition(lambda self: self.jobs)
    @rule(number=st.integers(0, 10_000), wait_ns=st.integers(0, 30_000_000))
    def cancel(self, number: int, wait_ns: int) -> None:
        self.now_ns += wait_ns
        self.look()
        job_id = number % len(self.jobs)
        assert self.engine.cancel(job_id, self.now_ns) == (job_id in self.alive)
        self.late.cancel(job_id, self.now_ns)
        if job_id in self.alive:
            self.alive.remove(job_id)
            self.cancelled.add(job_id)

    @rule(wait_ns=st.integers(0, 200_000_000))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        self.look()

    def look(self) -> None:
        for step in self.engine.advance(self.now_ns):
            self.book(step)
            self.told.append(step)

    def book(self, step: StepDone) -> None:
        self.check_bounds(step)
        assert len(set(step.emitted)) == len(step.emitted)
        counts = step.emitted_tokens or (1,) * len(step.emitted)
        for job_id, count in zip(step.emitted, counts, strict=True):
            assert job_id in self.alive
            assert 1 <= count <= 1 + DRAFT * self.mode["speculates"]
            self.tokens[job_id] += count
        for begun in step.started:
            job = self.jobs[begun.job_id]
            assert begun.job_id not in self.started
            assert begun.submitted_ns <= begun.admitted_ns < begun.first_token_ns == step.ended_ns
            assert begun.cached_tokens <= min(self.common[job.id], job.prompt_tokens - 1)
            self.started[job.id] = (job.priority, step.ended_ns)
        for done in step.finished:
            self.alive.remove(done.job.id)
            self.finished.add(done.job.id)
            assert done.job == self.jobs[done.job.id]
            assert done.ended_ns == step.ended_ns
            assert done.first_token_ns == self.started[done.job.id][1]
            assert sorted(done.token_ns) == done.token_ns.tolist()
            assert 0 <= done.mean_batch <= MAX_BATCH
            if self.mode["keep_tokens"]:
                assert len(done.token_ns) == self.tokens[done.job.id] == done.job.output_tokens

    def check_bounds(self, step: StepDone) -> None:
        assert 0 <= step.kv_tokens <= step.kv_tokens + step.cached_kv_tokens <= KV_TOKENS
        assert step.running <= MAX_BATCH
        drafted = DRAFT * self.mode["speculates"]
        assert step.prefill_tokens <= max(0, CHUNK - step.decode_sequences * (1 + drafted))
        assert step.drafted_tokens == drafted * step.decode_sequences
        assert 0 <= step.accepted_tokens <= step.drafted_tokens
        assert self.mode["when_kv_is_full"] == "preempt" or not step.preempted
        if self.mode["prefill"] == "pause":
            assert not (step.decode_sequences and step.prefill_tokens)
        if self.mode["cache"] is None:  # else sequences share what they read
            assert step.context_tokens + step.prefill_tokens + step.prefill_cached_tokens <= KV_TOKENS
        assert step.started_ns < step.ended_ns <= self.now_ns
        if self.told:
            before = self.told[-1]
            assert step.number == before.number + 1
            assert step.started_ns >= before.ended_ns
            if self.mode["hidden"] and self.mode["batching"] == "continuous":
                assert step.started_ns == before.ended_ns  # the hidden load never lets it idle

    @invariant()
    def every_job_is_in_exactly_one_place(self) -> None:
        if hasattr(self, "engine"):
            self.look()
            assert self.engine.own_jobs == len(self.alive)
            assert not self.finished & self.cancelled
            assert len(self.alive) + len(self.finished) + len(self.cancelled) == len(self.jobs)

    @invariant()
    def equals_get_their_first_tokens_in_order(self) -> None:
        if hasattr(self, "engine"):
            for priority in range(3):
                mine = [
                    self.started[job][1]
                    for job in sorted(self.started)
                    if self.jobs[job].priority == priority
                ]
                assert mine == sorted(mine)

    def teardown(self) -> None:
        """Left alone, everything that is left comes to its end; and who was never looked at says the same."""
        if not hasattr(self, "engine"):
            return
        for _ in range(1000):
            if not self.alive:
                break
            self.now_ns += 1_000_000_000
            self.look()
        assert not self.alive, f"never finished: {self.alive}"
        assert [plain(step) for step in self.late.advance(self.now_ns)] == [plain(step) for step in self.told]


def plain(step: StepDone) -> tuple[object, ...]:
    """All of a step, comparable: arrays as lists."""
    ends = [(msgspec.structs.replace(done, token_ns=()), done.token_ns.tolist()) for done in step.finished]
    return (msgspec.structs.replace(step, finished=()), ends)


TestEngineUnderUse = EngineUnderUse.TestCase
TestEngineUnderUse.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("when_kv_is_full", ["queue", "preempt"])
@pytest.mark.parametrize("prefill", ["chunked", "pause"])
def test_memory_is_all_given_back_when_everybody_has_left(when_kv_is_full: Any, prefill: Any) -> None:
    limits = Limits(4, CHUNK, CHUNK, KV_TOKENS, prefill=prefill, when_kv_is_full=when_kv_is_full)
    engine = Engine(law, limits, prefix_cache=PrefixCache(block_tokens=BLOCK))
    for number in range(30):
        engine.submit(job_of(number, 100 + 60 * number, 1 + number, 0, 0, 400), number * 1_000_000)
    for number in range(0, 30, 4):
        engine.cancel(number, 40_000_000)
    last = engine.advance(10**12)[-1]
    assert (last.kv_tokens, last.running, last.waiting) == (0, 0, 0)
    assert engine.wakeup_ns() is None
