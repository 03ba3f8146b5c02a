"""Reasons to believe the numbers, or not to: the client's health, failures, tiers other than those asked."""

import numpy as np

from analysis import numbers, trust_server
from analysis.model import Level, TrustItem
from analysis.phrases import percent
from analysis.table import Requests
from analysis.trust_server import item
from loadtest.plan import Closed
from loadtest.records import ClientHealth, RunInfo

COALESCED_CAUTION, COALESCED_BAD = 0.05, 0.30
CPU_CAUTION, CPU_BAD = 0.7, 0.9
LAG_CAUTION_S, LAG_BAD_S = 0.005, 0.050
FAILED_CAUTION, FAILED_BAD = 0.01, 0.10


def judge(infos: tuple[RunInfo, ...], requests: Requests, tiers: list[str]) -> list[TrustItem]:
    """All there is to say, the same topics in the same order in every report.

    ``requests`` are the measured ones of all tiers, failed ones included.
    """
    good = requests.where(requests.text_is("outcome", "ok"))
    return [
        _stamps(infos, requests),
        _coalescing(requests),
        *_client(infos),
        _failures(requests),
        _completeness(infos),
        *trust_server.judge(infos[0].plan, good, tiers),
    ]


def _graded(value: float, caution: float, bad: float) -> Level:
    return "bad" if value >= bad else "caution" if value >= caution else "good"


def _stamps(infos: tuple[RunInfo, ...], requests: Requests) -> TrustItem:
    sources = set(requests.text("stamp_source").tolist())
    if sources <= {"virtual"}:
        return item("stamps", "good", "Simulated: instants are exact, in virtual time.")
    if "user" not in sources:
        return item("stamps", "good", "Arrivals were stamped by the kernel, whatever the client was doing.")
    notes = {info.client.stamp_note for info in infos if info.client and info.client.stamp_note}
    why = f" ({'; '.join(sorted(notes))})" if notes else ""
    return item(
        "stamps",
        "caution",
        f"Arrivals were stamped by the client itself{why}; a busy client stamps late, by milliseconds.",
    )


def _coalescing(requests: Requests) -> TrustItem:
    events = float(np.diff(requests.offsets).sum())
    share = float(requests.column("coalesced_events").sum()) / events if events else 0.0
    level = _graded(share, COALESCED_CAUTION, COALESCED_BAD)
    if level == "good":
        sentence = f"{percent(round(share, 4))} of events came in one read with an earlier one."
    else:
        sentence = (
            f"{percent(round(share, 4))} of events came in one read with an earlier one, so their stamps are "
            "upper bounds: a proxy, or a server that sends several tokens at once."
        )
    return item("coalescing", level, sentence)


def _client(infos: tuple[RunInfo, ...]) -> list[TrustItem]:
    healths = [info.client for info in infos if info.client is not None]
    if all(info.simulated for info in infos):
        return []
    if not healths:
        return [item("client", "caution", "The client's own load and lag were not recorded.")]
    paced = any(not isinstance(stage.arrivals, Closed) for info in infos for stage in info.plan.stages)
    # A closed loop has no schedule that it could be late for.
    return [_cpu(healths), *([_lag(healths)] if paced else [])]


def _cpu(healths: list[ClientHealth]) -> TrustItem:
    ratio = max(health.cpu_s / health.wall_s if health.wall_s > 0 else 0.0 for health in healths)
    level = _graded(ratio, CPU_CAUTION, CPU_BAD)
    sentence = f"The client used {percent(round(ratio, 3))} of one core."
    if level != "good":
        sentence += " It may be the bottleneck: ask for fewer streams, or for less from each."
    return item("client CPU", level, sentence)


def _lag(healths: list[ClientHealth]) -> TrustItem:
    lag_s = max(health.worst_lag_s for health in healths)
    level = _graded(lag_s, LAG_CAUTION_S, LAG_BAD_S)
    sentence = f"Requests left at most {numbers.duration(lag_s)} late."
    if level != "good":
        sentence += " TTFT from scheduled contains it, TTFT from sent does not."
    return item("client lag", level, sentence)


def _failures(requests: Requests) -> TrustItem:
    total = len(requests)
    failed = int(np.sum(~requests.text_is("outcome", "ok")))
    if total == 0:
        return item("failures", "bad", "No request was measured.")
    if failed == 0:
        return item("failures", "good", f"All {numbers.counted(total, 'measured request')} succeeded.")
    share = failed / total
    return item(
        "failures",
        _graded(share, FAILED_CAUTION, FAILED_BAD),
        f"{failed} of {numbers.counted(total, 'measured request')} failed ({percent(round(share, 4))}); "
        "latencies are of those that succeeded, and slow ones may be among the failed.",
    )


def _completeness(infos: tuple[RunInfo, ...]) -> TrustItem:
    cut = [info for info in infos if info.status != "complete"]
    if not cut:
        return item("completeness", "good", "The run went through its whole plan.")
    why = "; ".join(sorted({info.status_detail for info in cut if info.status_detail}))
    return item(
        "completeness",
        "caution",
        f"{len(cut)} of {numbers.counted(len(infos), 'run')} did not end in order"
        f"{f' ({why})' if why else ''}; what was recorded before is in the report.",
    )
