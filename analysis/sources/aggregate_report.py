"""A report from distributions alone: the answers that records give, as far as counts can. Pure."""

from collections.abc import Sequence
from importlib.metadata import version

import numpy as np

from analysis import arms, batch, headline, intervals, numbers, prefill, steps, verdict, whitebox
from analysis.model import (
    REPORT_SCHEMA_VERSION,
    BatchAnswer,
    ErrorGroup,
    Estimate,
    Metric,
    QuantileRow,
    Report,
    RunSummary,
    TierSummary,
    Verdict,
)
from analysis.sources import aggregate_decode, aggregate_figures, aggregate_trust, binned_ttft
from analysis.sources.aggregate import CLUSTER, Aggregate, Binned
from analysis.sources.source import lacking, sentences
from analysis.sources.withheld import summarise
from analysis.summary import METRICS, NO_ECHO
from analysis.ttft_law import TtftLaw
from loadtest.records import OUTCOMES
from mockserver.hardware import Deployment
from tierscope.errors import BadInputError

UNREPORTED = "unreported"


def answer(
    told: Aggregate,
    *,
    baseline: str | None = None,
    compared: str | None = None,
    deployment: Deployment | None = None,
    context_tokens: float | None = None,
    law_error: float = whitebox.LAW_ERROR,
    price_ratio: float | None = None,
    margin_ratios: tuple[float, float] = batch.MARGIN_RATIOS,
    prefill_margin: float = 0.10,
    decode_margin: float = 0.05,
) -> Report:
    """Say what one aggregate tells; options are those of ``analyze``.

    Raises BadInputError for unknown tiers.
    """
    tiers = [name for name in told.tiers if _requests(told, name)] or told.tiers
    pair = _choose(tiers, baseline, compared)
    found = {name: aggregate_decode.step(told, name) for name in tiers}
    laws = {name: _law(told, name) for name in tiers}
    summaries = [_tier(told, name, found[name]) for name in tiers]
    said = (
        verdict.only_one_tier(tiers[0])
        if pair is None
        else _verdict(told, pair, laws, decode_margin, prefill_margin)
    )
    errors = _errors(told)
    return Report(
        schema_version=REPORT_SCHEMA_VERSION,
        tierscope_version=version("tierscope"),
        headline=_headline(told, said, summaries, errors),
        verdict=said,
        trust=aggregate_trust.judge(told, tiers, found),
        runs=_runs(told, summaries),
        tiers=summaries,
        prefill=[prefill.describe_law(name, _requests(told, name), laws[name]) for name in tiers],
        batch=[
            *batch.from_verdict(said, price_ratio, margin_ratios),
            *_from_hardware(told, summaries, deployment, context_tokens, law_error),
        ],
        figures=aggregate_figures.draw(told, tiers, laws),
        sources=[summarise(told.source)],
        errors=errors,
        notes=[*told.notes, *sentences(told.source), *_refusals(found)],
    )


def _headline(told: Aggregate, said: Verdict, tiers: list[TierSummary], errors: list[ErrorGroup]) -> str:
    """As for records; where a summary does not tell how many requests there were, that is said."""
    if any(tier.requests for tier in tiers):
        return headline.write(said, tiers, errors)
    middles = {row.metric: row.p50.value for tier in tiers for row in tier.quantiles}
    means = {row.metric: row.mean for tier in tiers for row in tier.quantiles}
    known = middles.get("ttft") or means.get("ttft")
    speed = "" if known is None else f" TTFT is {numbers.duration(known)};"
    return f"As {told.source.tool} printed it:{speed} how many requests there were is not told."


def _choose(tiers: Sequence[str], baseline: str | None, compared: str | None) -> tuple[str, str] | None:
    """The two tiers to compare, by the rule that holds for runs."""
    for option, name in (("baseline", baseline), ("compared", compared)):
        if name is not None and name not in tiers:
            raise BadInputError(
                f"--{option}: {name!r} is no tier that was told; those are: {', '.join(tiers)}"
            )
    if baseline is not None and baseline == compared:
        raise BadInputError(f"--compared: {compared!r} is the baseline; a tier is not compared with itself")
    if len(tiers) < 2:
        return None
    usual = (arms.USUAL_BASELINE, *tiers)
    first = baseline or next(name for name in usual if name in tiers and name != compared)
    return first, compared or next(name for name in tiers if name != first)


def _verdict(
    told: Aggregate,
    pair: tuple[str, str],
    laws: dict[str, TtftLaw | str],
    decode_margin: float,
    margin: float,
) -> Verdict:
    decode = aggregate_decode.compare(told, pair, margin=decode_margin)
    both = laws[pair[0]], laws[pair[1]]
    refused = next(
        (f"on {name}, {law}" for name, law in zip(pair, both, strict=True) if isinstance(law, str)), None
    )
    if refused is not None or isinstance(both[0], str) or isinstance(both[1], str):
        tested = prefill.untested(refused or "", margin=margin)
    else:
        tested = prefill.compare(both[0], both[1], margin=margin, names=pair)
    conclusion = verdict.conclude(decode, tested)
    per_tier = min(_requests(told, name) for name in pair)
    hopeless = refused is not None or decode.speed_ratio.value is None
    more = None if hopeless else verdict.more_requests(decode, tested, per_tier)
    if conclusion != "inconclusive":
        more = 0
    cautions = []
    if told.slices.get(pair) is None:
        cautions.append(
            f"A page keeps no order of requests: that they share a server's moods is allowed for by "
            f"{CLUSTER:g} times "
            "the variance, and not measured. It holds if the tiers were asked in turns, as tierscope's "
            "plans do."
        )
    return Verdict(
        conclusion=conclusion,
        sentence=verdict.sentence(conclusion, decode, tested, pair, more),
        baseline_tier=pair[0],
        compared_tier=pair[1],
        decode=decode,
        prefill=tested,
        more_requests_per_tier=more,
        cautions=cautions,
    )


def _law(told: Aggregate, tier: str) -> TtftLaw | str:
    if lacking([told.source], "requests") and not told.classes("ttft", tier):
        return "TTFT by exact prompt classes is not told"
    shapes = {n: told.pooled("ttft", tier, n) for n in told.classes("ttft", tier)}
    return binned_ttft.fit({n: one for n, one in shapes.items() if isinstance(one, Binned)})


def _requests(told: Aggregate, tier: str) -> int:
    """Good requests of a tier: as counted, else as many as have the metric that most have."""
    counted = sum(one.outcomes.get("ok", 0) for one in told.counts if one.tier == tier)
    shapes = [told.pooled(metric, tier) for metric in ("ttft", "e2e", "tpot")]
    return max([counted, *(one.count for one in shapes if one is not None)])


def _tier(told: Aggregate, tier: str, step: aggregate_decode.Step) -> TierSummary:
    counts = [one for one in told.counts if one.tier == tier]
    outcomes = {name: sum(one.outcomes.get(name, 0) for one in counts) for name in OUTCOMES}
    if not any(outcomes.values()):
        outcomes["ok"] = _requests(told, tier)
    value, low, high = step.estimate.value, step.estimate.low, step.estimate.high
    speed = intervals.NOTHING
    if value is not None:
        speed = intervals.estimate(1 / value, 1 / high if high else np.nan, 1 / low if low else np.nan)
    metrics: tuple[Metric, ...] = (*METRICS, "itl")
    return TierSummary(
        tier=tier,
        requests=sum(outcomes.values()),
        outcomes={name: count for name, count in outcomes.items() if count},
        echoed_tiers=_echoes(told, tier),
        prompt_tokens=sum(one.prompt_tokens for one in counts),
        output_tokens=sum(one.output_tokens for one in counts),
        tokens_per_delivery=told.tokens_per_event.get(tier),
        step_s=step.estimate,
        tokens_per_s=speed,
        stalled_gap_ratio=_stalled(told, tier),
        quantiles=[_row(told, tier, metric) for metric in metrics],
    )


def _row(told: Aggregate, tier: str, metric: Metric) -> QuantileRow:
    shape = told.pooled(metric, tier)
    units = _requests(told, tier) if metric == "itl" else None
    p50, p90, p95, p99 = (
        intervals.NOTHING if shape is None else shape.quantile(q, independent=units)
        for q in (0.5, 0.9, 0.95, 0.99)
    )
    return QuantileRow(
        metric=metric,
        unit="tokens/s" if metric == "otps" else "s",
        count=0 if shape is None else shape.count,
        mean=None if shape is None else shape.mean,
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
    )


def _stalled(told: Aggregate, tier: str) -> float | None:
    gaps = told.pooled("itl", tier)
    middle = gaps.quantile(0.5).value if isinstance(gaps, Binned) and gaps.count else None
    if middle is None or not isinstance(gaps, Binned):
        return None
    return 1 - aggregate_decode.share_below(gaps, steps.STALL_RATIO * middle)


def _echoes(told: Aggregate, tier: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in told.series:
        if one.metric == "e2e" and one.tier == tier and one.served_tier and one.shape.count:
            name = NO_ECHO if one.served_tier == UNREPORTED else one.served_tier
            found[name] = found.get(name, 0) + one.shape.count
    return dict(sorted(found.items()))


def _errors(told: Aggregate) -> list[ErrorGroup]:
    groups = [
        ErrorGroup(tier=one.tier, outcome=name, status=None, detail="", count=one.outcomes[name])
        for one in told.counts
        for name in OUTCOMES
        if name != "ok" and one.outcomes.get(name)
    ]
    return sorted(groups, key=lambda group: -group.count)


def _runs(told: Aggregate, tiers: list[TierSummary]) -> list[RunSummary]:
    requests = sum(tier.requests for tier in tiers)
    return [
        RunSummary(
            run_id=told.run_id or told.source.tool,
            folder=told.source.path,
            plan=told.plan or told.source.tool,
            seed=None,
            url=told.url,
            model=told.model,
            api="",
            status="complete",
            status_detail="",
            simulated=told.stamp_source == "virtual",
            started_unix_s=told.started_unix_s,
            duration_s=told.duration_s,
            requests=requests,
            measured_requests=max(
                (row.count for tier in tiers for row in tier.quantiles if row.metric == "e2e"), default=0
            ),
            repeat_command="",
            environment={"made by": told.source.name},
        )
    ]


def _from_hardware(
    told: Aggregate,
    tiers: list[TierSummary],
    deployment: Deployment | None,
    context_tokens: float | None,
    law_error: float,
) -> list[BatchAnswer]:
    """White box, where the steps are those of one load: not over the stages of a sweep."""
    if deployment is None or len({one.stage for one in told.series if one.shape.count}) > 1:
        return []
    found = (
        whitebox.answer(
            one.tier, _bounded(one.step_s), deployment, context_tokens=context_tokens, law_error=law_error
        )
        for one in tiers
    )
    return [one for one in found if one is not None]


def _bounded(step: Estimate) -> Estimate:
    """A step time with both ends, for the inversion; without them there is none."""
    return step if step.low is not None and step.high is not None else intervals.NOTHING


def _refusals(found: dict[str, aggregate_decode.Step]) -> list[str]:
    return [
        f"The step time of {tier} is not identified: {one.refusal}."
        for tier, one in found.items()
        if one.refusal
    ]
