"""How far a client's instants are from the server's: the error of a stamp, a TTFT and a gap."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bench.truth import Answer
from loadtest.records import RequestRecord

_LATE_NS = 1_000_000


class Spread(NamedTuple):
    """Median and 99th percentile of absolute errors, and the mean with its sign, in seconds."""

    p50_s: float
    p99_s: float
    mean_s: float


class StampErrors(NamedTuple):
    """Client minus truth. A stamp can only be late; a TTFT also has the error of the sending instant."""

    first_stamp: Spread
    ttft: Spread
    gap: Spread
    late_ratio: float
    """Share of all events stamped more than 1 ms after they were sent."""


def spread(errors_ns: ArrayLike) -> Spread:
    """Sum up errors in ns; zeros if there are none."""
    errors_s = np.asarray(errors_ns, dtype=np.float64) / 1e9
    if errors_s.size == 0:
        return Spread(0.0, 0.0, 0.0)
    p50_s, p99_s = np.quantile(np.abs(errors_s), (0.5, 0.99))
    return Spread(float(p50_s), float(p99_s), float(errors_s.mean()))


def compare(
    records: Iterable[RequestRecord], answers: Iterable[Answer], *, run_id: str, zero_ns: int
) -> StampErrors:
    """Set stamps against the server's instants, request by request.

    Raises SystemExit if a request failed or brought another number of events than were sent: then nothing
    that was measured can be trusted.
    """
    by_id = {answer.id: answer for answer in answers}
    first: list[int] = []
    ttft: list[int] = []
    gaps = [np.empty(0, dtype=np.int64)]
    late = events = 0
    for record in records:
        answer = by_id[f"{run_id}-{record.index}"]
        if record.outcome != "ok" or len(record.event_ns) != len(answer.sent_ns) or record.sent_ns is None:
            raise SystemExit(
                f"request {record.index}: {record.outcome} {record.detail}: "
                f"{len(record.event_ns)} events came, {len(answer.sent_ns)} were sent"
            )
        stamped = np.asarray(record.event_ns) + zero_ns - answer.sent_ns
        events += stamped.size
        late += int((stamped > _LATE_NS).sum())
        first.append(int(stamped[0]))
        ttft.append(record.event_ns[0] - record.sent_ns - answer.ttft_ns)
        gaps.append(np.diff(record.event_ns) - np.diff(answer.sent_ns))
    return StampErrors(spread(first), spread(ttft), spread(np.concatenate(gaps)), late / max(1, events))
