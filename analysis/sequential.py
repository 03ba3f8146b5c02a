"""Looking at a run while it lasts, and stopping it, without claiming more than was agreed. Pure.

Whoever looks again and again at a 5 % test, and stops at the first success, errs far more often than that.
So the looks of a run are planned, at fixed shares of its requests, and the error is spent over them: little
at the first, most of it at the last (Lan and DeMets, Biometrika 70, 1983, with their function in the manner
of O'Brien and Fleming). Between two looks the sum of the observations moves like a Brownian motion in the
share seen, which holds for estimates whose error shrinks as 1/√n. The bounds follow by integrating its
density from look to look (Armitage, McPherson and Rowe, J. R. Stat. Soc. A 132, 1969).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy import optimize, special

from analysis.intervals import Floats
from loadtest.plan import Plan
from loadtest.records import RunInfo

ERROR = 0.05
"""Of each claim, over all looks together."""
LOOKS, FIRST_LOOK = 8, 0.25
_NODES = 128  # the bounds are exact to 1e-8 with them
_FARTHEST = 8.5  # standard deviations; the probability beyond is below 1e-16


@dataclass(frozen=True, slots=True)
class Looks:
    """When a run is looked at, in shares of its planned requests, and at what significance each time."""

    shares: tuple[float, ...]
    significances: tuple[float, ...]

    def had(self, share: float) -> int:
        """How many looks are due once this share of the requests has been measured."""
        return sum(look <= share + 1e-9 for look in self.shares)

    def significance(self, share: float) -> float:
        """That of the last look that was due; before the first one, that of the first."""
        return self.significances[max(self.had(share), 1) - 1]


@cache
def planned_looks(looks: int = LOOKS, first: float = FIRST_LOOK, error: float = ERROR) -> Looks:
    """Equally spaced looks from ``first`` to the end of a run.

    One significance serves tests of one side (equivalence) and of two (a difference): the smaller of the two
    that keep ``error``.
    """
    shares = tuple(np.linspace(first, 1.0, looks).tolist())
    one = special.ndtr(-bounds(shares, error=error, sides=1))
    two = 2 * special.ndtr(-bounds(shares, error=error, sides=2))
    return Looks(shares, tuple(np.minimum(one, two).tolist()))


def spent(share: float, *, error: float, sides: Literal[1, 2]) -> float:
    """Error that may have been spent once ``share`` of all was seen: 2 − 2·Φ(z/√share), z = Φ⁻¹(1 − error/2).

    A test of two sides spends half of its error on each.
    """
    each = error / sides
    return float(sides * 2 * special.ndtr(special.ndtri(each / 2) / math.sqrt(share)))


def bounds(shares: Sequence[float], *, error: float, sides: Literal[1, 2]) -> Floats:
    """Standard scores to be passed at each look; without an effect the chance to pass any is ``error``.

    ``shares`` rise to 1; if they end before it, less than ``error`` is spent.
    """
    found: list[float] = []
    walk = _Walk(sides)
    for before, share in pairwise((0.0, *shares)):
        budget = spent(share, error=error, sides=sides)
        budget -= spent(before, error=error, sides=sides) if before else 0.0
        found.append(walk.bound(share, budget))
    return np.array(found)


class _Walk:
    """A Brownian motion that is stopped where it passes a bound: its density on those that go on."""

    def __init__(self, sides: Literal[1, 2]) -> None:
        self._sides = sides
        self._at = 0.0
        self._points, self._mass = np.zeros(1), np.ones(1)

    def bound(self, share: float, budget: float) -> float:
        """The score at ``share`` that a part of ``budget`` passes; those that do not go on."""
        spread, root = math.sqrt(share - self._at), math.sqrt(share)

        def too_many(score: float) -> float:
            over = special.ndtr((self._points - score * root) / spread)
            under = special.ndtr((-self._points - score * root) / spread) if self._sides == 2 else 0.0
            return math.log(max(float(self._mass @ (over + under)), 1e-300)) - math.log(budget)

        score = float(optimize.brentq(too_many, 0.0, _FARTHEST, xtol=1e-10))
        self._go_on(score * root, spread, root)
        self._at = share
        return score

    def _go_on(self, bound: float, spread: float, root: float) -> None:
        """Density at the new share between the bounds, on Gauss–Legendre points."""
        low = -bound if self._sides == 2 else -_FARTHEST * root
        nodes, weights = _nodes()
        points = low + (bound - low) * (nodes + 1) / 2
        steps = (points[:, None] - self._points[None, :]) / spread
        density = np.exp(-(steps**2) / 2) @ self._mass / (spread * math.sqrt(2 * math.pi))
        self._points, self._mass = points, density * weights * (bound - low) / 2


@cache
def _nodes() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return np.asarray(nodes), np.asarray(weights)


def planned_requests(plan: Plan) -> int | None:
    """Requests of a plan that will be measured; None if a stage of it ends by time, or with a trace."""
    counts = [stage.requests for stage in plan.stages if not stage.warmup]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def looks_of(info: RunInfo) -> Looks | None:
    """The looks at a run that was to stop at its verdict; None for any other run, and a simulated one."""
    if info.simulated or info.plan.control.until != "verdict" or planned_requests(info.plan) is None:
        return None
    return planned_looks()


def share_seen(info: RunInfo, measured: int) -> float:
    """Share of a run's planned requests that ``measured`` of them are."""
    planned = planned_requests(info.plan)
    return measured / planned if planned else 1.0


def significance(infos: Sequence[RunInfo], measured: Sequence[int]) -> float:
    """At what significance a verdict on runs is to be given, ``measured`` requests having been seen of each.

    That of the latest look, where runs were looked at while they lasted; the smallest of several.
    """
    found = [
        looks.significance(share_seen(info, count))
        for info, count in zip(infos, measured, strict=True)
        if (looks := looks_of(info)) is not None
    ]
    return min(found, default=ERROR)
