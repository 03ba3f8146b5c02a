"""How a server counts our words, measured by a few short requests before the run. Pure.

Who runs a plan sends ``requests``, reads what the server counted from the records, makes a ``Counting`` of it
with ``fit`` and opens the plan's source with that (``calibrating`` does). ``prompt_errors`` counts how
far the prompts then were from what was aimed at.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loadtest.plan import CALIBRATION, Closed, Plan, Stage
from loadtest.prose import Counting
from loadtest.workload import Request, Source, open_source
from tierscope.errors import BadInputError

PROMPT_WORDS = (16, 64, 256)
"""Word counts to ask for: one near the template's overhead, one far from it, one between to see a bend."""
OUTPUT_TOKENS = 16
"""The fewest that every API takes (OpenAI's Responses, 2026)."""

STAGE = Stage(name=CALIBRATION, arrivals=Closed(streams=1), requests=len(PROMPT_WORDS), warmup=True)
"""What the requests pass for in records and counts."""

_LEAST_TOKENS_PER_WORD, _MOST_TOKENS_PER_WORD = 0.1, 100.0
_MOST_BEND_TOKENS, _MOST_BEND_RATIO = 4.0, 0.1
"""How far a measured prompt may lie from the line: words differ by chance, and the mark is spelled."""


def needed(plan: Plan) -> bool:
    """Whether the plan leaves it to the run to find out how words become tokens."""
    work = plan.workload
    return work.tokens_per_word is None and work.tokenizer is None and work.prompts is None


def source(plan: Plan, *, folder: Path = Path()) -> Source:
    """A source whose words are counted one by one, which is what is to be measured."""
    return open_source(plan, folder=folder, counting=Counting())


def requests(plan: Plan) -> list[Request]:
    """The requests to send, of the first tier, as warm-up; their texts are ``source(plan).says``.

    ``prompt_tokens`` is the number of words. Their indexes are the run's first: no other has their text.
    """
    return [
        Request(
            index=index,
            stage=CALIBRATION,
            warmup=True,
            tier=plan.tiers[0],
            prompt_tokens=words,
            max_tokens=OUTPUT_TOKENS,
        )
        for index, words in enumerate(PROMPT_WORDS)
    ]


def fit(words: Sequence[int], prompt_tokens: Sequence[int]) -> Counting:
    """Fit tokens = overhead + tokens_per_word · words by least squares.

    Raises BadInputError, in one line, if that is no measurement: fewer than two word counts, tokens that do
    not grow with words, a slope no tokenizer has, or points far off the line.
    """
    if len(set(words)) < 2:
        raise BadInputError(
            f"tokens per word: {len(set(words))} prompt lengths were counted; at least 2 are needed"
        )
    pairs = sorted(zip(words, prompt_tokens, strict=True))
    asked, counted = np.array(pairs, dtype=np.float64).T
    shown = ", ".join(f"{tokens} for {count}" for count, tokens in pairs)
    if (np.diff(counted)[np.diff(asked) > 0] <= 0).any():
        raise BadInputError(f"tokens per word: the server's counts do not grow with the words: {shown}")
    slope, overhead = (float(value) for value in np.polyfit(asked, counted, 1))
    if not _LEAST_TOKENS_PER_WORD <= slope <= _MOST_TOKENS_PER_WORD:
        raise BadInputError(
            f"tokens per word: {slope:.3g} is not believable; expected {_LEAST_TOKENS_PER_WORD:g} to "
            f"{_MOST_TOKENS_PER_WORD:g}: {shown}"
        )
    off = np.abs(counted - overhead - slope * asked)
    if (off > _MOST_BEND_TOKENS + _MOST_BEND_RATIO * counted).any():
        raise BadInputError(f"tokens per word: the server's counts lie on no line: {shown}")
    return Counting(round(slope, 6), round(overhead, 3))
