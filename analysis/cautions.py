"""What a reader of the verdict should know before believing more than it says."""

from analysis import numbers
from analysis.arms import Arm
from analysis.model import DecodeTest, PrefillTest
from analysis.phrases import percent
from analysis.ttft_law import TtftLaw

TRAP = (1.02, 1.6)
"""By how much a smaller batch alone can speed prefill up where prompts are prefilled in small chunks."""
FIXED_DIFFERS = 1.05
LONG_WAIT_RATIO = 0.2
"""Mean wait in the queue over the increment: beyond it the queue is told."""
FAILURES_DIFFER = 0.05


def of_verdict(
    arms: tuple[Arm, Arm],
    laws: tuple[TtftLaw | str, TtftLaw | str],
    decode: DecodeTest,
    prefill: PrefillTest,
) -> list[str]:
    """All cautions that apply, the gravest first."""
    names = (arms[0].tier, arms[1].tier)
    said = [*_chunk_trap(decode, prefill)]
    if isinstance(laws[0], TtftLaw) and isinstance(laws[1], TtftLaw):
        said += _queue(laws[0], laws[1])
        said += _fixed_part(laws[0], laws[1], names, prefill)
    return [*said, *_failures(arms)]


def _chunk_trap(decode: DecodeTest, prefill: PrefillTest) -> list[str]:
    prefills, decodes = prefill.speed_ratio.value or 1.0, decode.speed_ratio.value or 1.0
    same_way = (prefills - 1) * (decodes - 1) > 0
    if prefill.answer == "unchanged" or not same_way or not TRAP[0] < max(prefills, 1 / prefills) < TRAP[1]:
        return []
    sentence = (
        "A smaller batch alone can make prefill look up to 1.6 times as fast where prompts are prefilled in "
        "small chunks, because decoding sequences then take less of each chunk's budget. This is no proof of "
        "faster hardware."
    )
    return [sentence]


def _queue(baseline: TtftLaw, compared: TtftLaw) -> list[str]:
    waits = [law.mean_wait_s for law in (baseline, compared)]
    if max(waits) <= LONG_WAIT_RATIO * min(baseline.increment_s, compared.increment_s):
        return []
    sentence = (
        f"Requests queued for {numbers.duration(waits[0])} and {numbers.duration(waits[1])} in the mean. The "
        "comparison of prefill is free of it if the wait does not depend on the prompt's length."
    )
    return [sentence]


def _fixed_part(
    baseline: TtftLaw, compared: TtftLaw, names: tuple[str, str], prefill: PrefillTest
) -> list[str]:
    """Why TTFT of short prompts differs although prefill does not."""
    short = [float(law.levels_s[0]) for law in (baseline, compared)]
    ratio = short[0] / short[1]
    if prefill.answer != "unchanged" or 1 / FIXED_DIFFERS < ratio < FIXED_DIFFERS:
        return []
    sentence = (
        f"TTFT of short prompts differs all the same, {numbers.duration(short[0])} on {names[0]} and "
        f"{numbers.duration(short[1])} on {names[1]}. That is no prefill: it holds network, ingest "
        "and half of the step that was running, and steps differ between tiers."
    )
    return [sentence]


def _failures(arms: tuple[Arm, Arm]) -> list[str]:
    shares = [1 - len(arm.good) / len(arm.requests) if len(arm.requests) else 0.0 for arm in arms]
    if abs(shares[0] - shares[1]) <= FAILURES_DIFFER:
        return []
    told = " and ".join(
        f"{percent(round(share, 3))} on {arm.tier}" for share, arm in zip(shares, arms, strict=True)
    )
    return [f"Failures differ: {told}. Those that failed may be the slow ones."]
