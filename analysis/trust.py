"""Reasons to believe the numbers, or not to: the client's health, failures, tiers other than those asked."""

import numpy as np

from analysis import numbers, steps, window
from analysis.model import Level, TrustItem
from analysis.phrases import percent
from analysis.table import Requests
from loadtest.plan import Closed, Plan
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
        _steadiness(good, tiers),
        *_echoes(infos[0].plan, good),
        *_caches(good),
        *_prefill_load(good, tiers),
        *_token_counts(good),
    ]


def _item(topic: str, level: Level, sentence: str) -> TrustItem:
    return TrustItem(topic=topic, level=level, sentence=sentence)


def _graded(value: float, caution: float, bad: float) -> Level:
    return "bad" if value >= bad else "caution" if value >= caution else "good"


def _stamps(infos: tuple[RunInfo, ...], requests: Requests) -> TrustItem:
    sources = set(requests.text("stamp_source").tolist())
    if sources <= {"virtual"}:
        return _item("stamps", "good", "Simulated: instants are exact, in virtual time.")
    if "user" not in sources:
        return _item("stamps", "good", "Arrivals were stamped by the kernel, whatever the client was doing.")
    notes = {info.client.stamp_note for info in infos if info.client and info.client.stamp_note}
    why = f" ({'; '.join(sorted(notes))})" if notes else ""
    return _item(
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
    return _item("coalescing", level, sentence)


def _client(infos: tuple[RunInfo, ...]) -> list[TrustItem]:
    healths = [info.client for info in infos if info.client is not None]
    if all(info.simulated for info in infos):
        return []
    if not healths:
        return [_item("client", "caution", "The client's own load and lag were not recorded.")]
    paced = any(not isinstance(stage.arrivals, Closed) for info in infos for stage in info.plan.stages)
    # A closed loop has no schedule that it could be late for.
    return [_cpu(healths), *([_lag(healths)] if paced else [])]


def _cpu(healths: list[ClientHealth]) -> TrustItem:
    ratio = max(health.cpu_s / health.wall_s if health.wall_s > 0 else 0.0 for health in healths)
    level = _graded(ratio, CPU_CAUTION, CPU_BAD)
    sentence = f"The client used {percent(round(ratio, 3))} of one core."
    if level != "good":
        sentence += " It may be the bottleneck: spread the load over more workers."
    return _item("client CPU", level, sentence)


def _lag(healths: list[ClientHealth]) -> TrustItem:
    lag_s = max(health.worst_lag_s for health in healths)
    level = _graded(lag_s, LAG_CAUTION_S, LAG_BAD_S)
    sentence = f"Requests left at most {numbers.duration(lag_s)} late."
    if level != "good":
        sentence += " TTFT from scheduled contains it, TTFT from sent does not."
    return _item("client lag", level, sentence)


def _failures(requests: Requests) -> TrustItem:
    total = len(requests)
    failed = int(np.sum(~requests.text_is("outcome", "ok")))
    if total == 0:
        return _item("failures", "bad", "No request was measured.")
    if failed == 0:
        return _item("failures", "good", f"All {numbers.counted(total, 'measured request')} succeeded.")
    share = failed / total
    return _item(
        "failures",
        _graded(share, FAILED_CAUTION, FAILED_BAD),
        f"{failed} of {numbers.counted(total, 'measured request')} failed ({percent(round(share, 4))}); "
        "latencies are of those that succeeded, and slow ones may be among the failed.",
    )


def _completeness(infos: tuple[RunInfo, ...]) -> TrustItem:
    cut = [info for info in infos if info.status != "complete"]
    if not cut:
        return _item("completeness", "good", "The run went through its whole plan.")
    why = "; ".join(sorted({info.status_detail for info in cut if info.status_detail}))
    return _item(
        "completeness",
        "caution",
        f"{len(cut)} of {numbers.counted(len(infos), 'run')} did not end in order"
        f"{f' ({why})' if why else ''}; what was recorded before is in the report.",
    )


def _steadiness(good: Requests, tiers: list[str]) -> TrustItem:
    moved = [
        f"{drift.what} of {tier} moved by {percent(round(drift.ratio - 1, 3))}"
        for tier in tiers
        for drift in window.drifts(_of(good, tier))
        if drift.matters
    ]
    if not moved:
        return _item("steady state", "good", "Nothing drifted beyond chance while it was measured.")
    return _item(
        "steady state",
        "caution",
        f"{'; '.join(moved)} from the first third of the run to the last: a mean describes no single state.",
    )


def _echoes(plan: Plan, good: Requests) -> list[TrustItem]:
    """Compare the tier a request asked for with the one the server said had served it."""
    asked = {tier.name: tier.body.get("service_tier") for tier in plan.tiers}
    checked, strange = 0, []
    for name, value in asked.items():
        echoed = _of(good, name).text("echoed_tier")
        if value in (None, "auto") or not any(echoed):
            continue
        same = {"priority", "fast"} if value in ("priority", "fast") else {value}
        said = echoed[echoed != ""]
        checked += said.size
        wrong = int(np.sum([echo not in same for echo in said]))
        if wrong:
            strange.append(f"{wrong} of {said.size} requests for {value} were served as something else")
    if strange:
        return [
            _item("tier echo", "bad", f"{'; '.join(strange)}: the tiers compared are not the tiers named.")
        ]
    if not checked:
        return []
    return [_item("tier echo", "good", "The server says it served every request on the tier it asked for.")]


def _caches(good: Requests) -> list[TrustItem]:
    cached, prompt = np.nan_to_num(good.column("cached_tokens")), np.nan_to_num(good.column("prompt_tokens"))
    share = float(cached.sum() / prompt.sum()) if prompt.sum() > 0 else 0.0
    if share < 0.01:
        return []
    return [
        _item(
            "prefix cache",
            "caution",
            f"{percent(round(share, 3))} of prompt tokens came from the server's cache; the prefill law "
            "counts only the others.",
        )
    ]


def _prefill_load(good: Requests, tiers: list[str]) -> list[TrustItem]:
    items = []
    for tier in tiers:
        share = steps.loaded_share(_of(good, tier))
        if share >= steps.CAUTION_LOADED:
            refused = share >= steps.REFUSE_LOADED
            items.append(
                _item(
                    "prefill load",
                    "bad" if refused else "caution",
                    f"{percent(round(share, 3))} of {tier}'s gaps carry somebody's prefill, so that its step "
                    f"time {'cannot be read' if refused else 'reads up to a few per cent too long'}.",
                )
            )
    return items


def _token_counts(good: Requests) -> list[TrustItem]:
    estimated = int(np.sum(good.text_is("tokens_source", "events")))
    if not estimated:
        return []
    return [
        _item(
            "token counts",
            "caution",
            f"The server did not count the tokens of {numbers.counted(estimated, 'request')}; events were "
            "counted instead, and an event may carry several tokens.",
        )
    ]


def _of(requests: Requests, tier: str) -> Requests:
    return requests.where(requests.text_is("requested_tier", tier))
