"""When each token of our own sequences came, kept at the cost of one number a step. Pure.

Steps are kept, not tokens: what a sequence got while it decoded is read off the ends of those steps when it
leaves. Ends that no running sequence needs any more are forgotten.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

from mockserver.decoding import DecodeBatch
from mockserver.sequence import Sequence

_TRIM_STEPS = 4096


class TokenInstants:
    """The ends of one batch's decode steps. Not ``kept``: only first and last tokens have an instant."""

    def __init__(self, batch: DecodeBatch, *, kept: bool) -> None:
        self.kept = kept
        self._batch = batch
        self._ends_ns = array("q")  # of decode steps, from number _from on
        self._from, self._trim_at = 0, _TRIM_STEPS

    def __len__(self) -> int:
        return len(self._ends_ns)

    def decode_ended(self, ended_ns: int) -> None:
        """A decode step has ended, the one that the batch will count next."""
        if self.kept:
            self._ends_ns.append(ended_ns)

    def prefill_brought(self, sequence: Sequence, ended_ns: int) -> None:
        """The end of a sequence's prefill brought it a token."""
        if self.kept:
            sequence.stints.append(np.array([ended_ns], dtype=np.int64))

    def left(self, sequence: Sequence) -> None:
        """Keep the instants of what a sequence got since it joined the batch, which it has left."""
        if sequence.hidden or not self.kept or sequence.joined_step < 0:
            return
        first = sequence.joined_step - self._from
        instants = np.frombuffer(self._ends_ns[first : self._batch.step - self._from], dtype=np.int64)
        if sequence.pattern is not None:
            counts = np.frombuffer(sequence.pattern, dtype=np.uint8)
            instants = np.repeat(instants, counts[: len(instants)])
        sequence.stints.append(instants)

    def of(self, sequence: Sequence, ended_ns: int) -> NDArray[np.int64]:
        """Instants of all tokens of a sequence that has ended, or of the first and the last one."""
        if len(sequence.stints) > 1:
            return np.concatenate(sequence.stints)
        if sequence.stints:
            return sequence.stints[0]
        ends_ns = [sequence.first_token_ns or 0, ended_ns]
        return np.array(ends_ns[: sequence.output_tokens], dtype=np.int64)

    def trim(self) -> None:
        """Forget, now and then, what is not needed any more."""
        if len(self._ends_ns) < self._trim_at:
            return
        oldest = next((sequence.joined_step for sequence in self._batch.own.values()), self._batch.step)
        del self._ends_ns[: oldest - self._from]
        self._from, self._trim_at = oldest, len(self._ends_ns) + _TRIM_STEPS
