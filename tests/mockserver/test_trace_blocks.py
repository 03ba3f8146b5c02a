"""Blocks by a trace's ids are equal exactly where blocks of the words would be."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import prefix_blocks, trace_blocks

ids = st.lists(st.integers(0, 3), max_size=5)


def words(numbers: list[int], *, id_tokens: int, prompt_tokens: int, output_tokens: int, nobodys: int) -> str:
    """A text in which equal ids are equal words, and what they do not cover is nobody else's."""
    said = [f"{number}.{place}" for number in numbers for place in range(id_tokens)][:prompt_tokens]
    rest = prompt_tokens + output_tokens - len(said)
    return " ".join([*said, *(f"own-{nobodys}-{place}" for place in range(rest))])


@settings(max_examples=120)
@given(
    st.lists(st.tuples(ids, st.integers(1, 40), st.integers(0, 12)), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(1, 13),
)
def test_two_blocks_by_ids_are_equal_where_those_of_the_words_are(
    requests: list[tuple[list[int], int, int]], id_tokens: int, block_tokens: int
) -> None:
    by_ids, by_words = list[int](), list[int]()
    for nobodys, (drawn, prompt, output) in enumerate(requests):
        numbers = drawn[: -(-prompt // id_tokens)]
        sizes = {"id_tokens": id_tokens, "prompt_tokens": prompt, "output_tokens": output}
        mine = trace_blocks.of_ids(numbers, block_tokens=block_tokens, nobodys=nobodys, **sizes)
        text = words(numbers, nobodys=nobodys, **sizes)
        theirs = prefix_blocks.of_words(text, block_tokens)
        assert len(mine) == len(theirs)
        by_ids += mine
        by_words += theirs
    pairs = set(zip(by_ids, by_words, strict=True))
    assert len(pairs) == len(set(by_ids)) == len(set(by_words))


def test_equal_pieces_after_different_ones_are_different_blocks() -> None:
    one, other = (
        trace_blocks.of_ids([first, 7], id_tokens=16, prompt_tokens=32, block_tokens=16) for first in (1, 2)
    )
    assert not set(one) & set(other)
