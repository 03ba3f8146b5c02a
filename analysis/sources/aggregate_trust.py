"""Reasons to believe distributions, or not to: stamps, failures, the width of buckets, prefill load. Pure."""

import numpy as np

from analysis import numbers, steps
from analysis.model import TrustItem
from analysis.phrases import percent
from analysis.sources import aggregate_decode
from analysis.sources.aggregate import Aggregate, Binned
from analysis.sources.source import lacking
from analysis.trust import FAILED_BAD, FAILED_CAUTION
from analysis.trust_item import graded, item


def judge(told: Aggregate, tiers: list[str], found: dict[str, aggregate_decode.Step]) -> list[TrustItem]:
    """All there is to say; ``found`` are the tiers' steps."""
    items = [_stamps(told), _failures(told), _resolution(told)]
    for name in tiers:
        loaded = found[name].loaded_ratio
        if loaded is not None and loaded >= steps.CAUTION_LOADED:
            bad = loaded >= steps.REFUSE_LOADED
            said = "cannot be read" if bad else "reads up to a few per cent too long"
            items.append(
                item(
                    "prefill load",
                    "bad" if bad else "caution",
                    f"{percent(round(loaded, 3))} of {name}'s gaps carry somebody's prefill, so that "
                    "its step time "
                    f"{said}.",
                )
            )
    order = lacking([told.source], "order")
    if order is not None:
        items.append(item("steady state", "caution", f"Whether anything drifted cannot be told: {order}."))
    return items


def _stamps(told: Aggregate) -> TrustItem:
    if told.measured_by == "server":
        return item("stamps", "caution", "Times are the server's own: network and client are not in them.")
    if told.stamp_source == "kernel":
        return item("stamps", "good", "Arrivals were stamped by the kernel, whatever the client was doing.")
    if told.stamp_source == "virtual":
        return item("stamps", "good", "Simulated: instants are exact, in virtual time.")
    return item("stamps", "caution", "Arrivals were stamped by the client itself; a busy client stamps late.")


def _failures(told: Aggregate) -> TrustItem:
    total = sum(count for one in told.counts for count in one.outcomes.values())
    failed = total - sum(one.outcomes.get("ok", 0) for one in told.counts)
    if not total:
        return item("failures", "caution", "How many requests failed is not told.")
    share = failed / total
    if not failed:
        return item(
            "failures", "good", f"All {numbers.counted(total, 'request')} that were counted succeeded."
        )
    return item(
        "failures",
        graded(share, FAILED_CAUTION, FAILED_BAD),
        f"{failed} of {numbers.counted(total, 'request')} failed ({percent(round(share, 4))}), warm-up "
        "included; "
        "latencies are of those that succeeded.",
    )


def _resolution(told: Aggregate) -> TrustItem:
    """How wide the buckets are in which medians lie."""
    worst = 1.0
    for one in told.series:
        if isinstance(one.shape, Binned) and one.shape.count and one.metric in ("itl", "ttft", "tpot"):
            low, high = one.shape.bucket(0.5)
            worst = max(worst, high / low if low is not None and high is not None else np.inf)
    if all(not isinstance(one.shape, Binned) for one in told.series):
        return item("resolution", "caution", "Numbers are as the tool printed them; none has an interval.")
    if not np.isfinite(worst):
        return item(
            "resolution", "bad", "A median lies in a bucket that is open on one side: it has only a bound."
        )
    level = graded(worst - 1, 0.15, 0.5)
    return item(
        "resolution", level, f"Buckets in which medians lie are up to {percent(round(worst - 1, 3))} wide."
    )
