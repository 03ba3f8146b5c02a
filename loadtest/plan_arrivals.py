"""How the requests of a stage arrive, as a plan says it. Pure types; ``arrivals`` makes instants of them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from loadtest.quantities import Count, Factor, NonNegativeSeconds, PerSecond, Seconds, Streams


class Closed(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="closed", tag_field="kind"
):
    """Closed loop: ``streams`` users, each sends its next request a think time after the last one ended."""

    streams: Streams
    think_s: NonNegativeSeconds = 0.0
    think: Literal["fixed", "exponential"] = "fixed"
    """Whether each pause is ``think_s`` or exponential with that mean."""


class Poisson(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="poisson", tag_field="kind"
):
    """Open loop: exponential gaps with mean 1 / ``rate_per_s``, whatever the server does."""

    rate_per_s: PerSecond


class Constant(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="constant", tag_field="kind"
):
    """Open loop: one request each 1 / ``rate_per_s`` seconds."""

    rate_per_s: PerSecond


class Gamma(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="gamma", tag_field="kind"
):
    """Open loop: gamma gaps with mean 1 / ``rate_per_s`` and shape ``burstiness``.

    1 is Poisson, below 1 comes in clumps, above 1 evenly; the gaps' coefficient of variation is
    burstiness^(-1/2). The word and its meaning are those of vLLM's benchmark (2026).
    """

    rate_per_s: PerSecond
    burstiness: Annotated[float, Meta(ge=0.01, le=1000)] = 1.0


class Burst(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="burst", tag_field="kind"
):
    """Open loop: ``size`` requests at one instant, again every ``period_s``, the first at the start."""

    size: Count
    period_s: Seconds


class Ramp(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ramp", tag_field="kind"
):
    """Open loop whose rate goes in a straight line from one figure to another over ``over_s``, then stays."""

    from_per_s: Annotated[float, Meta(ge=0, le=1_000_000)]
    to_per_s: PerSecond
    over_s: Seconds
    process: Literal["poisson", "constant"] = "poisson"


class TraceTimes(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="trace", tag_field="kind"
):
    """Open loop at the instants that the workload's trace tells, the first one at the stage's start.

    ``time_scale`` 2 plays it at half the speed. The stage ends with the trace.
    """

    time_scale: Factor = 1.0


Arrivals = Closed | Poisson | Constant | Gamma | Burst | Ramp | TraceTimes
