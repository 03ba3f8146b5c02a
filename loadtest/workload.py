"""What each request asks: which tier, which prompt length, which text. Pure and random-access by index.

The design is that of a paired experiment. A stage's requests come in blocks of one request per tier, in
random order inside the block; within each tier, prompt-length classes come in blocks of one per class,
shuffled independently of the other tiers. So arms are interleaved in time, balanced at every moment, and a
drift of the server hits both alike. Everything follows from (seed, stage, position): no state, no clock.
"""

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from loadtest.plan import Plan, Tier

# Common short English words: one token each, with their leading space, in most vocabularies.
_WORDS = np.array((resources.files("loadtest") / "words.txt").read_text("utf-8").split(), dtype=object)
_SALT_ORDER, _SALT_CLASS, _SALT_TEXT = 1, 2, 3


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


def request(plan: Plan, stage_number: int, position: int, *, index: int) -> Request:
    """The request at ``position`` (0, 1, …) of a stage; ``index`` is its number within the whole run."""
    stage = plan.stages[stage_number]
    block, place = divmod(position, len(plan.tiers))
    tier_number = _shuffled(len(plan.tiers), plan.seed, _SALT_ORDER, stage_number, block)[place]
    classes = plan.workload.prompt_tokens
    class_block, class_place = divmod(block, len(classes))
    class_order = _shuffled(len(classes), plan.seed, _SALT_CLASS, stage_number, tier_number, class_block)
    return Request(
        index=index,
        stage=stage.name,
        warmup=stage.warmup,
        tier=plan.tiers[tier_number],
        prompt_tokens=classes[class_order[class_place]],
        max_tokens=plan.workload.output_tokens,
    )


def prompt_words(plan: Plan, request: Request) -> int:
    """Number of words in a request's prompt: ``prompt_tokens / tokens_per_word``, rounded, at least one."""
    return max(1, round(request.prompt_tokens / plan.workload.tokens_per_word))


def prompt_text(plan: Plan, request: Request) -> str:
    """The prompt of a request: words that no other request of this plan and seed starts with.

    The first word tells requests apart (a number in letters), so that no prefix cache is hit by accident.
    """
    rng = np.random.default_rng((plan.seed, _SALT_TEXT, request.index))
    words = _WORDS[rng.integers(0, len(_WORDS), size=prompt_words(plan, request))]
    words[0] = _spelled(plan.seed % 1_000_003 * 100_000_000 + request.index)
    return " ".join(words)


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
