"""Words that follow from a key, counted and compared."""

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import text

KEYS = st.integers(0, 2**32 - 1)


@given(KEYS, st.integers(0, 40))
@settings(deadline=None, max_examples=50)
def test_no_word_comes_twice_in_a_lap(key: int, lap: int) -> None:
    words = text.words(key, 128 * lap, 128)
    assert len(set(words)) == 128
    assert all(word.isascii() and word.isalpha() for word in words)


@given(KEYS, st.integers(0, 600), st.integers(0, 400))
@settings(deadline=None, max_examples=50)
def test_words_are_the_same_however_they_are_asked_for(key: int, start: int, count: int) -> None:
    one_by_one = [text.word(key, start + place) for place in range(count)]
    assert [word.strip() for word in one_by_one] == text.words(key, start, count)
    assert text.output(key, start + count).split()[start:] == text.words(key, start, count)
    assert b"".join(text.spaced(key, start, count)).decode() == "".join(
        " " + word for word in text.words(key, start, count)
    )


@given(KEYS, st.integers(1, 500))
@settings(deadline=None, max_examples=50)
def test_an_output_of_so_many_tokens_has_so_many_words(key: int, tokens: int) -> None:
    said = text.output(key, tokens)
    assert text.count_tokens(said) == tokens
    assert said == said.strip() == "".join(text.word(key, place) for place in range(tokens))


def test_what_different_keys_say_parts_at_once() -> None:
    """Of 5,000 keys no two say the same for 512 words, and few share even their first three."""
    first = [tuple(text.words(key, 0, 3)) for key in range(5000)]
    assert len({tuple(text.words(key, 0, 512)) for key in range(5000)}) == 5000
    # 128 · 64 ways to begin: n(1 − e^(−k/n)) of them are expected to be met by k keys.
    assert len(set(first)) == pytest.approx(8192 * (1 - exp(-5000 / 8192)), rel=0.05)


def test_every_word_is_as_likely_as_any_other() -> None:
    """Pearson's chi-squared with 127 degrees of freedom stays below its 1 − 1e−6 quantile of 217."""
    counts: dict[str, int] = {}
    for key in range(2000):
        for place in (0, 1, 200):
            word = text.word(key, place).strip()
            counts[word] = counts.get(word, 0) + 1
    expected = 6000 / 128
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 217


def test_words_stay_the_same_from_one_version_to_the_next() -> None:
    assert text.output(7, 6) == "show law year team woman parent"
