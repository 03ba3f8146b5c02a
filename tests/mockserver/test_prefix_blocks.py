"""Numbers of blocks are equal exactly where texts begin alike."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver.prefix_blocks import of_words

WORDS = st.lists(st.sampled_from(["a", "b", "ab", "é"]), max_size=40)


@given(one=WORDS, other=WORDS, block_tokens=st.integers(1, 7))
def test_blocks_are_equal_up_to_the_last_whole_one_that_both_texts_share(
    one: list[str], other: list[str], block_tokens: int
) -> None:
    alike = next(
        (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    ours, theirs = of_words(one, block_tokens), of_words(other, block_tokens)
    assert len(ours) == len(one) // block_tokens
    whole = alike // block_tokens
    assert ours[:whole] == theirs[:whole]
    assert not set(ours[whole:]) & set(theirs[whole:])
    assert len(set(ours)) == len(ours)


def test_a_text_is_its_words() -> None:
    assert of_words("  one two\nthree  four five ", 2) == of_words(["one", "two", "three", "four", "five"], 2)


def test_words_are_told_apart_where_their_letters_are_the_same() -> None:
    assert of_words(["ab", "c"], 2) != of_words(["a", "bc"], 2)
    assert of_words(["a", "b", "c", "d"], 4)[0] != of_words(["a", "b", "c", "d"], 2)[0]


def test_another_process_gives_the_same_numbers() -> None:
    program = "from mockserver.prefix_blocks import of_words; print(of_words('a b c d', 2))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str(of_words("a b c d", 2))


def test_a_block_of_no_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="block_tokens: 0"):
        of_words("a b", 0)
