"""The set of sequences that decode in a step, with their total context kept up to date. Pure.

A step never looks at all its sequences: each one joins knowing the step that brings its last token, so ending
a step costs what leaves it, and Σ context grows by the number of sequences. Steps are numbered from 0.
"""

import heapq
from typing import Literal

State = Literal["arriving", "waiting", "prefilling", "decoding", "parked", "gone"]


class Sequence:
    """One request on its way through the engine, of ours or of the hidden load."""

    __slots__ = (
        "first_step",
        "first_token_ns",
        "generated",
        "hidden",
        "job_id",
        "joined_step",
        "last_step",
        "output_tokens",
        "place",
        "prefilled",
        "prompt_tokens",
        "state",
        "submitted_ns",
    )

    def __init__(
        self, job_id: int, prompt_tokens: int, output_tokens: int, submitted_ns: int, *, hidden: bool
    ) -> None:
        self.job_id = job_id
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.submitted_ns = submitted_ns
        self.hidden = hidden
        self.state: State = "arriving"
        self.prefilled = 0
        self.generated = 0  # tokens it had when it last joined or left the batch
        self.joined_step = -1
        self.first_step = -1  # the step whose end brought its first token
        self.last_step = -1  # the step whose end will bring its last token
        self.first_token_ns: int | None = None
        self.place = -1  # index among the hidden ones of the batch

    @property
    def kv_tokens(self) -> int:
        """KV that the sequence reserves from admission to its end: prompt and all of its output."""
        return self.prompt_tokens + self.output_tokens


class DecodeBatch:
    """All sequences that get a token from the next step's end.

    ``join`` and ``leave`` take the number of the next step (or of the running one, for a cancellation: it
    leaves with the tokens it has so far). Cost: O(log n) to join, O(1) to leave, O(leaving) to end a step.
    """

    def __init__(self) -> None:
        self.size = 0
        self.context_tokens = 0
        self.own: dict[int, Sequence] = {}  # in order of joining
        self.hidden: list[Sequence] = []  # in no order, for drawing one
        self._endings: list[tuple[int, int, Sequence]] = []
        self._serial = 0
        self._own_ids: tuple[int, ...] | None = ()

    def own_ids(self) -> tuple[int, ...]:
        """Ids of our own sequences, in order of joining; the same tuple until that set changes."""
        if self._own_ids is None:
            self._own_ids = tuple(self.own)
        return self._own_ids

    def join(self, sequence: Sequence, step: int) -> None:
        """Let a sequence that has its first token and lacks at least one take part from ``step`` on."""
        sequence.state = "decoding"
        sequence.joined_step = step
        sequence.last_step = step + sequence.output_tokens - sequence.generated - 1
        self.size += 1
        self.context_tokens += sequence.prompt_tokens + sequence.generated
        self._serial += 1
        heapq.heappush(self._endings, (sequence.last_step, self._serial, sequence))
        if sequence.hidden:
            sequence.place = len(self.hidden)
            self.hidden.append(sequence)
        else:
            self.own[sequence.job_id] = sequence
            self._own_ids = None

    def leave(self, sequence: Sequence, step: int, state: State) -> None:
        """Take a sequence out before ``step`` brings it a token; ``state`` is what becomes of it."""
        sequence.generated += step - sequence.joined_step
        sequence.state = state
        self.size -= 1
        self.context_tokens -= sequence.prompt_tokens + sequence.generated
        if sequence.hidden:
            moved = self.hidden.pop()
            if moved is not sequence:
                self.hidden[sequence.place] = moved
                moved.place = sequence.place
        else:
            del self.own[sequence.job_id]
            self._own_ids = None

    def end_step(self, step: int) -> list[Sequence]:
        """Give every sequence its token of ``step``; those that have all of theirs leave and are returned."""
        self.context_tokens += self.size
        done: list[Sequence] = []
        endings = self._endings
        while endings and endings[0][0] <= step:
            last_step, _, sequence = heapq.heappop(endings)
            if sequence.state == "decoding" and sequence.last_step == last_step:  # else it left meanwhile
                self.leave(sequence, step + 1, "gone")
                done.append(sequence)
        return done
