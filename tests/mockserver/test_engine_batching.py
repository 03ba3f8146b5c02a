"""Static batches, and prefill that makes decoding stand still: against closed forms."""

from itertools import pairwise

import numpy as np

from mockserver.background import Background, Lengths
from mockserver.engine import Engine, Finished, Job, Limits, StepDone

MS = 1_000_000


def ten_ms(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 0.010


def law(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 1e-3 + 1e-4 * batch + 1e-5 * prefill


def bus(seats: int, wait_ms: int, **more: object) -> Engine:
    limits = Limits(seats, 4096, 2048, 100_000, batching="static", batch_wait_ns=wait_ms * MS)
    return Engine(ten_ms, limits, **more)  # type: ignore[arg-type]


def finished(steps: list[StepDone]) -> dict[int, Finished]:
    return {done.job.id: done for step in steps for done in step.finished}


def test_a_bus_leaves_when_its_last_seat_is_taken() -> None:
    engine = bus(3, 1000)
    for number, at_ms in enumerate((0, 40, 90)):
        assert engine.advance(at_ms * MS) == []
        engine.submit(Job(number, 10, 5), at_ms * MS)
    steps = engine.advance(10**12)
    assert steps[0].started_ns == 90 * MS
    assert {done.admitted_ns for done in finished(steps).values()} == {90 * MS}


def test_a_bus_leaves_when_its_first_passenger_has_waited_enough_and_says_so_before() -> None:
    engine = bus(3, 100, ingest_ns=5 * MS)
    assert engine.wakeup_ns() is None
    engine.submit(Job(0, 10, 5), 10 * MS)
    engine.submit(Job(1, 10, 5), 60 * MS)
    assert engine.wakeup_ns() == 115 * MS
    assert engine.advance(10**12)[0].started_ns == 115 * MS


def test_who_cancels_at_the_stop_takes_the_deadline_along() -> None:
    engine = bus(3, 100)
    engine.submit(Job(0, 10, 5), 10 * MS)
    engine.submit(Job(1, 10, 5), 60 * MS)
    assert engine.cancel(0, 70 * MS)
    assert engine.wakeup_ns() == 160 * MS
    assert engine.cancel(1, 80 * MS)
    assert engine.wakeup_ns() is None


def test_nobody_joins_a_batch_before_all_of_it_have_ended() -> None:
    engine = bus(2, 50)
    lengths = (3, 40, 5, 5, 7)
    for number, tokens in enumerate(lengths):
        engine.submit(Job(number, 10, tokens), number)
    ends = finished(engine.advance(10**12))
    assert ends[0].ended_ns < ends[1].ended_ns == ends[2].admitted_ns == ends[3].admitted_ns
    # The last one is alone, and has waited longer than it must when the bus before it comes back.
    assert ends[4].admitted_ns == ends[3].ended_ns
    assert (ends[2].token_ns == ends[3].token_ns).all()


def test_a_higher_priority_takes_a_seat_of_the_next_bus_first() -> None:
    engine = bus(2, 50)
    for number, priority in enumerate((0, 0, 0, 0, 3)):
        engine.submit(Job(number, 10, 20, priority=priority), number)
    ends = finished(engine.advance(10**12))
    admitted = [ends[number].admitted_ns for number in range(5)]
    assert admitted[0] == admitted[1] < admitted[2] == admitted[4] < admitted[3]


def test_a_bus_whose_passengers_do_not_fit_in_memory_serves_them_all_before_the_next() -> None:
    limits = Limits(4, 4096, 2048, 250, batching="static", batch_wait_ns=10 * MS)
    engine = Engine(ten_ms, limits)
    for number in range(6):
        engine.submit(Job(number, 100, 20), number)
    steps = engine.advance(10**12)
    ends = finished(steps)
    assert max(step.running for step in steps) == 2
    assert [ends[n].admitted_ns for n in range(6)] == sorted(ends[n].admitted_ns for n in range(6))


def test_hidden_passengers_fill_their_seats_and_go_round_without_end() -> None:
    hidden = Background(
        target_batch=6, prompt=Lengths(50.0, 0.5, 1000), output=Lengths(20.0, 0.5, 1000), seed="h"
    )
    engine = bus(8, 30, background=hidden)
    engine.submit(Job(0, 10, 5), 100 * MS)
    engine.submit(Job(1, 10, 500), 100 * MS)
    steps = engine.advance(60 * 10**9)
    assert set(finished(steps)) == {0, 1}
    sizes = {step.running for step in steps}
    assert max(sizes) == 8
    idle_ns = [later.started_ns - step.ended_ns for step, later in pairwise(steps) if not step.running]
    assert len(idle_ns) > 30
    assert set(idle_ns[5:]) == {30 * MS}  # they come when a batch has ended, and two seats stay free
    joined = [later.running - step.running for step, later in pairwise(steps) if step.running]
    assert max(joined) <= 0


def pausing(**more: object) -> Engine:
    limits = {"max_batch": 64, "step_tokens": 2048, "prefill_tokens": 512, "kv_tokens": 10**6}
    return Engine(law, Limits(**{**limits, **more}, prefill="pause"))  # type: ignore[arg-type]


def test_a_step_prefills_or_decodes_and_prompts_come_first() -> None:
    engine = pausing()
    for number in range(20):
        engine.submit(Job(number, 700, 30), number * 4 * MS)
    steps = engine.advance(10**12)
    assert all((step.decode_sequences == 0) != (step.prefill_tokens == 0) for step in steps)
    waits = [step for step in steps if step.decode_sequences and step.waiting]
    assert not waits


def test_a_prompt_makes_the_gap_of_all_others_longer_by_its_whole_prefill() -> None:
    """Decode step 1.1 ms; a prompt of 1500 in chunks of 512, 512, 476 costs 3 ms + 15 ms."""
    engine = pausing()
    engine.submit(Job(0, 10, 100), 0)
    engine.submit(Job(1, 1500, 1), 20 * MS)
    ends = finished(engine.advance(10**12))
    gaps_ms = np.round(np.diff(ends[0].token_ns) / MS, 4)
    assert sorted(set(gaps_ms.tolist())) == [1.1, 19.1]
    assert (ends[0].steps, ends[0].mean_batch) == (103, 1.0)


def test_pausing_and_sharing_do_the_same_work() -> None:
    """The same tokens either way; sharing spares each chunk a step's fixed time."""
    lasted_ns = {}
    for prefill in ("pause", "chunked"):
        limits = Limits(8, 4096, 512, 10**6, prefill=prefill)
        engine = Engine(law, limits)
        for number in range(30):
            engine.submit(Job(number, 300, 40), number * MS)
        steps = engine.advance(10**12)
        assert sum(step.prefill_tokens for step in steps) == 9000
        assert sum(step.generated_tokens for step in steps) == 1200
        lasted_ns[prefill] = steps[-1].ended_ns
    assert lasted_ns["chunked"] < lasted_ns["pause"]
