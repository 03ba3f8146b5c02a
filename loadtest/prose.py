"""Text of a wanted length in tokens, from common words. Pure, and random-access by number.

Each piece of text begins with a mark, a number spelled in letters, which no other piece begins with: where
two prompts part, they part at once, and no cache is hit by accident. Rules for whoever edits this file:

1. A text follows from the seed and its numbers alone; changed text is a changed experiment.
2. Equal pieces are equal to the letter wherever they stand at the same place of a prompt.
3. Words are ASCII letters, one space apart: what goes into JSON needs no escapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

# Common short English words: one token each, with their leading space, in most vocabularies.
WORDS: tuple[str, ...] = tuple((resources.files("loadtest") / "words.txt").read_text("ascii").split())
_SALT_TEXT, _SALT_PREFIX, _SALT_BLOCK = 3, 7, 8
_FRESH, _PREFIX, _BLOCK, _FRESH_BLOCK = "q", "x", "z", "k"
"""Last letters of marks, so that pieces of two kinds never share one; spelled numbers may hold them too."""


@dataclass(frozen=True, slots=True)
class Counting:
    """How prompt words become the server's tokens: tokens = overhead_tokens + tokens_per_word · words."""

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0

    def words(self, tokens: float) -> int:
        """Number of words that cost so many tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))

    def tokens(self, words: int) -> int:
        """Tokens that so many words are expected to cost; at least one."""
        return max(1, round(self.overhead_tokens + self.tokens_per_word * words))


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words that texts are made of, and what a mark costs where that is known."""

    words: Sequence[str] = WORDS
    mark_tokens: Callable[[str, bool], int] | None = None
    """Tokens of a mark, the first word of a text or not, when each of ``words`` costs exactly one."""
    count: Callable[[str], int] | None = None
    """Tokens of any text."""


class Prose:
    """Writes the texts of one plan. ``counting`` says how long they get, unless the lexicon knows exactly."""

    def __init__(self, seed: int, counting: Counting, lexicon: Lexicon) -> None:
        self.seed = seed
        self.counting = counting
        self._words = np.array(lexicon.words, dtype=object)
        self._mark_tokens = lexicon.mark_tokens

    def fresh(self, index: int, tokens: int) -> str:
        """Text of so many tokens that no other index of this plan and seed begins like."""
        return " ".join(self._fresh(index, self._sizes([self._mark(index)], [tokens])[0]))

    def prefixed(self, group: int, prefix_tokens: int, index: int, tokens: int) -> str:
        """Text of so many tokens that begins with its group's prefix and is fresh from there on."""
        marks = [_spelled(self._serial(group), _PREFIX), self._mark(index)]
        prefix, rest = self._sizes(marks, [min(prefix_tokens, tokens - 1), tokens])
        rng = np.random.default_rng((self.seed, _SALT_PREFIX, group))
        return " ".join([*self._drawn(rng, marks[0], prefix), *self._fresh(index, rest)])

    def blocks(self, blocks: "Blocks", index: int, tokens: int) -> str:
        """Text of so many tokens: a trace's blocks as far as they go, and fresh from there on."""
        ends = [min(blocks.block_tokens * place, tokens) for place in range(1, len(blocks.ids) + 1)]
        marks = blocks.marks(first=self._serial(index) if blocks.fresh else 0)
        tail = not ends or ends[-1] < tokens
        if tail:
            ends, marks = [*ends, tokens], [*marks, self._mark(index)]
        sizes = self._sizes(marks, ends)
        fresh = self._fresh(index, sizes.pop()) if tail else []
        rng = np.random.default_rng((self.seed, _SALT_BLOCK, *blocks.salt))
        base = int(rng.integers(0, 2**63))
        return " ".join([*self._block_words(base, blocks, marks, np.array(sizes, dtype=np.int64)), *fresh])

    def _block_words(
        self, base: int, blocks: "Blocks", marks: list[str], sizes: NDArray[np.int64]
    ) -> list[str]:
        """Words by number within their block, and each block's mark in place of its first one."""
        starts = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) - np.repeat(starts, sizes)
        mixed = _mixed(base, np.repeat(blocks.ids, sizes), places)
        words = self._words[mixed % np.uint64(len(self._words))]
        for start, size, mark in zip(starts.tolist(), sizes.tolist(), marks, strict=False):
            if size:
                words[start] = mark
        whole: list[str] = words.tolist()
        return whole

    def _fresh(self, index: int, size: int) -> list[str]:
        return self._drawn(np.random.default_rng((self.seed, _SALT_TEXT, index)), self._mark(index), size)

    def _drawn(self, rng: np.random.Generator, mark: str, size: int) -> list[str]:
        if size < 1:
            return []
        words: list[str] = self._words[rng.integers(0, len(self._words), size=size)].tolist()
        words[0] = mark
        return words

    def _sizes(self, marks: Sequence[str], ends: Sequence[int]) -> list[int]:
        """How many words each piece gets, when it ends after so many tokens of the prompt.

        Measured counting rounds the ends and not the pieces, so that errors do not add up.
        """
        if self._mark_tokens is None:
            words = [self.counting.words(end) for end in ends]
            if len(words) > 1:  # what comes last is there, however short
                words[:-1] = [min(word, words[-1] - 1) for word in words[:-1]]
            return [after - before for before, after in zip([0, *words], words, strict=False)]
        return self._exact_sizes(marks, ends, self._mark_tokens)

    def _exact_sizes(
        self, marks: Sequence[str], ends: Sequence[int], mark_tokens: Callable[[str, bool], int]
    ) -> list[int]:
        """As many words as fit exactly; a piece too short for its mark is left out, unless it is the last."""
        *earlier, last = marks
        latest = ends[-1] - mark_tokens(last, False)
        spent, sizes = round(self.counting.overhead_tokens), list[int]()
        for mark, end in zip(earlier, ends, strict=False):
            costs = mark_tokens(mark, not any(sizes))
            sizes.append(max(0, min(end, latest) - spent - costs + 1))
            spent += costs + sizes[-1] - 1 if sizes[-1] else 0
        return [*sizes, max(1, ends[-1] - spent - mark_tokens(last, not any(sizes)) + 1)]

    def _mark(self, index: int) -> str:
        return _spelled(self._serial(index), _FRESH)

    def _serial(self, number: int) -> int:
        return self.seed % 1_000_003 * 100_000_000 + number


@dataclass(frozen=True, slots=True)
class Blocks:
    """Pieces of equal length that prompts share where their ids agree."""

    ids: NDArray[np.int64]
    block_tokens: int
    salt: tuple[int, ...]
    """What else the text follows from, beside ids and seed."""
    first_mark: int = 0
    """Marks count on from here, so that those of two salts differ."""
    fresh: bool = False
    """Whether these ids are nobody else's: their marks are the request's own."""

    def marks(self, *, first: int) -> list[str]:
        """The first word of each block."""
        last = _FRESH_BLOCK if self.fresh else _BLOCK
        return [_spelled(first + self.first_mark + number, last) for number in self.ids.tolist()]


def _mixed(base: int, ids: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Numbers as good as random that follow from base, id and place: SplitMix64 (Steele, Lea, Flood 2014)."""
    mixed = ids.astype(np.uint64) * np.uint64(0xD1342543DE82EF95) + places.astype(np.uint64)
    mixed = (mixed + np.uint64(base)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _spelled(number: int, last: str) -> str:
    """Write a number in base 26 letters, units first, so that neighbours differ from the first letter on."""
    letters = ""
    while number or not letters:
        number, digit = divmod(number, 26)
        letters += chr(ord("a") + digit)
    return letters + last
