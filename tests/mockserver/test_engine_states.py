"""Whatever is submitted, cancelled and awaited, in any order: memory stays in budget and no job is lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mockserver.background import Background, Lengths
from mockserver.engine import Engine, Job, Limits, StepDone

KV_TOKENS, MAX_BATCH, CHUNK = 6000, 7, 512


def law(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 1e-3 + 1e-4 * batch + 1e-7 * context + 1e-5 * prefill + 1e-9 * pairs


class EngineUnderUse(RuleBasedStateMachine):
    """Keeps its own books of every job, from events alone, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(
            law,
            Limits(max_batch=MAX_BATCH, step_tokens=CHUNK, prefill_tokens=CHUNK, kv_tokens=KV_TOKENS),
            background=Background(
                target_batch=3,
                prompt=Lengths(400.0, 1.0, 2000),
                output=Lengths(10.0, 1.0, 100),
                seed="s",
                wander_ratio=0.3,
                wander_s=0.1,
            ),
            ingest_ns=3_000_000,
            noise_ratio=0.05,
        )
        self.now_ns = 0
        self.alive: dict[int, Job] = {}
        self.tokens: dict[int, int] = {}
        self.finished: set[int] = set()
        self.cancelled: set[int] = set()
        self.previous: StepDone | None = None

    @rule(prompt=st.integers(1, 4000), output=st.integers(1, 60), wait_ns=st.integers(0, 30_000_000))
    def submit(self, prompt: int, output: int, wait_ns: int) -> None:
        self.now_ns += wait_ns
        job = Job(len(self.tokens), prompt, output)
        self.engine.submit(job, self.now_ns)
        self.alive[job.id] = job
        self.tokens[job.id] = 0

    @rule(number=st.integers(0, 10_000), wait_ns=st.integers(0, 30_000_000))
    def cancel(self, number: int, wait_ns: int) -> None:
        self.now_ns += wait_ns
        self.look()
        if not self.tokens:
            return
        job_id = number % len(self.tokens)
        assert self.engine.cancel(job_id, self.now_ns) == (job_id in self.alive)
        if self.alive.pop(job_id, None) is not None:
            self.cancelled.add(job_id)

    @rule(wait_ns=st.integers(0, 200_000_000))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        self.look()

    def look(self) -> None:
        for step in self.engine.advance(self.now_ns):
            self.book(step)

    def book(self, step: StepDone) -> None:
        assert 0 <= step.kv_tokens <= KV_TOKENS
        assert step.running <= MAX_BATCH
        assert step.decode_sequences + step.prefill_tokens <= CHUNK
        assert step.started_ns < step.ended_ns <= self.now_ns
        if self.previous is not None:
            assert step.number == self.previous.number + 1
            assert step.started_ns == self.previous.ended_ns  # the hidden load never lets it idle
        self.previous = step
        assert len(set(step.emitted)) == len(step.emitted)
        for job_id in step.emitted:
            assert job_id in self.alive
            self.tokens[job_id] += 1
        for done in step.finished:
            job = self.alive.pop(done.job.id)
            assert job == done.job
            assert len(done.token_ns) == self.tokens[job.id] == job.output_tokens
            assert done.ended_ns == step.ended_ns
            self.finished.add(job.id)

    @invariant()
    def every_job_is_in_exactly_one_place(self) -> None:
        if hasattr(self, "engine"):
            self.look()
            assert self.engine.own_jobs == len(self.alive)
            assert not self.finished & self.cancelled
            assert len(self.alive) + len(self.finished) + len(self.cancelled) == len(self.tokens)

    def teardown(self) -> None:
        """Left alone, everything that is left comes to its end, and only the hidden load's memory stays."""
        for _ in range(1000):
            if not self.alive:
                return
            self.now_ns += 1_000_000_000
            self.look()
        raise AssertionError(f"never finished: {self.alive}")


TestEngineUnderUse = EngineUnderUse.TestCase
TestEngineUnderUse.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_memory_is_all_given_back_when_everybody_has_left() -> None:
    engine = Engine(law, Limits(max_batch=4, step_tokens=CHUNK, prefill_tokens=CHUNK, kv_tokens=KV_TOKENS))
    for number in range(30):
        engine.submit(Job(number, 100 + 60 * number, 1 + number), number * 1_000_000)
    for number in range(0, 30, 4):
        engine.cancel(number, 40_000_000)
    last = engine.advance(10**12)[-1]
    assert (last.kv_tokens, last.running, last.waiting) == (0, 0, 0)
    assert engine.wakeup_ns() is None
