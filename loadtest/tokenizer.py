"""Words whose tokens are known from a local ``tokenizer.json``, by the optional ``tokenizers`` package.

A file of one's own: nothing is downloaded. Words that cost exactly one token behind another word are kept, so
that a text's length follows from its words and nothing has to be tokenised while a run lasts but the first
word of each text. The server's chat template is not in the file and comes on top.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

from loadtest.prose import WORDS, Lexicon
from tierscope.errors import BadInputError

_FEWEST_WORDS = 50
"""With fewer words of one token a text would be odd, and a cache or a speculator might find it easy."""


def lexicon(path: Path) -> Lexicon:
    """Read a tokenizer file and sort out the words that cost one token each.

    Raises BadInputError, in one line, if the package is missing, the file is none, or its vocabulary has too
    few of our words.
    """
    tokenizer = _open(path)

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    before = WORDS[0]
    alone = count(before)
    words = tuple(word for word in WORDS if count(f"{before} {word}") == alone + 1)
    if len(words) < _FEWEST_WORDS or count(" ".join([before, *words])) != alone + len(words):
        raise BadInputError(
            f"{path}: {len(words)} of {len(WORDS)} words cost one token each; "
            f"at least {_FEWEST_WORDS} that add up are needed: give tokens_per_word instead"
        )

    @lru_cache(maxsize=4096)
    def mark_tokens(mark: str, first: bool) -> int:
        return count(mark) if first else count(f"{before} {mark}") - alone

    return Lexicon(words, mark_tokens, count)


def _open(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise BadInputError(
            f"{path}: to read it, the package tokenizers is needed: pip install tokenizers"
        ) from error
    try:
        data = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{path}: cannot be read: {getattr(error, 'strerror', 'is not UTF-8')}"
        ) from error
    try:
        return Tokenizer.from_str(data)
    except Exception as error:  # the package raises no other for a file that is none
        raise BadInputError(f"{path}: is no tokenizer.json: {' '.join(str(error).split())[:200]}") from error
