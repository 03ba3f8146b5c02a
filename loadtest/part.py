"""Which share of a run one process sends. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """Part ``number`` of ``of``: those positions p of a stage with p mod ``of`` = ``number``.

    Where there are conversations, p counts them. All parts together are exactly the stage of a run in one
    process.
    """

    number: int = 0
    of: int = 1

    def position(self, turn: int) -> int:
        """The stage position of this part's ``turn``-th own request (0, 1, …)."""
        return self.number + turn * self.of
