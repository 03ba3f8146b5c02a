"""What the report draws: points, curves, distributions, a timeline; bounded in size whatever the run's."""

import math

import numpy as np

from analysis import intervals, lengths
from analysis.arms import Arm
from analysis.intervals import Floats
from analysis.model import Curve, Distribution, Metric, PrefillPoint, TimelineBin
from analysis.table import Requests
from analysis.ttft_law import TtftLaw
from analysis.window import mean_in_flight
from loadtest.records import RunInfo

CURVE_POINTS = 60
MOST_CLASSES = 64
MOST_BINS = 120
"""Of the timeline, shared by all stages of all runs."""
BIN_RATIO = 2 ** (1 / 8)
"""Edges of distributions are this far apart, on the grid of the load generator's own histograms."""
MOST_DISTRIBUTION_BINS = 200


def prefill_points(tier: str, requests: Requests) -> list[PrefillPoint]:
    """TTFT by prompt length of one tier's good requests, shortest first: by class, or by eighths of them."""
    ttft, tokens = requests.column("ttft_s"), requests.column("uncached_tokens")
    known = np.isfinite(ttft)
    group = lengths.groups(requests, tokens)
    found: list[PrefillPoint] = []
    for number in np.unique(group[known])[:MOST_CLASSES]:
        mine = known & (group == number)
        p10, p50, p90 = np.quantile(ttft[mine], [0.1, 0.5, 0.9])
        found.append(
            PrefillPoint(
                tier=tier,
                prompt_tokens=float(tokens[mine].mean()),
                count=int(mine.sum()),
                p10_s=float(p10),
                p50_s=float(p50),
                p90_s=float(p90),
            )
        )
    return found


def prefill_curve(tier: str, law: TtftLaw) -> Curve:
    """The fitted law, without queue, over the prompt lengths it was fitted on."""
    x = np.linspace(law.n_low, law.n_high, CURVE_POINTS)
    return Curve(name=tier, x=x.tolist(), y=law.ttft_s(x).tolist())


def distributions(arm: Arm) -> list[Distribution]:
    """Shares per log-spaced bin of the metrics worth seeing whole, over one tier's good requests."""
    tier, requests, gaps = arm.tier, arm.good, arm.token_gaps
    series: list[tuple[Metric, Floats, Floats | None]] = [
        ("ttft", requests.column("ttft_s"), None),
        ("itl", gaps.gap_ns / 1e9 / gaps.tokens, gaps.tokens),
        ("tpot", requests.column("tpot_s"), None),
        ("otps", requests.column("otps"), None),
        ("e2e", requests.column("e2e_s"), None),
    ]
    found = (_distribution(tier, metric, values, weights) for metric, values, weights in series)
    return [one for one in found if one is not None]


def _distribution(tier: str, metric: Metric, values: Floats, weights: Floats | None) -> Distribution | None:
    known = np.isfinite(values) & (values > 0)
    if not known.any():
        return None
    place = np.floor(np.log(values[known]) / math.log(BIN_RATIO)).astype(np.int64)
    low, high = int(place.min()), int(place.max())
    if high - low >= MOST_DISTRIBUTION_BINS:  # a few absurd values: they are counted in the end bins
        middle = int(np.median(place))
        low, high = (
            max(low, middle - MOST_DISTRIBUTION_BINS // 2),
            min(high, middle + MOST_DISTRIBUTION_BINS // 2 - 1),
        )
    counts = np.bincount(
        np.clip(place, low, high) - low,
        None if weights is None else weights[known],
        minlength=high - low + 1,
    )
    edges = BIN_RATIO ** np.arange(low, high + 2, dtype=np.float64)
    return Distribution(
        tier=tier, metric=metric, edges=edges.tolist(), shares=(counts / counts.sum()).tolist()
    )


def timeline(tiers: list[str], requests: Requests, infos: tuple[RunInfo, ...]) -> list[TimelineBin]:
    """Slices of every stage of every run, warm-up included, per tier; pooled runs follow one another."""
    begin = requests.column("sent_at_s")
    begin = np.where(np.isfinite(begin), begin, requests.column("scheduled_at_s"))
    shift = _shifts(requests, infos)[requests.column("run").astype(np.int64)]
    begin, end = begin + shift, requests.column("ended_at_s") + shift
    stages, names = requests.text("stage"), requests.text("requested_tier")
    stretches = _stretches(requests, begin, end)
    total = sum(stop - start for _, start, stop, _ in stretches) or 1.0
    found: list[TimelineBin] = []
    for stage, start, stop, run in stretches:
        bins = max(1, round((stop - start) / total * (MOST_BINS - len(stretches))))
        edges = np.linspace(start, stop, bins + 1)
        here = (stages == stage) & (requests.column("run") == run)
        for tier in tiers:
            mine = here & (names == tier)
            found += _bins(
                tier, stage, edges, begin[mine], end[mine], requests.where(np.asarray(mine, np.bool_))
            )
    return found


def _bins(
    tier: str, stage: str, edges: Floats, begin: Floats, end: Floats, requests: Requests
) -> list[TimelineBin]:
    in_flight = mean_in_flight(begin, end, edges)
    place = np.clip(np.searchsorted(edges, begin, side="right") - 1, 0, edges.size - 2)
    failed = requests.text("outcome") != "ok"
    ttft, step = requests.column("ttft_s"), requests.column("step_s")
    return [
        TimelineBin(
            tier=tier,
            stage=stage,
            start_s=float(edges[k]),
            width_s=float(edges[k + 1] - edges[k]),
            started=int(np.sum(place == k)),
            failed=int(np.sum(failed[place == k])),
            in_flight=float(in_flight[k]),
            ttft_p50_s=_median(ttft[place == k]),
            itl_p50_s=_median(step[place == k]),
        )
        for k in range(edges.size - 1)
    ]


def _stretches(requests: Requests, begin: Floats, end: Floats) -> list[tuple[str, float, float, int]]:
    """(stage, start, stop, run) of all stages that had a request, in time."""
    runs = requests.column("run").astype(np.int64)
    keys = dict.fromkeys(zip(runs.tolist(), requests.text("stage").tolist(), strict=True))
    found = []
    for run, stage in keys:
        mine = (runs == run) & (requests.text("stage") == stage)
        start, stop = float(begin[mine].min()), float(end[mine].max())
        found.append((stage, start, stop if stop > start else start + 1e-3, run))
    return sorted(found, key=lambda stretch: stretch[1])


def _shifts(requests: Requests, infos: tuple[RunInfo, ...]) -> Floats:
    """Seconds by which each run is moved, so that each starts where the one before it ended."""
    runs, ended = requests.column("run"), requests.column("ended_at_s")
    lengths = [float(np.max(ended[runs == number], initial=0.0)) for number in range(len(infos))]
    return np.concatenate(([0.0], np.cumsum(lengths)))[: len(infos)]


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return intervals.finite(float(np.median(known))) if known.size else None
