"""What each request asks: which tier, which prompt length, which text. Pure and random-access by position.

The design is that of a paired experiment. A stage's requests come in blocks of one request per tier, in
random order inside the block; within each tier, prompt-length classes come in blocks of one per class,
shuffled independently of the other tiers. So arms are interleaved in time, balanced at every moment, and a
drift of the server hits both alike. Lengths that are drawn, and shared prefixes, are the same for all
requests of a block, so that arms are alike in them to the last token. Where there are conversations, all this
holds of them and not of their turns.

Everything follows from (seed, stage, position): no state, no clock. Prompts of a file go by the request's
number in the whole run instead, so that a second stage does not begin with the first one's again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadtest import arrivals, prompt_files, tokenizer, traces
from loadtest.openings import Openings, shuffled
from loadtest.plan import Plan, Tier
from loadtest.prompt_files import Message, PromptFile
from loadtest.prose import Blocks, Counting, Lexicon, Prose
from loadtest.traces import TraceRows

__all__ = ["Counting", "Message", "Request", "Source", "open_source"]

_SALT_ORDER = 1


@dataclass(frozen=True, slots=True)
class Request:
    """One request before it is sent. ``prompt_tokens`` is aimed at; what the server counts may differ."""

    index: int
    """Unique within the run, in the order of sending."""
    stage: str
    warmup: bool
    tier: Tier
    prompt_tokens: int
    """With the history, if it has one: all that was said before and the answers asked for."""
    max_tokens: int
    session: str | None = None
    """Which conversation of the run it belongs to."""
    turn: int = 0
    """0 for the first request of a conversation, and for all others."""
    added_tokens: int | None = None
    """What this turn adds to ``prompt_tokens``; None: all of them."""
    prefix_group: int | None = None
    """Which shared prefix it begins with."""
    item: int | None = None
    """Which prompt of a file or row of a trace it is, counted on when they are used again."""
    stage_number: int = 0


class Source:
    """Makes the requests of one plan. Random access: everything follows from (seed, stage, position)."""

    def __init__(
        self,
        plan: Plan,
        counting: Counting,
        *,
        lexicon: Lexicon | None = None,
        prompts: PromptFile | None = None,
        trace: TraceRows | None = None,
        folder: Path = Path(),
    ) -> None:
        self.plan = plan
        self.counting = counting
        self.turns = plan.workload.sessions.turns if plan.workload.sessions else 1
        count = lexicon.count if lexicon else None
        self._openings = Openings(plan, counting, prompts, trace, count=count, folder=folder)
        self._prose = Prose(plan.seed, counting, lexicon or Lexicon())
        self._counted_exactly = lexicon is not None
        self._prompts, self._trace = prompts, trace

    @property
    def cautions(self) -> list[str]:
        """What whoever reads the results should know of the prompts, a sentence each; grows with use."""
        return self._openings.cautions

    def instants(self, stage_number: int) -> Iterator[int]:
        """When a stage's requests (or conversations) should leave: ns from its start, none for a closed loop.

        Without end, unless a trace tells them.
        """
        return arrivals.instants(
            self.plan.stages[stage_number].arrivals,
            seed=self.plan.seed,
            stage_number=stage_number,
            trace_ns=map(int, self._trace.at_ns) if self._trace is not None else (),
        )

    def request(self, stage_number: int, position: int, *, index: int) -> Request:
        """The request at ``position`` (0, 1, …) of a stage; ``index`` is its number within the whole run.

        Where there are conversations, position = conversation · turns + turn.
        """
        plan = self.plan
        stage, sessions = plan.stages[stage_number], plan.workload.sessions
        unit, turn = divmod(position, self.turns)
        block, place = divmod(unit, len(plan.tiers))
        tier_number = shuffled(len(plan.tiers), plan.seed, _SALT_ORDER, stage_number, block)[place]
        item = (index - turn) // self.turns
        opening = self._openings.opening(stage_number, unit, tier_number=tier_number, item=item)
        outputs = self._openings.outputs(stage_number, unit, turn + 1, opening)
        grown = sum(outputs[:-1]) + turn * (sessions.turn_tokens if sessions else 0)
        return Request(
            index=index,
            stage=stage.name,
            warmup=stage.warmup,
            tier=self._tier(tier_number, turn),
            prompt_tokens=opening.tokens + grown,
            max_tokens=outputs[-1],
            session=f"{stage.name}-{unit}" if sessions else None,
            turn=turn,
            added_tokens=sessions.turn_tokens if sessions and turn else None,
            prefix_group=None if turn else opening.prefix_group,
            item=None if turn else opening.item,
            stage_number=stage_number,
        )

    def prompt_words(self, request: Request) -> int:
        """Number of words that ``says`` says, so that they cost the tokens it adds; at least one."""
        if self._counted_exactly or (self._prompts is not None and request.item is not None):
            return sum(len(message.text.split()) for message in self.says(request))
        return self.counting.words(_added(request))

    def says(self, request: Request) -> list[Message]:
        """What a request adds to its conversation; all there is to send, for a first or only turn.

        But for what is shared on purpose, words that no other request of this plan and seed begins with.
        """
        if self._prompts is not None and request.item is not None:
            return self._prompts.prompt(request.item % len(self._prompts)).messages
        return [Message("user", self._text(request))]

    def blocks(self, request: Request) -> Blocks | None:
        """The pieces of a trace that a request's text is made of; None for text that has none."""
        if self._trace is None or not self._trace.has_blocks or request.turn:
            return None
        return self._blocks(self._trace, request)

    def _tier(self, tier_number: int, turn: int) -> Tier:
        """The tier of a turn: its conversation's, or the one that all are switched to."""
        tiers, sessions = self.plan.tiers, self.plan.workload.sessions
        if sessions is None or sessions.switch_turn is None or turn < sessions.switch_turn:
            return tiers[tier_number]
        return next(tier for tier in tiers if tier.name == sessions.switch_tier)

    def _text(self, request: Request) -> str:
        tokens, shared = _added(request), self.plan.workload.shared_prefix
        if self._trace is not None and self._trace.has_blocks:
            return self._prose.blocks(self._blocks(self._trace, request), request.index, tokens)
        if shared is not None and request.prefix_group is not None:
            return self._prose.prefixed(request.prefix_group, shared.tokens, request.index, tokens)
        return self._prose.fresh(request.index, tokens)

    def _blocks(self, trace: TraceRows, request: Request) -> Blocks:
        """A row's blocks; a request that is no row has blocks of its own, and so costs tokens like one."""
        block_tokens = trace.block_tokens or 1
        if request.item is None:
            ids = np.arange(-(-request.prompt_tokens // block_tokens), dtype=np.int64)
            return Blocks(ids, block_tokens, salt=(request.index,), fresh=True)
        lap, row = divmod(request.item, len(trace))
        serial = lap * len(self.plan.stages) + request.stage_number
        return Blocks(
            trace.block_ids(row),
            block_tokens,
            salt=(request.stage_number, lap),
            first_mark=serial * (trace.greatest_id + 1),
        )


def open_source(plan: Plan, *, folder: Path = Path(), counting: Counting | None = None) -> Source:
    """Make a plan's source of requests; files it names are found from ``folder``, that of the plan's file.

    ``counting`` is what was measured of the server; None takes the plan's word, or one token a word. Raises
    BadInputError, in one line, for a file that cannot be used.
    """
    work = plan.workload
    lexicon = prompts = None
    if work.tokenizer is not None:
        lexicon = tokenizer.lexicon(folder / work.tokenizer)
    if work.prompts is not None:
        lengths_needed = work.output_tokens is None
        prompts = prompt_files.open_prompts(work.prompts, folder=folder, lengths_needed=lengths_needed)
    trace = traces.load(work.trace, folder=folder) if work.trace is not None else None
    stated = 1.0 if work.tokens_per_word is None else work.tokens_per_word
    return Source(
        plan, counting or Counting(stated), lexicon=lexicon, prompts=prompts, trace=trace, folder=folder
    )


def _added(request: Request) -> int:
    return request.prompt_tokens if request.added_tokens is None else request.added_tokens
