"""The books of KV memory against sets that are counted anew each time."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.job import Job
from mockserver.kv_memory import KvMemory
from mockserver.prefix_store import KvBlocks, PrefixStore
from mockserver.sequence import Sequence

BLOCK, CAPACITY = 4, 200


def sequence(number: int, prompt: int, output: int, family: int, common: int) -> Sequence:
    blocks = [family * 100 + place for place in range(min(common, prompt) // BLOCK)]
    blocks += [10_000 * (number + 1) + place for place in range(len(blocks), (prompt + output) // BLOCK)]
    return Sequence(Job(number, prompt, output, blocks=tuple(blocks)), 0, 0, hidden=False)


def counted(running: list[Sequence], *, by_need: bool) -> int:
    """Everybody's tokens, and those of a block that several hold only once."""
    held = [block for running_one in running for block in running_one.blocks[: running_one.kept_blocks]]
    total = 0
    for one in running:
        if not by_need:
            total += one.prompt_tokens + one.output_tokens
        else:
            total += one.prompt_tokens + one.generated + (one.state == "prefilling")
    return total - BLOCK * (len(held) - len(set(held)))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "compute", "grow", "release"]),
        st.integers(1, 90),
        st.integers(1, 60),
        st.integers(0, 1),
        st.integers(0, 90),
        st.integers(0, 20),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, by_need=st.booleans())
def test_used_and_cached_are_what_counting_gives_and_fit(
    steps: list[tuple[str, int, int, int, int, int]], by_need: bool
) -> None:
    memory = KvMemory(CAPACITY, by_need=by_need, block_tokens=BLOCK)
    running: list[Sequence] = []
    for number, (what, prompt, output, family, common, which) in enumerate(steps):
        one = running[which % len(running)] if running else None
        if what == "admit":
            new = sequence(number, prompt, output, family, common)
            memory.knows(new)
            new.state = "waiting"
            if memory.admit(new):
                new.state = "prefilling"
                running.append(new)
                assert new.prefilled % BLOCK == 0
                assert new.prefilled < new.prompt_tokens
        elif one is not None and what == "compute" and one.state == "prefilling":
            one.prefilled = min(one.prompt_tokens, one.prefilled + output)
            memory.computed(one)
            if one.prefilled == one.prompt_tokens:
                one.state, one.generated = "decoding", 1
        elif one is not None and what == "grow" and one.state == "decoding":
            if one.generated < one.output_tokens and memory.used_tokens < CAPACITY:
                one.generated += 1
                memory.used_tokens += by_need
                memory.fit()
        elif one is not None and what == "release":
            running.remove(one)
            memory.release(one)
        assert memory.used_tokens == counted(running, by_need=by_need)
        assert memory.used_tokens + memory.cached_tokens <= CAPACITY
        assert memory.cached_tokens % BLOCK == 0
    for one in running:
        memory.release(one)
    assert memory.used_tokens == 0


def test_the_oldest_idle_blocks_go_first_and_of_a_prefix_its_end() -> None:
    memory = KvMemory(48, block_tokens=BLOCK)

    def run(number: int, prompt: int, family: int) -> int:
        one = sequence(number, prompt, 1, family, prompt)
        memory.knows(one)
        assert memory.admit(one)
        found, one.state = one.prefilled, "prefilling"
        one.prefilled = prompt
        memory.computed(one)
        one.state, one.generated = "gone", 1
        memory.release(one)
        return found

    assert [run(0, 16, 1), run(1, 16, 2)] == [0, 0]
    assert memory.cached_tokens == 32
    assert run(2, 17, 1) == 16  # used again: now the newest
    assert run(3, 30, 3) == 0  # 31 tokens are taken: of 48, 16 are left for idle blocks, those of 1
    assert memory.cached_tokens == 44  # 28 whole tokens of 3, and what it left of 1
    assert run(4, 17, 1) == 16
    assert run(5, 17, 2) == 0


def test_blocks_that_are_let_go_or_left_are_evicted_from_the_end_of_their_prefix() -> None:
    blocks = KvBlocks()
    assert blocks.hold([1, 2, 3]) == 0
    blocks.leave([4, 5])
    assert blocks.let_go([1, 2, 3]) == 3
    for idle in (4, 3, 2, 1):
        blocks.shrink(idle)
        assert blocks.found([1, 2, 3, 4, 5], 9) == (min(idle, 4), min(idle, 4))
    assert blocks.idle == 1


def test_what_one_holder_lets_go_another_still_holds() -> None:
    blocks = KvBlocks()
    assert (blocks.hold([1, 2]), blocks.hold([1, 2, 3])) == (0, 2)
    assert blocks.let_go([1, 2, 3]) == 1
    assert blocks.found([1, 2, 3], 9) == (3, 1)
    blocks.shrink(0)
    assert blocks.found([1, 2, 3], 9) == (2, 0)


def test_a_store_of_its_own_forgets_the_oldest_beyond_its_capacity() -> None:
    store = PrefixStore(BLOCK, 12)
    store.keep([1, 2, 3])
    assert store.found([1, 2, 3, 4], 9) == 3
    assert store.found([1, 2, 3, 4], 2) == 2
    store.keep([3, 2, 1])  # as a sequence does that ends: its end is the oldest
    store.keep([7])
    assert store.found([1, 2, 3], 9) == 2
    assert store.found([7], 9) == 1
    assert len(store) == 3
