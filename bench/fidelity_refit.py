"""What one more constant, fitted on some models and tested on others, would make of the law.

The step's time per sequence is what engines take most obviously longer for than the law's default. It is
fitted on every other model (by name) of the newer measurements and judged on the rest, and the other way
round; nothing of it goes into the defaults.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

from bench import fidelity_law
from bench.fidelity_figures import Errors, Judged, errors
from bench.fidelity_points import Point
from mockserver.hardware import Deployment

SEQUENCE_US = (4, 20, 40, 60, 80, 120)
"""Tried, in microseconds; the first is the default of the law."""


@dataclass(frozen=True, slots=True)
class Refit:
    """The best of ``SEQUENCE_US`` on the models it was chosen on, and what it does on the others."""

    sequence_us: int
    chosen_on: tuple[str, ...]
    tested_on: tuple[str, ...]
    default: Errors
    fitted: Errors


def refits(judged: Sequence[Judged]) -> tuple[Refit, Refit]:
    """Choose on one half of the models and test on the other; then the halves change places."""
    points = [one.point for one in judged if one.point.kind == "clients"]
    models = sorted({str(point.deployment.model) for point in points})
    return _refit(points, models[::2], models[1::2]), _refit(points, models[1::2], models[::2])


def _refit(points: Sequence[Point], chosen_on: Sequence[str], tested_on: Sequence[str]) -> Refit:
    train = [point for point in points if point.deployment.model in chosen_on]
    test = [point for point in points if point.deployment.model in tested_on]
    best = min(SEQUENCE_US, key=lambda us: statistics.median(abs(error) for error in _errors(train, us)))
    return Refit(
        best,
        tuple(chosen_on),
        tuple(tested_on),
        default=errors(_errors(test, SEQUENCE_US[0])),
        fitted=errors(_errors(test, best)),
    )


def _errors(points: Iterable[Point], sequence_us: int) -> list[float]:
    slower = ((point, _slower(point.deployment, sequence_us)) for point in points)
    return [
        fidelity_law.seconds_per_token(point, made_by) / point.measured_s - 1 for point, made_by in slower
    ]


@cache
def _slower(deployment: Deployment, sequence_us: int) -> fidelity_law.Server:
    return fidelity_law.server(msgspec.structs.replace(deployment, sequence_overhead_s=sequence_us * 1e-6))
