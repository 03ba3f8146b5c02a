"""How far a stage has come: which request is next, and whether it is over. Pure: the present is handed in.

Everything is a conversation here: a request that stands alone is one of one turn. Position p of a stage is
turn p mod T of conversation p div T, where conversations have T turns.
"""

from loadtest.part import Part
from loadtest.plan import Closed, Stage


class StageProgress:
    """One stage under way, or one process's part of it. Instants are ns since the run's start.

    A conversation is begun and finished; each of its requests is due, taken, and ended. The stage is over
    once nothing can leave any more and every request taken has ended.
    """

    def __init__(
        self,
        stage: Stage,
        number: int,
        *,
        started_ns: int,
        first_index: int,
        turns: int = 1,
        part: Part = Part(),  # noqa: B008 - frozen
    ) -> None:
        self.stage = stage
        self.number = number
        self.first_index = first_index
        self.turns = turns
        self.part = part
        self.taken = 0
        self.ended = 0
        self.highest = -1
        """The highest position that was taken; −1 before the first."""
        self.paced = False
        """Whether somebody keeps the instants of an open loop; he says so when the last one has left."""
        self.started_ns = started_ns
        self._begun = self._under_way = 0
        self._all_begun = self._closed = False

    @property
    def in_flight(self) -> int:
        """Requests taken that have not ended."""
        return self.taken - self.ended

    @property
    def next_index(self) -> int:
        """The index at which the next stage may begin: after this one's last conversation."""
        conversations = -(-(self.highest + 1) // self.turns)
        return self.first_index + conversations * self.turns

    @property
    def until_ns(self) -> int | None:
        """When the stage's time is up."""
        seconds = self.stage.duration_s
        return None if seconds is None else self.started_ns + int(seconds * 1e9)

    def coming(self, ahead: int = 0) -> int | None:
        """The conversation that is begun after ``ahead`` others; None if its first request is too many."""
        conversation = self.part.position(self._begun + ahead)
        return None if self._closed or self._is_too_many(conversation * self.turns) else conversation

    def begin(self, at_ns: int) -> int | None:
        """Begin the next conversation of this part, if its first request is due at ``at_ns``."""
        conversation = self.coming()
        if conversation is None or self._is_late(at_ns):
            return None
        self._begun += 1
        self._under_way += 1
        return conversation

    def finish(self) -> None:
        """A conversation that was begun has ended."""
        self._under_way -= 1

    def is_due(self, position: int, at_ns: int) -> bool:
        """Whether the request at a position may leave at ``at_ns``."""
        return not (self._closed or self._is_too_many(position) or self._is_late(at_ns))

    def take(self, position: int) -> None:
        """The request at a position leaves; its index in the run is ``first_index + position``."""
        self.taken += 1
        self.highest = max(self.highest, position)

    def end(self) -> None:
        """A request taken has ended."""
        self.ended += 1

    def all_begun(self) -> None:
        """No further conversation will begin; those under way go on."""
        self._all_begun = True

    def close(self) -> None:
        """Let nothing more leave."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def is_over(self, now_ns: int) -> bool:
        """Whether all that was to leave has left and has ended.

        A paced stage is not over before its keeper says so: a request may be due, and he late.
        """
        if self.in_flight or self._closed:
            return not self.in_flight
        late = self._is_late(now_ns)
        if self._all_begun or (not self.paced and (late or self.coming() is None)):
            return late or not self._under_way
        return False

    def _is_too_many(self, position: int) -> bool:
        return self.stage.requests is not None and position >= self.stage.requests

    def _is_late(self, at_ns: int) -> bool:
        until_ns = self.until_ns
        return until_ns is not None and at_ns >= until_ns


def users_of(stage: Stage) -> int:
    """How many users a stage needs: one a stream, or the one that keeps the instants of an open loop."""
    return stage.arrivals.streams if isinstance(stage.arrivals, Closed) else 1
