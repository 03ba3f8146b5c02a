"""Reasons to believe the numbers, or not to, that lie with the client; each says which numbers it concerns.

Kernel stamps are made when a segment arrives, whatever the client is doing: TTFT from sent and the gaps
survive a client that is out of breath. What never does is the instant at which it sends.
"""

import numpy as np

from analysis import numbers, trust_sending
from analysis.model import TrustItem
from analysis.phrases import percent
from analysis.table import Requests
from analysis.trust_item import graded, item
from loadtest.records import ClientHealth, RunInfo

COALESCED_CAUTION, COALESCED_BAD = 0.05, 0.30
CPU_CAUTION, CPU_BAD = 0.7, 0.9
HUB_CAUTION_S, HUB_BAD_S = 0.020, 0.200
"""Of the 99 % quantile, or the largest where nothing else is known; once so late as the second: a caution."""
STEP_CAUTION_S = 0.001


def judge(infos: tuple[RunInfo, ...], requests: Requests, tiers: list[str]) -> list[TrustItem]:
    """What there is to say of the client; ``requests`` are the measured ones, failed ones included."""
    return [_stamps(infos, requests), _coalescing(requests, tiers), *_client(infos, requests)]


def _stamps(infos: tuple[RunInfo, ...], requests: Requests) -> TrustItem:
    source = requests.text("stamp_source")
    if set(source.tolist()) <= {"virtual"}:
        return item("stamps", "good", "Simulated: instants are exact, in virtual time.")
    share = float(np.mean(source == "user"))
    if not share:
        return item("stamps", "good", "Arrivals were stamped by the kernel, whatever the client was doing.")
    notes = {info.client.stamp_note for info in infos if info.client and info.client.stamp_note}
    why = f" ({'; '.join(sorted(notes))})" if notes else ""
    what = "Arrivals" if share == 1 else f"Arrivals of {percent(round(share, 3))} of the requests"
    said = f"{what} were stamped by the client itself{why}"
    busy = max((_cpu_ratio(info) for info in infos), default=0.0)
    if busy >= CPU_CAUTION:
        return item(
            "stamps",
            "bad",
            f"{said}, which used {percent(round(busy, 3))} of a core: TTFT, ITL and step time are late by "
            "milliseconds and cannot be trusted.",
        )
    return item("stamps", "caution", f"{said}; a busy client stamps TTFT and ITL late, by milliseconds.")


def _coalescing(requests: Requests, tiers: list[str]) -> TrustItem:
    """The share of events that came in one read with an earlier one, by tier."""
    events = np.diff(requests.offsets).astype(np.float64)
    together = requests.column("coalesced_events")
    shares: dict[str, float] = {}
    for tier in tiers:
        mine = requests.text_is("requested_tier", tier)
        total = float(events[mine].sum())
        shares[tier] = float(together[mine].sum()) / total if total else 0.0
    worst = max(shares.values(), default=0.0)
    told = " and ".join(f"{percent(round(share, 4))} of {tier}'s events" for tier, share in shares.items())
    level = graded(worst, COALESCED_CAUTION, COALESCED_BAD)
    sentence = f"{told} came in one read with an earlier one"
    if level != "good":
        sentence += (
            ", so that their stamps are upper bounds: a proxy, or a server that packs several tokens. "
            "ITL and step time are coarse; TTFT and TPOT of whole answers are not concerned"
        )
    return item("coalescing", level, f"{sentence}.")


def _client(infos: tuple[RunInfo, ...], requests: Requests) -> list[TrustItem]:
    if all(info.simulated for info in infos):
        return []
    healths = [info.client for info in infos if info.client is not None]
    if not healths:
        return [item("client", "caution", "The client's own load and lag were not recorded.")]
    concerned = trust_sending.concerned(infos)
    kernel = not requests.text_is("stamp_source", "user").any()
    return [
        _cpu(infos, concerned, kernel=kernel),
        *_hub(healths, concerned, kernel=kernel),
        *trust_sending.judge(infos, requests),
        *_clock(healths),
    ]


def _cpu_ratio(info: RunInfo) -> float:
    """Largest share of one core that a load process is known to have used: in a second, or in the mean."""
    health = info.client
    if health is None or health.wall_s <= 0:
        return 0.0
    most = [health.cpu_max_ratio, *(worker.cpu_max_ratio for worker in info.workers)]
    return max(_mean_cpu_ratio(info), *(ratio or 0.0 for ratio in most))


def _mean_cpu_ratio(info: RunInfo) -> float:
    """Share of one core that the busiest load process used in the mean."""
    health = info.client
    if health is None or health.wall_s <= 0:
        return 0.0
    each_s = [worker.cpu_s for worker in info.workers] or [health.cpu_s]
    return max(each_s) / health.wall_s


def _cpu(infos: tuple[RunInfo, ...], concerned: str, *, kernel: bool) -> TrustItem:
    mean, most = max(map(_mean_cpu_ratio, infos)), max(map(_cpu_ratio, infos))
    level = graded(mean, CPU_CAUTION, CPU_BAD)
    if level == "good" and most >= CPU_BAD:
        level = "caution"
    who = "The busiest worker" if any(info.workers for info in infos) else "The client"
    sentence = f"{who} used {percent(round(mean, 3))} of one core"
    if most > mean:
        sentence += f", {percent(round(most, 3))} in its busiest second"
    if level == "good":
        return item("client CPU", level, f"{sentence}.")
    trusted = (
        "TTFT from sent and ITL can, because the kernel stamped them"
        if kernel
        else "neither can TTFT and ITL, because it stamped them itself"
    )
    if mean < CPU_CAUTION:
        said = (
            f"{sentence}, and was short of it then: {concerned} of that second cannot be trusted; {trusted}."
        )
        return item("client CPU", level, said)
    return item(
        "client CPU",
        level,
        f"{sentence} and may be the bottleneck: {concerned} cannot be trusted; {trusted}. Ask for fewer "
        "streams, or use more workers.",
    )


def _hub(healths: list[ClientHealth], concerned: str, *, kernel: bool) -> list[TrustItem]:
    """How late the client's event loop came to what was due; nothing where it was not recorded."""
    known = [health.hub_late_max_s for health in healths if health.hub_late_max_s is not None]
    if not known:
        return []
    late_s = max(known)
    usual = [health.hub_late_p99_s for health in healths if health.hub_late_p99_s is not None]
    level = graded(max(usual, default=late_s), HUB_CAUTION_S, HUB_BAD_S)
    if level == "good" and late_s >= HUB_BAD_S:
        level = "caution"
    sentence = f"The client's event loop was at most {numbers.duration(late_s)} late"
    if usual:
        sentence += f", 99 % of the time less than {numbers.duration(max(usual))}"
    if level != "good":
        also = "" if kernel else ", TTFT and ITL"
        sentence += f": {concerned}{also} may be wrong by as much, now and then"
    return [item("client event loop", level, f"{sentence}.")]


def _clock(healths: list[ClientHealth]) -> list[TrustItem]:
    stepped_s = max((abs(health.clock_stepped_s) for health in healths), default=0.0)
    if stepped_s < STEP_CAUTION_S:
        return []
    return [
        item(
            "clock",
            "caution",
            f"The wall clock was set by {numbers.duration(stepped_s)} while the run lasted: kernel stamps of "
            "about a second around it may be wrong by as much, and TTFT and ITL with them.",
        )
    ]
