"""Words that follow from a key, counted and compared."""

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import text

KEYS = st.integers(0, 2**32 - 1)


def words(key: int, start: int, count: int) -> list[str]:
    """Words of a key, each of which came with a space before it."""
    spaced = [word.decode("ascii") for word in text.spaced(key, start, count)]
    assert all(word[0] == " " for word in spaced)
    return [word[1:] for word in spaced]


@given(KEYS, st.integers(0, 40))
@settings(deadline=None, max_examples=50)
def test_no_word_comes_twice_in_a_lap(key: int, lap: int) -> None:
    said = words(key, 128 * lap, 128)
    assert len(set(said)) == 128
    assert all(word.isascii() and word.isalpha() for word in said)


@given(KEYS, st.integers(0, 600), st.integers(0, 400))
@settings(deadline=None, max_examples=50)
def test_words_are_the_same_however_they_are_asked_for(key: int, start: int, count: int) -> None:
    asked_at_once = words(key, start, count)
    assert asked_at_once == [word for place in range(count) for word in words(key, start + place, 1)]
    assert asked_at_once == words(key, 0, start + count)[start:]


@given(KEYS, st.integers(0, 600), st.integers(1, 500))
@settings(deadline=None, max_examples=50)
def test_so_many_words_count_as_so_many_tokens(key: int, start: int, count: int) -> None:
    assert text.count_tokens(b"".join(text.spaced(key, start, count)).decode()) == count


def test_what_different_keys_say_parts_at_once() -> None:
    """Of 5,000 keys no two say the same for 512 words, and few share even their first three."""
    first = [tuple(words(key, 0, 3)) for key in range(5000)]
    assert len({tuple(text.spaced(key, 0, 512)) for key in range(5000)}) == 5000
    # 128 · 64 ways to begin: n(1 − e^(−k/n)) of them are expected to be met by k keys.
    assert len(set(first)) == pytest.approx(8192 * (1 - exp(-5000 / 8192)), rel=0.05)


def test_every_word_is_as_likely_as_any_other() -> None:
    """Pearson's chi-squared with 127 degrees of freedom stays below its 1 − 1e−6 quantile of 217."""
    counts: dict[str, int] = {}
    for key in range(2000):
        for place in (0, 1, 200):
            (word,) = words(key, place, 1)
            counts[word] = counts.get(word, 0) + 1
    expected = 6000 / 128
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 217


def test_words_stay_the_same_from_one_version_to_the_next() -> None:
    assert words(7, 0, 6) == ["show", "law", "year", "team", "woman", "parent"]


@given(st.text(alphabet="ab \n\u2003é", max_size=60), st.integers(1, 20))
@settings(deadline=None)
def test_whether_there_are_more_tokens_is_known_without_counting_them_all(said: str, tokens: int) -> None:
    assert text.has_more_tokens(said, tokens) is (text.count_tokens(said) > tokens)
