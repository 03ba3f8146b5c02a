"""Reasons to believe, or not to, that requests left when they should have, from wherever they were sent."""

import numpy as np

from analysis import numbers
from analysis.model import TrustItem
from analysis.ragged import Bools
from analysis.table import Requests
from analysis.trust_item import graded, item
from loadtest.plan import Closed
from loadtest.records import RunInfo

LAG_CAUTION_S, LAG_BAD_S = 0.005, 0.050
"""Of the 99 % quantile; one request that is as late as the second is a caution."""
CLOCK_CAUTION_S = 0.005
"""By which clocks of machines that load together may differ unknown."""


def judge(infos: tuple[RunInfo, ...], requests: Requests) -> list[TrustItem]:
    """What there is to say of schedules, workers and their clocks; ``requests`` are the measured ones."""
    return [*_lag(infos, requests), *_lost_workers(infos), *_worker_clocks(infos)]


def concerned(infos: tuple[RunInfo, ...]) -> str:
    """The numbers that are wrong if requests leave late, as the plans' loops have them."""
    kinds = {isinstance(stage.arrivals, Closed) for info in infos for stage in info.plan.stages}
    open_loop, closed = "the offered rate and TTFT from scheduled", "the pauses between a stream's requests"
    return " and ".join(([open_loop] if False in kinds else []) + ([closed] if True in kinds else []))


def _lag(infos: tuple[RunInfo, ...], requests: Requests) -> list[TrustItem]:
    """How late requests of open loops left. A closed loop has no schedule that it could be late for."""
    lags = requests.column("lag_s")[_paced(infos, requests) & np.isfinite(requests.column("lag_s"))]
    if not any(not isinstance(stage.arrivals, Closed) for info in infos for stage in info.plan.stages):
        return []
    worst_s = max([*lags, *(info.client.worst_lag_s for info in infos if info.client is not None)])
    p99_s = float(np.quantile(lags, 0.99)) if lags.size else worst_s
    level = graded(p99_s, LAG_CAUTION_S, LAG_BAD_S)
    if level == "good" and worst_s >= LAG_BAD_S:
        level = "caution"
    sentence = (
        f"Requests left at most {numbers.duration(worst_s)} late, 99 % of them by less than "
        f"{numbers.duration(p99_s)}"
    )
    if level != "good":
        sentence += (
            ": the offered rate is not the plan's, and TTFT from scheduled contains the delay; "
            "TTFT from sent does not"
        )
    return [item("client lag", level, f"{sentence}.")]


def _paced(infos: tuple[RunInfo, ...], requests: Requests) -> Bools:
    """Which requests belong to open loops."""
    run, stage = requests.column("run"), requests.text("stage")
    paced = np.zeros(len(requests), dtype=np.bool_)
    for number, info in enumerate(infos):
        names = [one.name for one in info.plan.stages if not isinstance(one.arrivals, Closed)]
        paced |= (run == number) & np.isin(stage.astype(str), names)
    return paced


def _lost_workers(infos: tuple[RunInfo, ...]) -> list[TrustItem]:
    lost = [f"{worker.name} ({worker.lost})" for info in infos for worker in info.workers if worker.lost]
    if not lost:
        return []
    return [
        item(
            "workers",
            "caution",
            f"{numbers.counted(len(lost), 'worker')} did not last: {', '.join(lost)}. What it should have "
            "sent is missing, so the offered rate and the number of streams were less than the plan's; "
            "latencies are of what was sent.",
        )
    ]


def _worker_clocks(infos: tuple[RunInfo, ...]) -> list[TrustItem]:
    """How well instants of several machines lie on one axis; no duration within a request depends on it."""
    error_s = max((worker.clock_error_ns / 1e9 for info in infos for worker in info.workers), default=0.0)
    if error_s < CLOCK_CAUTION_S:
        return []
    return [
        item(
            "workers' clocks",
            "caution",
            f"The clocks of machines that loaded together are known to ±{numbers.duration(error_s)} only: "
            "the number in flight, and the order of requests of different machines, are as uncertain; "
            "TTFT and ITL are not concerned.",
        )
    ]
