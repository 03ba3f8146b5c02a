"""What a report on distributions draws. Pure."""

import numpy as np

from analysis.model import Distribution, FigureData, Metric, PrefillPoint
from analysis.series import prefill_curve
from analysis.sources.aggregate import Aggregate, Binned
from analysis.ttft_law import TtftLaw


def draw(told: Aggregate, tiers: list[str], laws: dict[str, TtftLaw | str]) -> FigureData:
    """Prefill by exact class, the fitted laws, and distributions by bucket; no timeline and no sweep."""
    points = []
    for tier in tiers:
        for size in told.classes("ttft", tier):
            shape = told.pooled("ttft", tier, size)
            if isinstance(shape, Binned):
                p10, p50, p90 = (shape.quantile(q).value for q in (0.1, 0.5, 0.9))
                points.append(
                    PrefillPoint(
                        tier=tier, prompt_tokens=size, count=shape.count, p10_s=p10, p50_s=p50, p90_s=p90
                    )
                )
    drawn: tuple[Metric, ...] = ("ttft", "itl", "tpot", "otps", "e2e")
    shapes = [(tier, metric, told.pooled(metric, tier)) for tier in tiers for metric in drawn]
    return FigureData(
        prefill_points=points,
        prefill_curves=[prefill_curve(tier, law) for tier, law in laws.items() if isinstance(law, TtftLaw)],
        distributions=[
            _distribution(tier, metric, one)
            for tier, metric, one in shapes
            if isinstance(one, Binned) and one.count
        ],
        timeline=[],
        sweep=[],
    )


def _distribution(tier: str, metric: Metric, shape: Binned) -> Distribution:
    """The filled buckets; an open one at an end is drawn as wide as its neighbour."""
    edges = shape.edges
    ratio = edges[1] / edges[0] if edges.size > 1 else 2.0
    first, last = edges[0] / ratio, edges[-1] * ratio
    bounds = np.concatenate(([first], edges, [last]))
    filled = np.flatnonzero(shape.counts)
    begin, end = int(filled[0]), int(filled[-1]) + 1
    shares = shape.counts[begin:end] / shape.count
    return Distribution(
        tier=tier, metric=metric, edges=bounds[begin : end + 1].tolist(), shares=shares.tolist()
    )
