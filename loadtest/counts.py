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
    given_up: int = 0
    """Requests that nobody waits for any more: the process that sent them is lost."""

    @property
    def in_flight(self) -> int:
        """Requests started that are still waited for."""
        return self.started - self.ended - self.given_up
