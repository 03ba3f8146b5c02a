"""Tokens spread on the clock leave at the instants that the law of ``speculation.smoothed`` gives."""

import heapq
from collections.abc import Callable

import msgspec
import numpy as np

from mockserver import config, tiers
from mockserver.job import Finished, Job, StepDone
from mockserver.smoothing import Smoothing
from mockserver.speculation import smoothed
from mockserver.tier_config import Speculation

PLAIN = config.load("fast-tier")


class Noting:
    """Notes when its tokens came, and its end."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.token_ns: list[int] = []
        self.done: Finished | None = None
        self.ended_ns = 0

    def tokens(self, place: int, count: int) -> None:
        self.token_ns += [self._now()] * count

    def finished(self, place: int, job: Finished) -> None:
        assert self.done is None
        self.done, self.ended_ns = job, self._now()


def test_each_token_leaves_when_the_law_says_and_the_end_after_the_last() -> None:
    tier = msgspec.structs.replace(
        PLAIN.tiers[1], target_batch=4, speculation=Speculation(draft_tokens=4, acceptance_ratio=0.8)
    )
    engine = tiers.engine(PLAIN, tier, seed=3)
    now_ns, calls = 0, list[tuple[int, int, Callable[[], None]]]()
    receivers = {number: Noting(lambda: now_ns) for number in range(12)}
    smoothing = Smoothing(lambda at_ns, call: heapq.heappush(calls, (at_ns, len(calls), call)))
    for number in receivers:
        engine.submit(Job(number, 100 * number + 1, 20 + 7 * number), number * 20_000_000)
    steps: list[StepDone] = engine.advance(60 * 10**9)
    for step in steps:
        while calls and calls[0][0] <= step.ended_ns:
            now_ns, _, call = heapq.heappop(calls)
            call()
        now_ns = step.ended_ns
        smoothing.on_step(step, lambda job_id: (receivers[job_id], 0))
    for receiver in receivers.values():
        assert receiver.done is not None
        ends, counts = np.unique(receiver.done.token_ns, return_counts=True)
        assert receiver.token_ns == smoothed(ends, counts).tolist()
        assert receiver.ended_ns == receiver.token_ns[-1]
    assert (
        max(len(set(r.token_ns)) - len({*map(int, r.done.token_ns)}) for r in receivers.values() if r.done)
        > 20
    )


def test_who_hangs_up_is_forgotten() -> None:
    smoothing = Smoothing(lambda at_ns, call: None)
    for number in range(0, 3000, 3):
        receivers = {number + place: (Noting(lambda: 0), 0) for place in range(3)}
        smoothing.on_step(step_for(number, tuple(receivers)), receivers.get)
    assert len(smoothing) < 150


def step_for(number: int, emitted: tuple[int, ...]) -> StepDone:
    """A step that brings some jobs two tokens each."""
    return StepDone(
        number=number, started_ns=number, ended_ns=number + 1, decode_sequences=len(emitted),
        context_tokens=1, prefill_tokens=0, generated_tokens=2 * len(emitted), running=3, waiting=0,
        kv_tokens=1, emitted=emitted, emitted_tokens=(2,) * len(emitted), finished=(),
    )  # fmt: skip
