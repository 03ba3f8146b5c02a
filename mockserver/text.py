"""Deterministic text, and token counts anybody can check: a whitespace-separated word is a token. Pure."""

from functools import cache
from importlib import resources

# Plain ASCII letters: a word goes into JSON as it is.
_WORDS = (resources.files("mockserver") / "words.txt").read_text("ascii").split()
_STRIDE = 41  # coprime to the number of words: every word comes up before one comes again


def count_tokens(text: str) -> int:
    """Number of tokens of a text: its whitespace-separated words."""
    return len(text.split())


def word(job_id: int, position: int) -> str:
    """The output word at ``position`` (0, 1, …) of a job; all but the first carry a leading space."""
    chosen = _WORDS[index(job_id, position)]
    return chosen if position == 0 else " " + chosen


def output(job_id: int, tokens: int) -> str:
    """The whole output of a job of so many tokens."""
    return "".join(word(job_id, position) for position in range(tokens))


@cache
def spaced_words() -> tuple[bytes, ...]:
    """All words with a leading space, as bytes, in the order in which ``index`` counts them."""
    return tuple(b" " + chosen.encode("ascii") for chosen in _WORDS)


def index(job_id: int, position: int) -> int:
    """Place in ``spaced_words`` of the output word at ``position`` of a job."""
    return (job_id + _STRIDE * position) % len(_WORDS)
