"""Reasons to believe the numbers, or not to: the client's health, failures, tiers other than those asked."""

import numpy as np

from analysis import numbers, sequential, trust_client, trust_server
from analysis.model import TrustItem
from analysis.phrases import percent
from analysis.table import Requests
from analysis.trust_item import graded, item
from loadtest.records import RunInfo

FAILED_CAUTION, FAILED_BAD = 0.01, 0.10
LENGTH_CAUTION, LENGTH_BAD = 0.05, 0.25
"""Median distance of prompts from the length aimed at, as a share of it."""


def judge(infos: tuple[RunInfo, ...], requests: Requests, tiers: list[str]) -> list[TrustItem]:
    """All there is to say, the same topics in the same order in every report.

    ``requests`` are the measured ones of all tiers, failed ones included.
    """
    good = requests.where(requests.text_is("outcome", "ok"))
    return [
        *trust_client.judge(infos, requests, tiers),
        _failures(requests),
        _completeness(infos),
        *_looks(infos, requests),
        *_not_streamed(good),
        *_prompt_lengths(good),
        *_prompts(infos),
        *trust_server.judge(infos[0].plan, good, tiers),
    ]


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
        graded(share, FAILED_CAUTION, FAILED_BAD),
        f"{failed} of {numbers.counted(total, 'measured request')} failed ({percent(round(share, 4))}); "
        "latencies are of those that succeeded, and slow ones may be among the failed.",
    )


def _completeness(infos: tuple[RunInfo, ...]) -> TrustItem:
    cut = [info for info in infos if info.status != "complete"]
    if cut:
        return item(
            "completeness",
            "caution",
            f"{len(cut)} of {numbers.counted(len(infos), 'run')} did not end in order{_why(cut)}; what was "
            "recorded before is in the report.",
        )
    early = [info for info in infos if info.status_detail]
    if early:
        return item("completeness", "good", f"Ended in order before its plan was through{_why(early)}.")
    return item("completeness", "good", "The run went through its whole plan.")


def _why(infos: list[RunInfo]) -> str:
    why = "; ".join(sorted({info.status_detail.rstrip(".") for info in infos if info.status_detail}))
    return f" ({why})" if why else ""


def _prompts(infos: tuple[RunInfo, ...]) -> list[TrustItem]:
    """What whoever sent the prompts noticed about them."""
    said = dict.fromkeys(caution for info in infos for caution in info.prompt_cautions)
    return [item("prompts", "caution", f"Of the prompts: {caution}.") for caution in said]


def _looks(infos: tuple[RunInfo, ...], requests: Requests) -> list[TrustItem]:
    """How a run that was to stop at its verdict was looked at, and at what level it is judged for that."""
    run = requests.column("run")
    found = []
    for number, info in enumerate(infos):
        looks = sequential.looks_of(info)
        if looks is None:
            continue
        share = sequential.share_seen(info, int(np.sum(run == number)))
        level = numbers.level_of(1 - looks.significance(share))
        found.append(
            item(
                "looks",
                "good",
                f"The run was to end at its verdict and looked at up to {looks.had(share)} of "
                f"{len(looks.shares)} times: the verdict is given at {level}, so that over all looks each of "
                f"its claims keeps an error of {percent(sequential.ERROR)}.",
            )
        )
    return found


def _not_streamed(good: Requests) -> list[TrustItem]:
    whole = int(np.sum(np.diff(good.offsets) == 0))  # a streamed answer without any event is no success
    if not whole:
        return []
    return [
        item(
            "streaming",
            "caution",
            f"{numbers.counted(whole, 'answer')} came as one document: only E2E is measured of them, neither "
            "TTFT nor a decode speed.",
        )
    ]


def _prompt_lengths(good: Requests) -> list[TrustItem]:
    """How far prompts, as the server counted them, were from what was aimed at."""
    aimed, counted = good.column("prompt_class_tokens"), good.column("prompt_tokens")
    known = (aimed > 0) & np.isfinite(counted)
    if not len(good):
        return []
    if not known.any():
        sentence = (
            "The server did not count prompt tokens, so that lengths are those aimed at: prefill in tokens "
            "per second may be off as a whole; the ratio of two tiers is not concerned."
        )
        return [item("prompt lengths", "caution", sentence)]
    off = np.abs(counted[known] / aimed[known] - 1)
    typical, worst = float(np.median(off)), float(off.max())
    level = graded(typical, LENGTH_CAUTION, LENGTH_BAD)
    if level == "good":
        return []
    return [
        item(
            "prompt lengths",
            level,
            f"Prompts were {percent(round(typical, 3))} off the length aimed at in the median and "
            f"{percent(round(worst, 3))} at worst: lengths in this report are those that the server counted, "
            "and not those of the plan.",
        )
    ]
