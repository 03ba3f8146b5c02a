"""How the processes that send fare, in one figure each: that of the one that fares worst. Pure."""

from collections.abc import Iterable

import msgspec

from loadtest.health import Health


class Fitness(msgspec.Struct, frozen=True):
    """A process's health at one instant; see ``Health`` for what the figures mean."""

    cpu_ratio: float = 0.0
    cpu_max_ratio: float | None = None
    hub_late_s: float = 0.0
    hub_late_p99_s: float | None = None
    hub_late_max_s: float | None = None


def of(health: Health) -> Fitness:
    """Take down how a process fares now."""
    return Fitness(
        health.cpu_ratio,
        health.cpu_max_ratio,
        health.hub_late_s,
        health.hub_late_p99_s,
        health.hub_late_max_s,
    )


def worst(each: Iterable[Fitness]) -> Fitness:
    """Each figure of whichever process has it worst: an overloaded one is not made good by idle ones."""
    all_ = list(each)
    return Fitness(
        max((one.cpu_ratio for one in all_), default=0.0),
        max((one.cpu_max_ratio for one in all_ if one.cpu_max_ratio is not None), default=None),
        max((one.hub_late_s for one in all_), default=0.0),
        max((one.hub_late_p99_s for one in all_ if one.hub_late_p99_s is not None), default=None),
        max((one.hub_late_max_s for one in all_ if one.hub_late_max_s is not None), default=None),
    )
