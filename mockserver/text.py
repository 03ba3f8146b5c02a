"""Deterministic text, and token counts anybody can check: a whitespace-separated word is a token. Pure.

A key's words go round a list of 128: each lap has a first word and an odd stride of its own, both drawn from
key and lap, so that no word comes twice in a lap, and what two keys say parts after a word or two.
"""

from functools import cache, lru_cache
from importlib import resources

# Plain ASCII letters: a word goes into JSON as it is.
_WORDS = (resources.files("mockserver") / "words.txt").read_text("ascii").split()
_LAP = len(_WORDS)  # a power of two, so that every odd stride meets every word
_MASK = 2**64 - 1


def count_tokens(text: str) -> int:
    """Number of tokens of a text: its whitespace-separated words."""
    return len(text.split())


def has_more_tokens(text: str, tokens: int) -> bool:
    """Whether a text has more than so many, found out without counting the rest: bodies may be large."""
    return len(text) > 2 * tokens and len(text.split(None, tokens)) > tokens


def spaced(key: int, start: int, count: int) -> list[bytes]:
    """The ``count`` words of a key from position ``start`` on, as bytes, a space before each."""
    lap, place = divmod(start, _LAP)
    found = list(_lap(key, lap)[place : place + count])
    while len(found) < count:
        lap += 1
        found += _lap(key, lap)[: count - len(found)]
    return found


@lru_cache(maxsize=4096)
def _lap(key: int, lap: int) -> tuple[bytes, ...]:
    """All words in the order in which a lap of a key meets them."""
    first, stride = _drawn(key, lap)
    order = _order(stride)
    turn = first * pow(stride, -1, _LAP) % _LAP  # where this order meets the lap's first word
    return order[turn:] + order[:turn]


def _drawn(key: int, lap: int) -> tuple[int, int]:
    """First word and stride of a lap: the finaliser of SplitMix64 (Steele and others, 2014)."""
    mixed = (key * 0x9E3779B97F4A7C15 + (lap + 1) * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    mixed ^= mixed >> 31
    return mixed % _LAP, (mixed >> 32) % (_LAP // 2) * 2 + 1


@cache
def _order(stride: int) -> tuple[bytes, ...]:
    """All words, a space before each, in steps of ``stride`` from the first one on."""
    return tuple(b" " + _WORDS[stride * place % _LAP].encode("ascii") for place in range(_LAP))
