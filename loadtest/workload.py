"""What each request asks: which tier, which prompt length, which text. Pure and random-access by index.

The design is that of a paired experiment. A stage's requests come in blocks of one request per tier, in
random order inside the block; within each tier, prompt-length classes come in blocks of one per class,
shuffled independently of the other tiers. So arms are interleaved in time, balanced at every moment, and a
drift of the server hits both alike. Everything follows from (seed, stage, position): no state, no clock.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path

import numpy as np

from loadtest.plan import Plan, Tier

# Common short English words: one token each, with their leading space, in most vocabularies.
_WORDS = np.array((resources.files("loadtest") / "words.txt").read_text("utf-8").split(), dtype=object)
_SALT_ORDER, _SALT_CLASS, _SALT_TEXT = 1, 2, 3


MIXED = "mixed"
"""The prompt class of requests whose lengths are drawn, and so are in no exact class."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request before it is sent. ``prompt_tokens`` is aimed at; what the server counts may differ."""

    index: int
    """Unique within the run, in the order of sending."""
    stage: str
    warmup: bool
    tier: Tier
    prompt_tokens: int
    max_tokens: int
    prompt_class: str = MIXED
    """A label of low cardinality: the exact class in tokens, or ``mixed``."""
    session: str | None = None
    """Which conversation of the run it belongs to."""
    turn: int = 0
    """0 for the first request of a conversation, and for all others."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Counting:
    """How prompt words become the server's tokens: tokens = overhead_tokens + tokens_per_word · words."""

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0


class Source:
    """Makes the requests of one plan. Random access: everything follows from (seed, stage, position)."""

    def __init__(self, plan: Plan, counting: Counting) -> None:
        self.plan = plan
        self.counting = counting

    def request(self, stage_number: int, position: int, *, index: int) -> Request:
        """The request at ``position`` (0, 1, …) of a stage; ``index`` is its number within the whole run.

        Where there are conversations, position = conversation · turns + turn.
        """
        plan = self.plan
        stage = plan.stages[stage_number]
        block, place = divmod(position, len(plan.tiers))
        tier_number = _shuffled(len(plan.tiers), plan.seed, _SALT_ORDER, stage_number, block)[place]
        classes = plan.workload.classes
        class_block, class_place = divmod(block, len(classes))
        class_order = _shuffled(len(classes), plan.seed, _SALT_CLASS, stage_number, tier_number, class_block)
        tokens = classes[class_order[class_place]]
        assert isinstance(plan.workload.output_tokens, int)
        return Request(
            index=index,
            stage=stage.name,
            warmup=stage.warmup,
            tier=plan.tiers[tier_number],
            prompt_tokens=tokens,
            max_tokens=plan.workload.output_tokens,
            prompt_class=str(tokens),
        )

    def prompt_words(self, request: Request) -> int:
        """Number of words in a request's prompt, so that it costs ``prompt_tokens``; at least one."""
        counting = self.counting
        return max(1, round((request.prompt_tokens - counting.overhead_tokens) / counting.tokens_per_word))

    def says(self, request: Request) -> list[Message]:
        """What a request adds to its conversation; all there is to send, for a first or only turn.

        Words that no other request of this plan and seed starts with: the first word tells requests apart (a
        number in letters), so that no prefix cache is hit by accident.
        """
        rng = np.random.default_rng((self.plan.seed, _SALT_TEXT, request.index))
        words = _WORDS[rng.integers(0, len(_WORDS), size=self.prompt_words(request))]
        words[0] = _spelled(self.plan.seed % 1_000_003 * 100_000_000 + request.index)
        return [Message("user", " ".join(words))]


def open_source(plan: Plan, *, folder: Path = Path(), counting: Counting | None = None) -> Source:  # noqa: ARG001
    """Make a plan's source of requests; files it names are found from ``folder``, that of the plan's file.

    ``counting`` is what was measured of the server; None takes the plan's word, or one token a word. Raises
    BadInputError, in one line, for a file that cannot be used.
    """
    stated = plan.workload.tokens_per_word
    return Source(plan, counting or Counting(1.0 if stated is None else stated))


def _spelled(number: int) -> str:
    """Write a number in base 26 letters, units first, so that neighbours differ from the first letter on."""
    letters = ""
    while number or not letters:
        number, digit = divmod(number, 26)
        letters += chr(ord("a") + digit)
    return letters + "q"


@lru_cache(maxsize=64)  # neighbours share their block
def _shuffled(count: int, *key: int) -> list[int]:
    order: list[int] = [0] if count == 1 else np.random.default_rng(key).permutation(count).tolist()
    return order
