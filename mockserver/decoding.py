"""The set of sequences that decode in a step, with their total context kept up to date. Pure.

A step never looks at all its sequences: each one joins knowing the step that brings its last token, and
with speculation what every step until then brings, so ending a step costs what leaves it. Decode steps are
numbered from 0; they are those in which the batch takes part. Where prefill pauses decoding, not every step
is one.
"""

import heapq

import numpy as np

from mockserver.sequence import Sequence
from mockserver.speculation import Coming, Drafting

_NEVER = 2**62
_READ_STEPS = 16


class DecodeBatch:
    """All sequences that get tokens from the next decode step's end.

    A sequence that leaves while a step runs leaves with the tokens it has so far. Cost: O(log n) to join,
    O(1) to leave, O(leaving) to end a step; with speculation, joining and leaving early cost a pass over the
    steps ahead, and to tell what each of our own gets costs O(own).
    """

    def __init__(self, drafting: Drafting | None = None) -> None:
        self.step = 0
        """Number of the next decode step, or of the running one."""
        self.size = 0
        self.context_tokens = 0
        self.served = 0
        """Σ over all decode steps so far of the sequences that took part."""
        self.own: dict[int, Sequence] = {}  # in order of joining
        self.hidden: list[Sequence] = []  # in no order, for drawing one
        self._drafting, self._coming = drafting, Coming() if drafting else None
        self._endings: list[tuple[int, int, Sequence]] = []
        self._serial = 0
        self._own_ids: tuple[int, ...] | None = ()
        self._counts: list[tuple[int, ...]] = []  # of own sequences, in steps from _counts_from on
        self._counts_from = 0

    @property
    def growth(self) -> int:
        """Tokens that the next decode step brings, all sequences together."""
        return self.size if self._coming is None else self._coming.at(self.step)

    @property
    def next_ending(self) -> int:
        """No sequence has all its tokens before this decode step has ended."""
        return self._endings[0][0] if self._endings else _NEVER

    def own_ids(self) -> tuple[int, ...]:
        """Ids of our own sequences, in order of joining; the same tuple until that set changes."""
        if self._own_ids is None:
            self._own_ids = tuple(self.own)
        return self._own_ids

    def own_counts(self, after: int = 0) -> tuple[int, ...] | None:
        """Tokens that the next decode step brings each of them, or one ``after`` it; None: one each.

        Nobody may end before it does. Several steps are read off at once, and kept until that set changes.
        """
        if self._coming is None:
            return None
        place = self.step + after - self._counts_from
        if not 0 <= place < len(self._counts):
            place, self._counts_from = 0, self.step + after
            self._counts = self._read_off(self.step + after)
        return self._counts[place]

    def growths(self, steps: int) -> list[int]:
        """Tokens that each of the next decode steps brings while nobody comes or goes; with speculation."""
        return [] if self._coming is None else self._coming.ahead(self.step, steps)

    def join(self, sequence: Sequence) -> None:
        """Let a sequence that lacks at least one token take part from the next decode step on."""
        missing = sequence.output_tokens - sequence.generated
        if self._coming is not None and self._drafting is not None:
            counts = self._drafting.pattern(missing)
            self._coming.add(self.step, counts)
            sequence.pattern, missing = counts.tobytes(), len(counts)
        sequence.state = "decoding"
        sequence.joined_step, sequence.last_step = self.step, self.step + missing - 1
        sequence.served_before = self.served
        self.size += 1
        self.context_tokens += sequence.prompt_tokens + sequence.generated
        self._serial += 1
        heapq.heappush(self._endings, (sequence.last_step, self._serial, sequence))
        if sequence.hidden:
            sequence.place = len(self.hidden)
            self.hidden.append(sequence)
        else:
            self.own[sequence.job_id] = sequence
            self._own_ids, self._counts = None, []

    def leave(self, sequence: Sequence) -> None:
        """Take a sequence out, ``parked``, before the next step (or the running one) brings it a token."""
        steps = self.step - sequence.joined_step
        if self._coming is None or sequence.pattern is None:
            sequence.generated += steps
        else:
            sequence.generated += sum(sequence.pattern[:steps])
            if steps < len(sequence.pattern):
                self._coming.remove(self.step, np.frombuffer(sequence.pattern, np.uint8, offset=steps))
        sequence.state = "parked"
        sequence.decode_steps += steps
        sequence.decoded_with += self.served - sequence.served_before
        self.size -= 1
        self.context_tokens -= sequence.prompt_tokens + sequence.generated
        if sequence.hidden:
            moved = self.hidden.pop()
            if moved is not sequence:
                self.hidden[sequence.place] = moved
                moved.place = sequence.place
        else:
            del self.own[sequence.job_id]
            self._own_ids, self._counts = None, []

    def coast(self, steps: int) -> None:
        """Make ``steps`` decode steps pass in which nobody ends."""
        if self._coming is None:
            self.context_tokens += steps * self.size
        else:
            self.context_tokens += sum(self._coming.take(self.step + ahead) for ahead in range(steps))
        self.step += steps
        self.served += steps * self.size

    def end_step(self) -> list[Sequence]:
        """Give every sequence its tokens; those that have all of theirs leave, ``gone``, and are returned."""
        self.context_tokens += self.size if self._coming is None else self._coming.take(self.step)
        self.served += self.size
        self.step += 1
        done: list[Sequence] = []
        endings = self._endings
        while endings and endings[0][0] < self.step:
            last_step, _, sequence = heapq.heappop(endings)
            if sequence.state == "decoding" and sequence.last_step == last_step:  # else it left meanwhile
                self.leave(sequence)
                sequence.state = "gone"
                done.append(sequence)
        return done

    def _read_off(self, step: int) -> list[tuple[int, ...]]:
        """Tokens of each of our own in some steps from one on, none of which is after the next ending."""
        if not self.own:
            return [()]
        steps = min(_READ_STEPS, self.next_ending - step + 1)
        own = self.own.values()
        starts = [(s.pattern, step - s.joined_step) for s in own if s.pattern is not None]
        return list(zip(*[pattern[start : start + steps] for pattern, start in starts], strict=True))
