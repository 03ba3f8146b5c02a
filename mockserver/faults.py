"""Which faults strike a request, and where in its answer. Pure: the seed and the request's number decide.

A run of the same seed whose requests come in the same order is struck in the same places, on the clock and in
virtual time. Windows of time (``from_s``, ``until_s``) ask for the arrival as well.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from mockserver.ask import RefusalKind, RefusedError
from mockserver.wire_config import Fault, FaultKind

GARBAGE = b'data: {"unfinished": \n\n'
"""What the fault of that kind sends."""
_KINDS: dict[int, RefusalKind] = {
    400: "invalid", 404: "not_found", 405: "method", 408: "timeout", 413: "too_large", 429: "rate_limited",
    503: "overloaded", 504: "timeout", 529: "overloaded",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Struck:
    """What befalls one request; of each kind at most one, the first in the profile's order."""

    faults: tuple[Fault, ...] = ()

    def of(self, *kinds: FaultKind) -> Fault | None:
        """The first fault of one of these kinds."""
        if not self.faults:  # nearly always
            return None
        return next((fault for fault in self.faults if fault.kind in kinds), None)

    @property
    def http_error(self) -> Fault | None:
        """Answered with ``status``, before anything is computed."""
        return self.of("http_error")

    @property
    def delay_s(self) -> float:
        """How long the request is held before the engine gets it."""
        fault = self.of("delay")
        return fault.wait_s if fault else 0.0

    @property
    def breaks(self) -> Fault | None:
        """What ends the answer before its time: an error event, a close, or a reset; the first of them."""
        return self.of("stream_error", "cut", "reset")

    @property
    def stall(self) -> Fault | None:
        """What falls due within ``wait_s`` of it is sent in one go at the end of that time."""
        return self.of("stall")

    @property
    def garbage(self) -> Fault | None:
        """One event more, which is no JSON."""
        return self.of("garbage")

    @property
    def drip_s(self) -> float | None:
        """Seconds between any two bytes of the answer; None: it flows."""
        fault = self.of("drip")
        return fault.wait_s if fault else None

    @property
    def no_usage(self) -> bool:
        """Usage is left out."""
        return self.of("no_usage") is not None

    @property
    def no_end(self) -> bool:
        """Finish reason and terminal event are left out."""
        return self.of("no_end") is not None

    @property
    def gzip(self) -> bool:
        """The body is compressed, asked for or not."""
        return self.of("gzip") is not None

    @property
    def kinds(self) -> tuple[FaultKind, ...]:
        """Kinds of all that strike, in the profile's order, each once."""
        return tuple(dict.fromkeys(fault.kind for fault in self.faults))


NOTHING = Struck()


def struck(faults: Iterable[Fault], *, seed: int, number: int, tier: str, arrived_ns: int) -> Struck:
    """Decide for request ``number`` (0, 1, …), which asks for ``tier`` and arrives so long after the start.

    Each fault of the profile has a draw of its own, so that adding one at the end changes none before it.
    """
    found = tuple(
        fault
        for place, fault in enumerate(faults)
        if number % fault.every == 0
        and (not fault.tiers or tier in fault.tiers)
        and fault.from_s <= arrived_ns / 1e9
        and (fault.until_s is None or arrived_ns / 1e9 < fault.until_s)
        and (fault.ratio >= 1.0 or Random(f"{seed}/fault/{place}/{number}").random() < fault.ratio)
    )
    return Struck(found) if found else NOTHING


def strikes_at(fault: Fault, total_tokens: int) -> int:
    """Tokens of an answer of ``total_tokens`` that are sent before the fault strikes; never all of them."""
    return min(fault.after_tokens, total_tokens - 1)


def refusal(fault: Fault) -> RefusedError:
    """The error that a fault shows."""
    kind = _KINDS.get(fault.status, "server" if fault.status >= 500 else "invalid")
    return RefusedError(fault.status, f"A fault of the profile: {fault.kind}", kind=kind)
