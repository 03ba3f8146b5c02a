"""What each request, or each conversation's first turn, is about: length, file or trace item, shared prefix.

Classes, lengths and prefixes follow from (seed, stage, place in the stage). A *block* is one request per
tier; what is drawn is drawn for a block, and so is the same for all tiers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from loadtest import lengths
from loadtest.lengths import Law
from loadtest.plan import Plan
from loadtest.plan_workload import Empirical, Lognormal, Uniform
from loadtest.prompt_files import PromptFile
from loadtest.prose import Counting
from loadtest.traces import TraceRows

_SALT_CLASS, _SALT_PROMPT, _SALT_OUTPUT, _SALT_SHARE, _SALT_GROUP = 2, 9, 10, 11, 12


@dataclass(frozen=True, slots=True)
class Opening:
    """What a request, or a conversation's first turn, is about."""

    tokens: int
    output_tokens: int | None = None
    """What a file or a trace says of the answer's length."""
    item: int | None = None
    """Which prompt of the file or row of the trace, counted on when they are used again."""
    prefix_group: int | None = None


class Openings:
    """Chooses the openings of one plan. ``cautions`` grows with use, a sentence each."""

    def __init__(
        self,
        plan: Plan,
        counting: Counting,
        prompts: PromptFile | None,
        trace: TraceRows | None,
        *,
        count: Callable[[str], int] | None,
        folder: Path,
    ) -> None:
        self.cautions: list[str] = []
        self._plan, self._counting = plan, counting
        self._prompts, self._trace, self._count = prompts, trace, count
        self._prompt_law = law_of(plan.workload.prompt_tokens, folder)
        self._output_law = law_of(plan.workload.output_tokens, folder)
        if trace is not None and trace.left_out:
            self._caution(f"{trace.name}: {trace.left_out} rows without tokens were left out")
        if prompts is not None and prompts.left_out:
            self._caution(
                f"{prompts.name}: {prompts.left_out} conversations without a question were left out"
            )

    def opening(self, stage_number: int, unit: int, *, tier_number: int, item: int) -> Opening:
        """What a stage's request or conversation ``unit`` is about; ``item`` counts through the whole run."""
        block = unit // len(self._plan.tiers)
        if self._prompts is not None:
            return self._of_file(self._prompts, item)
        if self._trace is not None:
            return self._of_trace(self._trace, stage_number, unit, block)
        group = self._group(stage_number, block)
        if self._prompt_law is not None:
            key = self._plan.seed, _SALT_PROMPT, stage_number, block
            return Opening(_drawn(self._prompt_law, 1, *key)[0], prefix_group=group)
        tokens = self._class(stage_number, block, tier_number)
        return Opening(tokens, prefix_group=group)

    def outputs(self, stage_number: int, unit: int, turns: int, opening: Opening) -> list[int]:
        """Output lengths asked for in the first ``turns`` turns of a conversation."""
        work = self._plan.workload
        if opening.output_tokens is not None:
            return [opening.output_tokens] * turns
        if self._output_law is None:
            assert isinstance(work.output_tokens, int)  # a plan without is refused
            return [work.output_tokens] * turns
        key = self._plan.seed, _SALT_OUTPUT, stage_number, unit // len(self._plan.tiers)
        return _drawn(self._output_law, work.sessions.turns if work.sessions else 1, *key)[:turns]

    def _class(self, stage_number: int, block: int, tier_number: int) -> int:
        """The exact class of a tier's next request: one of each in random order, then again."""
        seed, classes = self._plan.seed, self._plan.workload.classes
        turn, place = divmod(block, len(classes))
        return classes[shuffled(len(classes), seed, _SALT_CLASS, stage_number, tier_number, turn)[place]]

    def _of_file(self, prompts: PromptFile, item: int) -> Opening:
        """A file's next prompt; without a tokenizer its length is estimated from its words."""
        work = self._plan.workload
        if item >= len(prompts) and work.prompts and not work.prompts.repeat:
            self._caution(
                f"{prompts.name}: its {len(prompts)} prompts were used more than once; "
                "a prefix cache may have known them"
            )
        prompt = prompts.prompt(item % len(prompts))
        output_tokens = prompt.output_tokens
        if output_tokens is None and work.output_tokens is None:
            output_tokens = self._counting.tokens(prompt.answer_words or 1)
        if self._count is not None:
            tokens = max(1, sum(self._count(message.text) for message in prompt.messages))
        else:
            tokens = self._counting.tokens(prompt.words)
        return Opening(tokens, output_tokens, item=item)

    def _of_trace(self, trace: TraceRows, stage_number: int, item: int, block: int) -> Opening:
        lap, row = divmod(item, len(trace))
        if lap:
            self._caution(
                f"{trace.name}: its {len(trace)} rows were played more than once; "
                "their lengths repeat, their text does not"
            )
        group = self._group(stage_number, block)
        tokens, output_tokens = int(trace.prompt_tokens[row]), int(trace.output_tokens[row])
        return Opening(tokens, output_tokens, item=item, prefix_group=group)

    def _group(self, stage_number: int, block: int) -> int | None:
        """Which shared prefix a block's requests begin with, if any: an exact share at every moment.

        Block k is one of the share if the whole part of k · ratio + phase grows there; groups take turns, in
        random order within each turn.
        """
        shared = self._plan.workload.shared_prefix
        if shared is None:
            return None
        phase = _phase(self._plan.seed, _SALT_SHARE, stage_number)
        before = int(block * shared.requests_ratio + phase)
        if int((block + 1) * shared.requests_ratio + phase) == before:
            return None
        turn, place = divmod(before, shared.groups)
        return shuffled(shared.groups, self._plan.seed, _SALT_GROUP, stage_number, turn)[place]

    def _caution(self, sentence: str) -> None:
        if sentence not in self.cautions:
            self.cautions.append(sentence)


def law_of(asked: object, folder: Path) -> Law | None:
    """The law of lengths that are drawn; None for others."""
    return lengths.law(asked, folder=folder) if isinstance(asked, Lognormal | Uniform | Empirical) else None


@lru_cache(maxsize=64)  # neighbours share their block
def shuffled(count: int, *key: int) -> list[int]:
    """The numbers from 0 to ``count`` - 1 in an order that follows from the key."""
    order: list[int] = [0] if count == 1 else np.random.default_rng(key).permutation(count).tolist()
    return order


@lru_cache(maxsize=64)  # turns share their conversation
def _drawn(law: Law, count: int, *key: int) -> list[int]:
    drawn: list[int] = law(np.random.default_rng(key), count).tolist()
    return drawn


@lru_cache(maxsize=64)
def _phase(*key: int) -> float:
    """A number from 0 to 1, coarse enough that adding it to a count is exact."""
    return int(np.random.default_rng(key).integers(2**20)) / 2**20
