"""Numbers for the blocks of a text, equal exactly where texts begin alike. Pure.

A block's number covers everything up to its end, so that one number says that the whole prefix is the same.
The numbers are 64-bit digests (BLAKE2b), the same in every process; that any two of a million prefixes share
one has a probability of 3e-8.
"""

from collections.abc import Sequence
from hashlib import blake2b

_DIGEST_BYTES = 8
_BETWEEN_WORDS = "\0"


def of_words(words: Sequence[str] | str, block_tokens: int) -> tuple[int, ...]:
    """Return a number for each whole block of ``block_tokens`` words, a word being a token.

    A string is split at white space. Words after the last whole block have no number. Raises ValueError for a
    block of less than one token.
    """
    if block_tokens < 1:
        raise ValueError(f"block_tokens: {block_tokens} is not allowed; expected at least 1")
    if isinstance(words, str):
        words = words.split()
    digest = blake2b(digest_size=_DIGEST_BYTES)
    numbers: list[int] = []
    for end in range(block_tokens, len(words) + 1, block_tokens):
        block = _BETWEEN_WORDS.join(words[end - block_tokens : end]) + _BETWEEN_WORDS
        digest.update(block.encode())
        numbers.append(int.from_bytes(digest.digest(), "little"))
    return tuple(numbers)
