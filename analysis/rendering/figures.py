"""Which figures a report has, what each shows, and the words for those who cannot see it.

A figure without data is left out. Titles state the finding where the verdict has one; the description carries
the numbers, so that nothing is lost without the picture.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import altair as alt
from altair.utils import schemapi

from analysis import numbers
from analysis.model import Distribution, Metric, PrefillPoint, Report, SweepPoint, TierSummary, TimelineBin
from analysis.numbers import Unit
from analysis.rendering import charts, distribution
from analysis.rendering.page import Figure
from analysis.rendering.theme import Look, looks, vega_config

FIRST_SCREEN = 3
"""Figures beside the headline; the others go to their sections."""

_HEIGHT = 236
_STAGE_NAME_SHARE = 0.2
_LONG_RUN_S = 900.0
_SILENT_SLICES = 6
"""So many slices in a row without a measurement are a gap; fewer are chance."""


def figures(report: Report) -> list[Figure]:
    """Draw what the report has data for, most important first.

    Altair's checks of each part against the schema of Vega-Lite are off: they take half of the time, and what
    they would find is ours, which the tests hold against the whole schema.
    """
    drawn = looks(_tier_names(report))
    makers: tuple[Callable[[Report, dict[str, Look]], Iterator[Figure]], ...] = (
        _verdict, _sweep, _prefill, _gaps, _step_timeline, _speeds, _ttft, _load,
    )  # fmt: skip
    with schemapi.debug_mode(arg=False):
        return [figure for make in makers for figure in make(report, drawn)]


def _verdict(report: Report, _: dict[str, Look]) -> Iterator[Figure]:
    verdict = report.verdict
    tests = {
        label: test
        for label, test in (("Decode", verdict.decode), ("Prefill", verdict.prefill))
        if test is not None and test.speed_ratio.value is not None
    }
    if not tests:
        return
    said = " ".join(
        f"{label}: {numbers.estimate(test.speed_ratio, numbers.RATIO)}, {test.answer}."
        for label, test in tests.items()
    )
    zones = "; ".join(
        f"{label.lower()} {1 / (1 + test.margin_ratio):.2f}–{1 + test.margin_ratio:.2f}×"
        for label, test in tests.items()
    )
    pair = f"{verdict.compared_tier} relative to {verdict.baseline_tier}"
    yield _figure(
        "verdict",
        "verdict",
        title=f"Speed of {pair}",
        caption=f"Dot: estimate; bar: its interval; shaded: too small to count as a change ({zones}).",
        description=f"Speed of {pair}. {said} A change is too small to count within {zones}.",
        chart=charts.ratios(tests, faster="speed ratio, faster →"),
        height=46 * len(tests),
    )


def _prefill(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    points = [p for p in report.figures.prefill_points if p.p50_s is not None]
    if not points:
        return
    title = "Prefill: time to first token by prompt length"
    test = report.verdict.prefill
    if test is not None and test.speed_ratio.value is not None:
        title = f"Prefill {test.answer}: {numbers.estimate(test.speed_ratio, numbers.RATIO)}"
    law = "; line: fitted law" if report.figures.prefill_curves else ""
    yield _figure(
        "prefill",
        "prefill",
        title=title,
        caption=f"Time to first token by prompt length. Dot: median; bar: 10–90 % of requests{law}.",
        description="Median time to first token by prompt length. "
        + " ".join(_ends(tier, points) for tier in _among(drawn, [p.tier for p in points])),
        chart=charts.prefill(points, report.figures.prefill_curves, drawn),
    )


def _gaps(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    title = "Decode: gaps between tokens"
    test = report.verdict.decode
    if test is not None and test.speed_ratio.value is not None:
        title = f"Decode {test.answer}: {numbers.estimate(test.speed_ratio, numbers.RATIO)}"
    caption = (
        "Gaps between a stream's tokens, on a logarithmic axis. The peak is the decode step; "
        "a second hump to its right is steps that also carry somebody's prefill."
    )
    yield from _distribution(report, drawn, "itl", "decode", title, caption, "gap")


def _speeds(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    caption = "Output tokens per second of each request after its first token, on a logarithmic axis."
    yield from _distribution(report, drawn, "otps", "decode", "Output speed per request", caption, "speed")


def _ttft(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    caption = "Time to first token of all measured requests, all prompt lengths, on a logarithmic axis."
    title = "Time to first token, all prompts"
    yield from _distribution(report, drawn, "ttft", "latency", title, caption, "TTFT")


def _distribution(
    report: Report, drawn: dict[str, Look], metric: Metric, section: str, title: str, caption: str, axis: str
) -> Iterator[Figure]:
    found = [d for d in report.figures.distributions if d.metric == metric and sum(d.shares) > 0]
    if not found:
        return
    medians = {
        tier.tier: row.p50.value
        for tier in report.tiers
        for row in tier.quantiles
        if row.metric == metric and row.p50.value is not None and tier.tier in [d.tier for d in found]
    }
    unit = _distribution_unit(metric, found, list(medians.values()))
    said = ", ".join(f"{numbers.number(value, unit)} on {tier}" for tier, value in medians.items())
    yield _figure(
        metric,
        section,
        title=title,
        caption=caption,
        description=f"{caption} Median: {said or numbers.ABSENT}.",
        chart=distribution.draw(
            found, medians, {d.tier: drawn[d.tier] for d in found}, unit=unit, title=axis
        ),
    )


def _step_timeline(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    bins = [b for b in report.figures.timeline if b.itl_p50_s is not None]
    if not bins:
        return
    unit = numbers.time_unit(max(b.itl_p50_s or 0 for b in bins))
    said = " ".join(
        f"{tier}: {numbers.number(min(values), unit)} to {numbers.number(max(values), unit)}."
        for tier in _among(drawn, [b.tier for b in bins])
        if (values := [b.itl_p50_s for b in bins if b.tier == tier and b.itl_p50_s is not None])
    )
    yield _timeline(
        report,
        drawn,
        "timeline",
        title="Decode step over the run",
        caption="Median gap between tokens in each slice of the run. Flat lines: the server did not drift.",
        said=said,
        value=lambda b: b.itl_p50_s,
        unit=unit,
        y_title=f"median gap, {unit.name}",
        section="decode",
    )


def _load(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    bins = report.figures.timeline
    if not bins:
        return
    failed, most = sum(b.failed for b in bins), max(b.in_flight for b in bins)
    yield _timeline(
        report,
        drawn,
        "load",
        title="Requests in flight over the run",
        caption="Mean number of requests in flight in each slice of the run; a cross marks failures.",
        said=f"At most {most:.1f} on one tier; {numbers.counted(failed, 'failure')}.",
        value=lambda b: b.in_flight,
        unit=numbers.PLAIN,
        y_title="requests in flight",
        section="run",
    )


def _timeline(
    report: Report,
    drawn: dict[str, Look],
    name: str,
    *,
    title: str,
    caption: str,
    said: str,
    value: Callable[[TimelineBin], float | None],
    unit: Unit,
    y_title: str,
    section: str,
) -> Figure:
    bins = report.figures.timeline
    clock = numbers.MINUTES if max(b.start_s + b.width_s for b in bins) > _LONG_RUN_S else numbers.SECONDS
    shown = {tier: drawn[tier] for tier in _among(drawn, [b.tier for b in bins])}
    rows = [row for tier in shown for row in _series([b for b in bins if b.tier == tier], value, unit, clock)]
    return _figure(
        name,
        section,
        title=title,
        caption=caption,
        description=f"{caption} {said}",
        chart=charts.timeline(
            rows,
            shown,
            x_title=f"time since the run's start, {clock.name}",
            y_title=y_title,
            stages=_stages(bins, clock),
            columns=_columns(bins, list(shown), value, unit, clock),
        ),
    )


def _series(
    bins: Sequence[TimelineBin], value: Callable[[TimelineBin], float | None], unit: Unit, clock: Unit
) -> Iterator[dict[str, Any]]:
    """Yield one tier's points. Slices in which nothing was measured break the line only if they are many."""
    missing = 0
    for one in bins:
        found = value(one)
        missing = missing + 1 if found is None else 0
        if found is None and missing < _SILENT_SLICES and not one.failed:
            continue
        yield {
            "tier": one.tier,
            "at": (one.start_s + one.width_s / 2) * clock.scale,
            "value": None if found is None else found * unit.scale,
            "failed": one.failed,
        }


def _columns(
    bins: Sequence[TimelineBin],
    tiers: Sequence[str],
    value: Callable[[TimelineBin], float | None],
    unit: Unit,
    clock: Unit,
) -> list[dict[str, Any]]:
    """Say per slice of time what each tier did there."""
    by_slice: dict[tuple[float, float], dict[str, TimelineBin]] = {}
    for one in bins:
        by_slice.setdefault((one.start_s, one.width_s), {})[one.tier] = one
    columns = []
    for (start_s, width_s), at in sorted(by_slice.items()):
        start, end = start_s * clock.scale, (start_s + width_s) * clock.scale
        texts = {f"text_{k:02}": _slice_text(at.get(tier), value, unit) for k, tier in enumerate(tiers)}
        when = f"{numbers.number(start)}–{numbers.number(end, Unit(clock.name))}"
        columns.append({"start": start, "end": end, "when": when, **texts})
    return columns


def _slice_text(one: TimelineBin | None, value: Callable[[TimelineBin], float | None], unit: Unit) -> str:
    if one is None:
        return numbers.ABSENT
    failed = f", {one.failed} failed" if one.failed else ""
    return f"{numbers.number(value(one), unit)}{failed}"


def _stages(bins: Sequence[TimelineBin], clock: Unit) -> list[dict[str, Any]]:
    """List where each stage starts; named only where there is room for the name."""
    starts: dict[str, float] = {}
    for one in sorted(bins, key=lambda b: b.start_s):
        starts.setdefault(one.stage, one.start_s)
    end_s = max(b.start_s + b.width_s for b in bins)
    room = _STAGE_NAME_SHARE * (end_s - min(starts.values()))
    ends = [*list(starts.values())[1:], end_s]
    return [
        {"stage": stage if end - start > room else "", "at": start * clock.scale}
        for (stage, start), end in zip(starts.items(), ends, strict=True)
    ]


def _sweep(report: Report, drawn: dict[str, Look]) -> Iterator[Figure]:
    points = [p for p in report.figures.sweep if p.step_s.value is not None]
    if len({p.streams for p in points}) < 2:
        return
    shown = {tier: drawn[tier] for tier in _among(drawn, [p.tier for p in points])}
    curves = report.figures.sweep_curves
    yield _figure(
        "sweep",
        "batch",
        title="Step time by streams decoding at once",
        caption="Dot: median step; bar: its interval"
        + ("; line: fitted step law." if curves else ". The slope is what one more stream costs."),
        description="Step time by streams decoding at once. "
        + " ".join(_sweep_ends(t, points) for t in shown),
        chart=charts.sweep(points, curves, shown),
    )
    queued = [p for p in report.figures.sweep if p.ttft_p50_s is not None]
    if len({p.streams for p in queued}) < 2:
        return
    yield _figure(
        "sweep-ttft",
        "batch",
        title="Time to first token by streams asked for",
        caption="A jump is a queue: the server has taken as many streams as it can.",
        description="Median time to first token by streams asked for. "
        + ", ".join(f"{numbers.duration(p.ttft_p50_s)} at {p.streams:,} ({p.tier})" for p in queued)
        + ".",
        chart=charts.sweep_ttft(queued, shown),
    )


def _figure(
    name: str,
    section: str,
    *,
    title: str,
    caption: str,
    description: str,
    chart: alt.LayerChart,
    height: int = _HEIGHT,
) -> Figure:
    sized = chart.properties(
        width="container", height=height, autosize={"type": "fit-x", "contains": "padding"}
    )
    spec = sized.to_dict(validate=False)
    spec["config"] = vega_config()
    return Figure(name, section, title, caption, description, spec)


def _distribution_unit(metric: Metric, found: Sequence[Distribution], medians: Sequence[float]) -> Unit:
    if metric == "otps":
        return numbers.TOKENS_PER_S
    return numbers.time_unit(max(medians, default=found[0].edges[-1]))


def _ends(tier: str, points: Sequence[PrefillPoint]) -> str:
    mine = sorted((p for p in points if p.tier == tier), key=lambda p: p.prompt_tokens)
    said = [
        f"{numbers.duration(p.p50_s)} at {numbers.tokens(p.prompt_tokens)}"
        for p in ([mine[0], mine[-1]] if len(mine) > 1 else mine)
    ]
    return f"{tier}: {', '.join(said)}."


def _sweep_ends(tier: str, points: Sequence[SweepPoint]) -> str:
    mine = sorted((p for p in points if p.tier == tier), key=lambda p: p.active_streams)
    said = [
        f"{numbers.time_estimate(p.step_s)} at {p.active_streams:,}"
        for p in ([mine[0], mine[-1]] if len(mine) > 1 else mine)
    ]
    return f"{tier}: {', '.join(said)}."


def _among(drawn: dict[str, Look], tiers: Sequence[str]) -> list[str]:
    present = set(tiers)
    return [tier for tier in drawn if tier in present]


def _tier_names(report: Report) -> list[str]:
    """List the tiers in order, with those that only the figures know last."""
    data = report.figures
    drawn: list[TierSummary | PrefillPoint | Distribution | TimelineBin | SweepPoint] = [
        *report.tiers, *data.prefill_points, *data.distributions, *data.timeline, *data.sweep,
    ]  # fmt: skip
    names = [item.tier for item in drawn] + [c.name for c in (*data.prefill_curves, *data.sweep_curves)]
    return list(dict.fromkeys(names))
