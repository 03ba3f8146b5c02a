"""How far a stage has come: which request is next, and whether it is over. Pure: the present is handed in."""

from loadtest.plan import Closed, Stage


class StageProgress:
    """One stage under way. Instants are ns since the run's start.

    A request is due, taken, and ended. Nothing is due any more once the stage has taken its requests or its
    time is up; it is over once, besides, every request taken has ended.
    """

    def __init__(self, stage: Stage, number: int, *, started_ns: int, first_index: int) -> None:
        self.stage = stage
        self.number = number
        self.started_ns = started_ns
        self.taken = 0
        self.ended = 0
        self.failed = 0
        self.first_index = first_index
        self.paced = False
        """Whether somebody keeps the instants of an open loop; he closes the stage after the last one."""
        self._until_ns = None if stage.duration_s is None else started_ns + int(stage.duration_s * 1e9)
        self._closed = False

    @property
    def in_flight(self) -> int:
        """Requests taken that have not ended."""
        return self.taken - self.ended

    def is_due(self, at_ns: int) -> bool:
        """Whether a further request may leave at ``at_ns``."""
        sent_all = self.stage.requests is not None and self.taken >= self.stage.requests
        late = self._until_ns is not None and at_ns >= self._until_ns
        return not (self._closed or sent_all or late)

    def take(self) -> None:
        """The next request leaves: position ``taken`` of the stage, ``first_index + taken`` of the run."""
        self.taken += 1

    def end(self, *, ok: bool) -> None:
        """A request taken has ended."""
        self.ended += 1
        self.failed += not ok

    def close(self) -> None:
        """Let nothing more leave."""
        self._closed = True

    def is_over(self, now_ns: int) -> bool:
        """Whether all that was to leave has left and has ended.

        A paced stage is not over before it was closed: a request may be due, and its keeper late.
        """
        return self.in_flight == 0 and not self.is_due(now_ns) and (self._closed or not self.paced)


def users_of(stage: Stage) -> int:
    """How many users a stage needs: one a stream, or the one that keeps the instants of an open loop."""
    return stage.arrivals.streams if isinstance(stage.arrivals, Closed) else 1
