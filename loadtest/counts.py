"""How many requests of a stage were started, have ended, have failed. Pure."""

from dataclasses import dataclass

from loadtest.plan import Stage


@dataclass(slots=True)
class StageCounts:
    """The requests of one stage, over all processes that send."""

    stage: Stage
    began_ns: int | None = None
    """When the stage was opened; None before."""
    started: int = 0
    ended: int = 0
    failed: int = 0

    @property
    def in_flight(self) -> int:
        """Requests started that have not ended."""
        return self.started - self.ended
