"""How far the law is from what was measured: errors, and what one measured point per configuration brings."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bench import fidelity_law, fidelity_points
from bench.fidelity_law import Server
from bench.fidelity_points import Point
from mockserver.hardware import Deployment

FEWEST_POINTS = 3
"""A configuration with fewer is not calibrated: one point is spent on it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A measurement and what was said of it; all in seconds per output token."""

    point: Point
    law_s: float
    textbook_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, less 1: negative is too fast."""
        return self.law_s / self.point.measured_s - 1

    @property
    def textbook_error(self) -> float:
        """The same of max(memory, compute) at the peaks."""
        return self.textbook_s / self.point.measured_s - 1


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A point of a configuration whose law was scaled to another one's measurement."""

    judged: Judged
    error: float


@dataclass(frozen=True, slots=True)
class Errors:
    """What a set of errors amounts to."""

    count: int
    median: float
    """Of the absolute values."""
    bias: float
    """Median with sign: negative is too fast."""
    within_30_ratio: float
    p90: float


def judge() -> tuple[list[Judged], Counter[str]]:
    """Every point of the excerpts, and why the other rows of the excerpts are none."""
    left_out: Counter[str] = Counter()
    law, textbook = _Servers(fidelity_law.server), _Servers(fidelity_law.textbook)
    judged = [
        Judged(
            point,
            fidelity_law.seconds_per_token(point, law.of(point.deployment)),
            fidelity_law.seconds_per_token(point, textbook.of(point.deployment)),
        )
        for point in fidelity_points.load(left_out)
    ]
    return judged, left_out


class _Servers:
    """One server for each deployment, made once."""

    def __init__(self, make: Callable[[Deployment], Server]) -> None:
        self._make, self._made = make, dict[Deployment, Server]()

    def of(self, deployment: Deployment) -> Server:
        """The deployment's."""
        if deployment not in self._made:
            self._made[deployment] = self._make(deployment)
        return self._made[deployment]


def errors(values: Iterable[float]) -> Errors:
    """Sum up; at least one value."""
    signed = sorted(values)
    absolute = sorted(abs(value) for value in signed)
    return Errors(
        count=len(signed),
        median=statistics.median(absolute),
        bias=statistics.median(signed),
        within_30_ratio=sum(value <= 0.30 for value in absolute) / len(absolute),
        p90=absolute[int(0.9 * (len(absolute) - 1))],
    )


def by(key: Callable[[Judged], str], judged: Iterable[Judged]) -> dict[str, list[Judged]]:
    """Groups, in the order of their names."""
    groups: dict[str, list[Judged]] = defaultdict(list)
    for one in judged:
        groups[key(one)].append(one)
    return dict(sorted(groups.items()))


def calibrate(judged: Iterable[Judged]) -> list[Calibrated]:
    """Scale the law of each configuration to one of its points and judge it on all the others.

    Which point that is follows from batches and lengths alone, never from what was measured: the one nearest
    to the middle of the configuration's batches and of its lengths.
    """
    configurations: dict[tuple[str, ...], list[Judged]] = defaultdict(list)
    for one in judged:
        configurations[one.point.configuration].append(one)
    tested = []
    for members in configurations.values():
        if len(members) < FEWEST_POINTS:
            continue
        chosen = middle(members)
        scale = chosen.point.measured_s / chosen.law_s
        tested += [
            Calibrated(one, scale * one.law_s / one.point.measured_s - 1)
            for one in members
            if one is not chosen
        ]
    return tested


def middle(members: Sequence[Judged]) -> Judged:
    """The point nearest to the middle of all batches and all lengths there are; the smaller one of two."""
    batches = sorted({one.point.sequences for one in members})
    lengths = sorted({_lengths(one) for one in members})

    def distance(one: Judged) -> tuple[float, ...]:
        off_batch = abs(batches.index(one.point.sequences) - len(batches) // 2)
        off_length = abs(lengths.index(_lengths(one)) - len(lengths) // 2)
        return off_batch + off_length, one.point.sequences, *_lengths(one)

    return min(members, key=distance)


def _lengths(one: Judged) -> tuple[float, float]:
    return one.point.prompt_tokens, one.point.output_tokens
