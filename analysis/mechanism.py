"""By which means is the fast tier fast? Ordered rules: the first whose mark is there gives the answer.

    speculative decoding    several tokens a delivery, not always as many
    faster hardware         prompts are read faster too; a smaller model looks the same
    KV quantisation         a token of context costs less
    smaller batch           steps are shorter, and none of the above
    priority only           only the wait is shorter
    none

The order matters: what comes first leaves marks on what comes later, never the other way round. Which pairs
this run cannot tell apart is part of the answer.
"""

import math

import numpy as np

from analysis import mechanism_rules, speeds
from analysis.arms import Arm
from analysis.mechanism_rules import Seen
from analysis.model import Inseparable, Mechanism, MechanismAnswer, RuleEvidence, Verdict
from analysis.prefill import CERTAIN
from analysis.ragged import Floats

SPEED_DIFFERS = 1.05
"""Output speeds closer than this do not say which tier is the faster one."""
_MEANS: dict[Mechanism, str] = {
    "speculative decoding": "{fast} drafts tokens and has the model check several in a step.",
    "faster hardware or smaller model": (
        "{fast} runs on faster hardware or is a smaller model: it reads prompts faster too."
    ),
    "KV quantisation": "{fast} keeps its KV cache in fewer bits: contexts cost less, prefill is the same.",
    "smaller batch": "{fast} shares its steps with fewer sequences: steps are shorter, prefill is the same.",
    "priority only": "{fast} goes first in the queue; once running, it is served like {slow}.",
    "none": "Nothing sets {fast} apart from {slow}.",
}


def explain(arms: tuple[Arm, Arm], verdict: Verdict) -> MechanismAnswer | None:
    """Apply the rules to two arms; None where there was no comparison. ``verdict`` is that on these arms."""
    if verdict.decode is None or verdict.prefill is None:
        return None
    seen = mechanism_rules.look(arms, verdict.decode, verdict.prefill)
    if _second_is_slower(seen, arms):
        seen = mechanism_rules.flipped(seen)
    evidence = mechanism_rules.evidence(seen)
    answer = decide(evidence)
    slow, fast = seen.names
    return MechanismAnswer(
        answer=answer,
        slower_tier=slow,
        faster_tier=fast,
        sentence=_sentence(answer, evidence, slow, fast),
        evidence=evidence,
        inseparable=inseparable(answer, evidence),
    )


def decide(evidence: list[RuleEvidence]) -> Mechanism:
    """The first rule that holds; "none" only if steps and prefill are known to be equal."""
    for rule in evidence:
        if rule.holds:
            return rule.rule
    by_rule = {rule.rule: rule for rule in evidence}
    if by_rule["smaller batch"].holds is None or by_rule["faster hardware or smaller model"].holds is None:
        return "not identified"
    return "none"


def inseparable(answer: Mechanism, evidence: list[RuleEvidence]) -> list[Inseparable]:
    """Pairs with the answer that look alike in this run, each with the run that would tell."""
    by_rule = {rule.rule: rule for rule in evidence}
    found: list[Inseparable] = []
    if answer == "faster hardware or smaller model":
        found.append(_MODEL_OR_CHIP)
    if answer == "speculative decoding":
        found.append(_DRAFT_AND_BATCH)
    if answer == "smaller batch":
        found.append(_BATCH_OR_WEIGHT_BITS)
        if by_rule["faster hardware or smaller model"].holds is None:
            found.append(_BATCH_OR_CHIP)
    if answer in ("smaller batch", "none") and by_rule["KV quantisation"].holds is None:
        found.append(_alike_without_context(answer))
    if answer == "none" and by_rule["priority only"].holds is None:
        found.append(_PRIORITY_OR_NONE)
    return found


_MODEL_OR_CHIP = Inseparable(
    first="faster hardware",
    second="smaller model",
    why="Both shorten every step and every prompt alike.",
    extra_run="No timing tells. Ask both tiers the same questions without sampling and compare the answers.",
)
_DRAFT_AND_BATCH = Inseparable(
    first="speculative decoding alone",
    second="speculative decoding with a smaller batch",
    why="A draft lengthens the step by an unknown time, a smaller batch shortens it.",
    extra_run="Ask for text that no draft predicts (random words): what speed is left is not the draft's.",
)
_BATCH_OR_WEIGHT_BITS = Inseparable(
    first="smaller batch",
    second="weights in fewer bits at the same arithmetic",
    why="Both shorten decode steps and leave prefill, which is bound by arithmetic.",
    extra_run="Sweep own streams on each tier while nobody else is there: if batch is all that differs, the "
    "two curves coincide at equal numbers of streams.",
)
_BATCH_OR_CHIP = Inseparable(
    first="smaller batch",
    second="faster hardware",
    why="Prompts are read in chunks that share steps with decoding, or prefill has no ratio.",
    extra_run="More prompts of 16,000 tokens and longer, at an hour at which few others decode.",
)
_PRIORITY_OR_NONE = Inseparable(
    first="none",
    second="priority only",
    why="Nobody waited, and only a wait would show who goes first.",
    extra_run="Bursts of more requests than fit, to both tiers at the same instant.",
)


def _alike_without_context(answer: Mechanism) -> Inseparable:
    return Inseparable(
        first=answer,
        second="KV quantisation",
        why="What a token of context costs was not measured well enough on both tiers.",
        extra_run="Long cached contexts (to 131,072 tokens) beside short ones, several streams on each tier.",
    )


def _second_is_slower(seen: Seen, arms: tuple[Arm, Arm]) -> bool:
    """Whether the arms stand in the order faster, slower: by output speed, else prefill, else wait."""
    medians = [float(np.median(known)) if (known := _known(arm)).size else math.nan for arm in arms]
    speed = medians[0] / medians[1] if all(median > 0 for median in medians) else math.nan
    prefill = math.nan
    ratio, error = seen.prefill_ratio.value, seen.prefill_error
    if ratio is not None and error is not None and abs(math.log(ratio)) > CERTAIN * error:
        prefill = ratio
    for told, differs in ((speed, SPEED_DIFFERS), (prefill, mechanism_rules.PREFILL_RATIO)):
        if math.isfinite(told) and abs(math.log(told)) > math.log(differs):
            return told < 1
    first, second = seen.waits
    return first is not None and second is not None and first.mean_s < second.mean_s


def _known(arm: Arm) -> Floats:
    values = speeds.token_s(arm)
    return values[np.isfinite(values)]


def _sentence(answer: Mechanism, evidence: list[RuleEvidence], slow: str, fast: str) -> str:
    if answer == "not identified":
        missing = [rule.quantity for rule in evidence if rule.holds is None]
        return f"By what {fast} differs from {slow} is not identified: {', '.join(missing)} cannot be said."
    said = _MEANS[answer].format(slow=slow, fast=fast)
    marks = {rule.rule for rule in evidence if rule.holds}
    if answer == "speculative decoding" and "faster hardware or smaller model" in marks:
        return f"{said} It also runs on faster hardware or is a smaller model."
    return said
