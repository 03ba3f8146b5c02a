"""Which positions of a stage one process sends. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a stage: its positions p with ``number`` ≤ p mod ``of`` < ``number + width``.

    Where there are conversations, p counts them. All parts together are exactly the stage of a run in one
    process. Open loops are split with a ``width`` of 1.
    """

    number: int = 0
    of: int = 1
    width: int = 1

    def position(self, number: int) -> int:
        """The stage position of this part's own request (or conversation) of that number (0, 1, …)."""
        rounds, place = divmod(number, self.width)
        return rounds * self.of + self.number + place

    def has(self, position: int) -> bool:
        """Whether a stage position belongs to this part."""
        return self.number <= position % self.of < self.number + self.width


def split(weights: Sequence[int]) -> list[Part | None]:
    """Parts in the proportion of whole weights; None for a weight of 0.

    Three streams here and two there send three and two of each five requests, so that all five are under way
    until the end.
    """
    unit = math.gcd(*weights) or 1
    total, number, parts = sum(weights) // unit, 0, list[Part | None]()
    for weight in weights:
        parts.append(Part(number, total, weight // unit) if weight else None)
        number += weight // unit
    return parts
