"""What the prefix cache spares, whom, and what it holds in memory."""

import pytest

from mockserver.engine import Engine, Finished, Job, Limits, StepDone
from mockserver.prefix_store import PrefixStore
from mockserver.tier_config import PrefixCache

MS = 1_000_000
CACHE = PrefixCache(block_tokens=16)


def law(batch: int, context: int, prefill: int, cached: int, pairs: float) -> float:
    return 1e-3 + 1e-5 * prefill + 1e-6 * cached


def engine(
    kv_tokens: int = 10_000, cache: PrefixCache | None = CACHE, store: PrefixStore | None = None
) -> Engine:
    limits = Limits(max_batch=16, step_tokens=4096, prefill_tokens=4096, kv_tokens=kv_tokens)
    return Engine(law, limits, prefix_cache=cache, prefix_store=store)


def turn(number: int, prompt: int, output: int, *, text: int = 1, namespace: str = "") -> Job:
    """A turn of the conversation ``text``: each begins with all that was said before."""
    blocks = tuple(text * 10_000 + place for place in range((prompt + output) // 16))
    return Job(number, prompt, output, blocks=blocks, namespace=namespace)


def finished(steps: list[StepDone]) -> dict[int, Finished]:
    return {done.job.id: done for step in steps for done in step.finished}


def play_at(server: Engine, *jobs: Job) -> dict[int, Finished]:
    """A second apart."""
    for number, job in enumerate(jobs):
        server.submit(job, number * 10**9)
    return finished(server.advance(10**12))


def test_what_is_cached_is_not_computed_again_but_read() -> None:
    ends = play_at(engine(), turn(0, 1000, 1), turn(1, 1000, 1))
    assert [done.cached_tokens for done in ends.values()] == [0, 992]
    lasted_ms = [(done.ended_ns - done.admitted_ns) / MS for done in ends.values()]
    assert lasted_ms == pytest.approx([1 + 10, 1 + 0.08 + 0.992])


@pytest.mark.parametrize(("prompt", "hit"), [(15, 0), (16, 0), (17, 16), (32, 16), (33, 32)])
def test_only_whole_blocks_hit_and_the_last_prompt_token_is_always_computed(prompt: int, hit: int) -> None:
    ends = play_at(engine(), turn(0, 500, 1), turn(1, prompt, 1))
    assert ends[1].cached_tokens == hit


def test_a_conversation_finds_what_was_said_and_answered_before() -> None:
    """The last token of an answer was never fed back, so that its KV is not there."""
    ends = play_at(engine(), turn(0, 100, 60), turn(1, 300, 5), turn(2, 400, 5))
    assert [done.cached_tokens for done in ends.values()] == [0, 159 // 16 * 16, 304]


def test_another_namespace_sees_nothing_of_it() -> None:
    ends = play_at(
        engine(), turn(0, 200, 1), turn(1, 200, 1, namespace="fast"), turn(2, 200, 1, namespace="fast")
    )
    assert [done.cached_tokens for done in ends.values()] == [0, 0, 192]


def test_a_job_without_blocks_and_an_engine_without_a_cache_hit_nothing() -> None:
    ends = play_at(engine(), turn(0, 200, 1), Job(1, 200, 1))
    assert ends[1].cached_tokens == 0
    server = engine(cache=None)
    for number in range(2):
        server.submit(turn(number, 200, 1), number)
    steps = server.advance(10**12)
    assert sum(step.queried_tokens for step in steps) == 0
    assert finished(steps)[1].cached_tokens == 0


def test_what_running_sequences_share_is_held_once() -> None:
    server = engine()
    server.submit(turn(0, 160, 100), 0)
    server.submit(turn(1, 160, 100), 5 * MS)
    steps = server.advance(20 * MS)
    # 144 of 160 were found; the last block was computed by both, and is kept once, too.
    assert steps[-1].kv_tokens == 260 + 100
    assert server.advance(10**12)[-1].kv_tokens == 0


def test_sharing_admits_who_would_not_fit_alone() -> None:
    """Memory for 400; each needs 260, of which 144 are shared once the first has computed them."""
    waits = []
    for texts in ((1, 1), (1, 2)):
        server = engine(kv_tokens=400)
        for number, text in enumerate(texts):
            server.submit(turn(number, 160, 100, text=text), number * 5 * MS)
        waits.append(max(step.waiting for step in server.advance(10**12)))
    assert waits == [0, 1]


def test_cached_blocks_give_way_to_running_sequences_oldest_first() -> None:
    server = engine(kv_tokens=1000)
    jobs = [turn(0, 401, 1, text=1), turn(1, 401, 1, text=2), turn(2, 401, 1, text=1)]
    jobs += [turn(3, 321, 1, text=3), turn(4, 401, 1, text=1), turn(5, 401, 1, text=2)]
    for number, job in enumerate(jobs):
        server.submit(job, number * 10**9)
    steps = server.advance(10**12)
    hits = [finished(steps)[number].cached_tokens for number in range(6)]
    # With 402 taken and 1, 2 idle, 3 needs 322: text 2 is the older one, and loses its end first.
    assert hits[:5] == [0, 0, 400, 0, 400]
    assert hits[5] < 400
    assert max(step.kv_tokens + step.cached_kv_tokens for step in steps) <= 1000


def test_blocks_in_use_are_not_evicted() -> None:
    server = engine(kv_tokens=700)
    server.submit(turn(0, 160, 200, text=1), 0)
    server.submit(turn(1, 300, 10, text=2), 3 * MS)  # fills memory while the first one runs
    server.submit(turn(2, 161, 1, text=1), 30 * MS)
    ends = finished(server.advance(10**12))
    assert ends[2].cached_tokens == 160
    assert ends[2].admitted_ns < ends[0].ended_ns


def test_hits_and_queries_of_all_steps_are_those_of_the_jobs() -> None:
    server = engine(kv_tokens=2000)
    jobs = [turn(n, 100 + 40 * n, 30, text=n % 3) for n in range(30)]
    for job in jobs:
        server.submit(job, job.id * 9 * MS)
    steps = server.advance(10**12)
    ends = finished(steps)
    assert sum(step.queried_tokens for step in steps) == sum(job.prompt_tokens for job in jobs)
    assert sum(step.hit_tokens for step in steps) == sum(done.cached_tokens for done in ends.values()) > 0
    computed = sum(step.prefill_tokens for step in steps)
    assert computed + sum(step.hit_tokens for step in steps) == sum(job.prompt_tokens for job in jobs)


def test_a_store_of_its_own_is_not_kv_and_several_engines_may_share_it() -> None:
    cache = PrefixCache(block_tokens=16, tokens=1600, shared=True)
    store = PrefixStore(16, 1600)
    one, other = engine(300, cache, store), engine(300, cache, store)
    play_at(one, turn(0, 200, 50))
    other.submit(turn(1, 200, 50), 10**9)
    steps = other.advance(10**12)
    assert finished(steps)[1].cached_tokens == 192
    assert max(step.kv_tokens for step in steps) == 250  # a copy of its own
    assert max(step.cached_kv_tokens for step in steps) == 0
    stranger = engine(300, cache)
    assert play_at(stranger, turn(0, 200, 50))[0].cached_tokens == 0


def test_who_was_thrown_out_finds_what_nobody_needed_meanwhile() -> None:
    """Memory is full when each of the three has some 196 tokens; a few steps later the first one leaves."""
    recomputed = {}
    for cache in (CACHE, None):
        server = Engine(law, Limits(8, 4096, 4096, 590, when_kv_is_full="preempt"), prefix_cache=cache)
        for number, output in enumerate((52, 100, 100)):
            server.submit(turn(number, 150, output, text=number), 0)
        steps = server.advance(10**12)
        ends = finished(steps)
        assert [done.preemptions for _, done in sorted(ends.items())] == [0, 0, 1]
        assert {done.cached_tokens for done in ends.values()} == {0}  # of its prompt, when it came
        assert sum(step.hit_tokens for step in steps) == 0
        recomputed[cache] = sum(step.prefill_tokens for step in steps) - 450
    assert recomputed[None] >= 195
    assert 0 < recomputed[CACHE] < 50
