"""How a run stands, once a second: what the load process tells whoever shows it. Pure.

One JSON line each, so that drawing is another process's work and never holds up the hub that sends.
"""

import msgspec

from loadtest.records import StampSource
from loadtest.unreadable import UNREADABLE

CPU_CAUTION_RATIO = 0.9
USER_STAMPS_CPU_CAUTION_RATIO = 0.7
LAG_CAUTION_S = 0.005
HUB_LATE_CAUTION_S = 0.1
COALESCED_CAUTION_RATIO = 0.05


class Quantiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Three quantiles of the latest values, in the unit of the field that holds them."""

    p50: float
    p95: float
    p99: float


class TierStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tier in the stage under way; None: nothing was measured yet."""

    tier: str
    ended: int
    failed: int
    ttft_s: Quantiles | None = None
    """Of the latest 2,000 good requests."""
    itl_s: Quantiles | None = None
    """Over the tokens of a few latest requests."""
    otps_per_s: Quantiles | None = None
    """Of the latest 2,000 good requests."""


class ClientStatus(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the load generator itself fares."""

    cpu_ratio: float
    """CPU time per wall time, last second."""
    worst_lag_s: float
    """Largest ``sent - scheduled`` of an open-loop request so far."""
    hub_late_s: float
    """How late the event loop woke at the worst of the last second's ten beats."""
    stamp_source: StampSource
    coalesced_ratio: float
    """Share of the stage's events that came in one read with an earlier one."""


class Status(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One second's view of a run."""

    at_s: float
    """Since the run's start."""
    stage: str
    stage_number: int
    """1 for the first."""
    stages: int
    warmup: bool
    ended: int
    requests: int | None
    """How many the stage asks for in all; None if its time ends it."""
    elapsed_s: float
    """Since the stage began."""
    duration_s: float | None
    """How long the stage lasts; None if a count of requests ends it."""
    started_per_s: float
    ended_per_s: float
    """Rates over the last five seconds at most."""
    open_loop: bool
    in_flight: int
    tiers: list[TierStatus]
    errors: dict[str, int]
    """Requests of the stage that did not end well, by outcome."""
    client: ClientStatus
    cautions: list[str]


def cautions(client: ClientStatus) -> list[str]:
    """Say, a sentence each, which figures the client's own state makes doubtful."""
    found = []
    if client.stamp_source == "user" and client.cpu_ratio >= USER_STAMPS_CPU_CAUTION_RATIO:
        found.append(
            f"CPU {client.cpu_ratio:.0%}: without kernel stamps TTFT and ITL are read late; ask for less"
        )
    elif client.cpu_ratio >= CPU_CAUTION_RATIO:
        found.append(f"CPU {client.cpu_ratio:.0%}: requests may leave late; ask for fewer streams")
    if client.worst_lag_s >= LAG_CAUTION_S:
        found.append(
            f"a request left {client.worst_lag_s * 1e3:.1f} ms late: TTFT from scheduled contains it"
        )
    if client.hub_late_s >= HUB_LATE_CAUTION_S:
        found.append(f"the event loop woke {client.hub_late_s * 1e3:.0f} ms late: something holds it up")
    if client.coalesced_ratio >= COALESCED_CAUTION_RATIO:
        found.append(
            f"{client.coalesced_ratio:.0%} of events came in one read with an earlier one: ITL is a bound"
        )
    return found


def encode_line(status: Status) -> bytes:
    """Encode a status as one line of JSON, newline included."""
    return msgspec.json.encode(status) + b"\n"


def decode_line(line: bytes) -> Status | None:
    """Decode what ``encode_line`` made; None if it is no status."""
    try:
        return _DECODER.decode(line)
    except UNREADABLE:
        return None


def shown_duration(value_s: float) -> str:
    """A duration for people, three digits: ``1.23 s``, ``45.6 ms``."""
    if value_s >= 1:
        return f"{value_s:.3g} s"
    return f"{value_s * 1e3:.3g} ms"


def shown_errors(errors: dict[str, int]) -> str:
    """Counts by outcome for people, the commonest first; empty if there are none."""
    ranked = sorted(errors.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in ranked)


_DECODER = msgspec.json.Decoder(Status)
