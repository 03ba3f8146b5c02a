"""Run folders in, a report out: everything that is said about a run is put together here."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from analysis import (
    arms,
    batch,
    calibrated,
    fallback,
    headline,
    mechanism,
    prefill,
    sequential,
    series,
    step_law,
    summary,
    sweep,
    trust,
    verdict,
    whitebox,
    window,
)
from analysis.arms import Arm
from analysis.load import Loaded, load
from analysis.model import (
    REPORT_SCHEMA_VERSION,
    BatchAnswer,
    FigureData,
    Report,
    TierSummary,
    Verdict,
)
from analysis.ragged import Bools
from analysis.runs import summarise_runs
from analysis.sweep import Level
from analysis.ttft_law import TtftLaw
from mockserver.hardware import Deployment


def analyze(
    folders: Sequence[Path] | Loaded,
    *,
    baseline: str | None = None,
    compared: str | None = None,
    deployment: Deployment | None = None,
    context_tokens: float | None = None,
    law_error: float = whitebox.LAW_ERROR,
    price_ratio: float | None = None,
    margin_ratios: tuple[float, float] = batch.MARGIN_RATIOS,
    calibration: Sequence[Path] = (),
    prefill_margin: float = 0.10,
    decode_margin: float = 0.05,
) -> Report:
    """Say what some run folders of one target tell about it.

    ``deployment``, ``context_tokens`` (mean context of the sequences that share a step) and ``law_error``
    (standard deviation of ln step about the deployment's law) are for the white-box batch, ``price_ratio``
    (compared / baseline) and ``margin_ratios`` for the priced one; ``calibration`` are run folders of sweeps
    of the same tiers, made while nobody else was there. A change of prefill or decode by less than its margin
    is no change. Raises BadInputError where the folders cannot be used.
    """
    loaded = folders if isinstance(folders, Loaded) else load(folders)
    counted = window.measured(loaded.requests)
    tiers = arms.split(loaded, counted)
    pair = arms.choose(tiers, baseline, compared)
    laws = {arm.tier: prefill.fit(arm) for arm in tiers}
    summaries = [summary.summarise_tier(arm) for arm in tiers]
    levels = {arm.tier: _levels(arm, loaded) for arm in tiers}
    answer = _verdict(
        tiers,
        pair,
        laws,
        decode_margin=decode_margin,
        prefill_margin=prefill_margin,
        significance=_significance(loaded, counted),
    )
    errors, unlisted = summary.group_errors(loaded.requests.where(counted))
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        tierscope_version=version("tierscope"),
        headline=headline.write(answer, summaries, errors),
        verdict=answer,
        trust=trust.judge(loaded.infos, loaded.requests.where(counted), [arm.tier for arm in tiers]),
        runs=summarise_runs(loaded, counted),
        tiers=summaries,
        prefill=[prefill.describe(arm, laws[arm.tier]) for arm in tiers],
        batch=[
            *batch.from_verdict(answer, price_ratio, margin_ratios),
            *_batch_from_hardware(tiers, summaries, levels, deployment, context_tokens, law_error),
            *_batch_from_calibration(summaries, levels, calibration, context_tokens),
            *_batch_from_sweep(levels),
        ],
        figures=_figures(loaded, tiers, laws, levels),
        mechanism=mechanism.explain(pair, answer) if pair else None,
        fallback=fallback.find(pair, loaded.infos) if pair else None,
        errors=errors,
        notes=[*loaded.notes, *unlisted, *_left_out(loaded, counted), *_unanswered(tiers, deployment)],
    )


def verdict_so_far(loaded: Loaded, *, prefill_margin: float = 0.10, decode_margin: float = 0.05) -> Verdict:
    """The verdict alone, as ``analyze`` gives it, on what was recorded so far of a run under way."""
    counted = window.measured(loaded.requests)
    tiers = arms.split(loaded, counted)
    pair = arms.choose(tiers, None, None)
    return _verdict(
        tiers,
        pair,
        {arm.tier: prefill.fit(arm) for arm in pair or ()},
        decode_margin=decode_margin,
        prefill_margin=prefill_margin,
        significance=_significance(loaded, counted),
    )


def _verdict(
    tiers: list[Arm],
    pair: tuple[Arm, Arm] | None,
    laws: dict[str, TtftLaw | str],
    *,
    decode_margin: float,
    prefill_margin: float,
    significance: float,
) -> Verdict:
    if pair is None:
        return verdict.only_one_tier(tiers[0].tier)
    return verdict.compare(
        pair,
        (laws[pair[0].tier], laws[pair[1].tier]),
        decode_margin=decode_margin,
        prefill_margin=prefill_margin,
        significance=significance,
    )


def _significance(loaded: Loaded, counted: Bools) -> float:
    """Of the verdict's tests: stricter where runs were looked at while they lasted, to stop them."""
    run = loaded.requests.column("run")
    measured = [int(np.sum(counted & (run == number))) for number in range(len(loaded.infos))]
    return sequential.significance(loaded.infos, measured)


def _levels(arm: Arm, loaded: Loaded) -> list[Level]:
    """Levels of a sweep, where the plan is one; those of several pooled runs one after the other."""
    found: list[Level] = []
    for number, info in enumerate(loaded.infos):
        mine = arm.good.column("run") == number
        found += sweep.measure(arm.good.where(mine), arm.step_gaps.where(mine), info.plan)
    return found


def _models(tiers: list[Arm]) -> set[str]:
    return {model for arm in tiers for model in arm.models}


def _batch_from_hardware(
    tiers: list[Arm],
    summaries: list[TierSummary],
    levels: dict[str, list[Level]],
    deployment: Deployment | None,
    context_tokens: float | None,
    law_error: float,
) -> list[BatchAnswer]:
    """White box for each tier; not in a sweep, whose step time is no single one, nor for several models."""
    if deployment is None:
        return []
    if len(_models(tiers)) > 1:
        return []
    found = (
        whitebox.answer(
            tier.tier, tier.step_s, deployment, context_tokens=context_tokens, law_error=law_error
        )
        for tier in summaries
        if not levels[tier.tier]
    )
    return [one for one in found if one is not None]


def _batch_from_sweep(levels: dict[str, list[Level]]) -> list[BatchAnswer]:
    alone = len(levels) == 1
    found = (sweep.largest_batch(tier, measured, alone=alone) for tier, measured in levels.items())
    return [one for one in found if one is not None]


def _batch_from_calibration(
    summaries: list[TierSummary],
    levels: dict[str, list[Level]],
    calibration: Sequence[Path],
    context_tokens: float | None,
) -> list[BatchAnswer]:
    """By the curve of each tier's own sweep; not where this run is a sweep itself."""
    if not calibration:
        return []
    loaded = load(calibration)
    laws = {
        arm.tier: step_law.fit(_levels(arm, loaded))
        for arm in arms.split(loaded, window.measured(loaded.requests))
    }
    found = (
        calibrated.answer(
            tier.tier, tier.step_s, laws.get(tier.tier, "it has no such tier"), context_tokens=context_tokens
        )
        for tier in summaries
        if not levels[tier.tier]
    )
    return [answer for answer in found if answer is not None]


def _figures(
    loaded: Loaded, tiers: list[Arm], laws: dict[str, TtftLaw | str], levels: dict[str, list[Level]]
) -> FigureData:
    return FigureData(
        prefill_points=[point for arm in tiers for point in series.prefill_points(arm.tier, arm.good)],
        prefill_curves=[
            series.prefill_curve(tier, law) for tier, law in laws.items() if isinstance(law, TtftLaw)
        ],
        distributions=[one for arm in tiers for one in series.distributions(arm)],
        timeline=series.timeline([arm.tier for arm in tiers], loaded.requests, loaded.infos),
        sweep=[point for tier, found in levels.items() for point in sweep.points(tier, found)],
        sweep_curves=[
            curve for tier, found in levels.items() if (curve := step_law.curve(tier, found)) is not None
        ],
    )


def _unanswered(tiers: list[Arm], deployment: Deployment | None) -> list[str]:
    models = sorted(_models(tiers))
    if deployment is None or len(models) < 2:
        return []
    told = ", ".join(models[:5])
    return [f"Tiers ask for several models ({told}); no batch was found from hardware that serves but one."]


def _left_out(loaded: Loaded, counted: Bools) -> list[str]:
    cancelled = int(np.sum(loaded.requests.text("outcome") == "cancelled"))
    said = []
    if cancelled:
        said.append(f"{cancelled} requests were cut off by the end of the run and are left out.")
    known = {tier.name for tier in loaded.infos[0].plan.tiers}
    strange = sum(name not in known for name in loaded.requests.text("requested_tier").tolist())
    if strange:
        said.append(f"{strange} requests name a tier that is not in the plan and are left out.")
    if not counted.any():
        said.append("No request outside of warm-up was recorded.")
    return said
