"""What each tier did: counts, decode speed, and quantiles of every latency with their intervals."""

from collections import Counter

import numpy as np

from analysis import intervals
from analysis.arms import Arm
from analysis.deliveries import Gaps
from analysis.intervals import Floats
from analysis.model import ErrorGroup, Estimate, Metric, QuantileRow, TierSummary
from analysis.steps import tokens_per_delivery
from analysis.table import Requests
from loadtest.records import OUTCOMES

METRICS: dict[Metric, str] = {
    "ttft": "ttft_s",
    "ttft_from_scheduled": "ttft_from_scheduled_s",
    "first_text": "first_text_s",
    "tpot": "tpot_s",
    "otps": "otps",
    "e2e": "e2e_s",
    "lag": "lag_s",
}
"""Metrics that have one value a request, and their columns. ``itl`` has one a token and is pooled apart."""
MOST_ERROR_GROUPS = 50
NO_ECHO = "–"


def summarise_tier(arm: Arm) -> TierSummary:
    """Summary of one tier: counts over all its measured requests, latencies over those that succeeded."""
    requests, good = arm.requests, arm.good
    step = good.column("step_s")
    per_delivery = tokens_per_delivery(good)
    step_s = intervals.median(step[np.isfinite(step)])
    stalled = good.column("stalled_gaps")
    outcomes = Counter(requests.text("outcome").tolist())
    echoed = Counter(name or NO_ECHO for name in good.text("echoed_tier").tolist())
    return TierSummary(
        tier=arm.tier,
        requests=len(requests),
        outcomes={name: outcomes[name] for name in OUTCOMES if outcomes[name]},
        echoed_tiers=dict(sorted(echoed.items())),
        prompt_tokens=int(np.nansum(requests.column("prompt_tokens"))),
        output_tokens=int(np.nansum(requests.column("output_tokens"))),
        tokens_per_delivery=intervals.finite(per_delivery),
        step_s=step_s,
        tokens_per_s=_speed(per_delivery, step_s),
        stalled_gap_ratio=intervals.finite(_mean(stalled)),
        quantiles=[_row(metric, good.column(column)) for metric, column in METRICS.items()]
        + [_gap_row(arm.token_gaps)],
    )


def group_errors(requests: Requests) -> tuple[list[ErrorGroup], list[str]]:
    """Failed requests by tier and cause, most frequent first, and a note on what did not fit."""
    failed = requests.where(~requests.text_is("outcome", "ok"))
    keys = zip(
        failed.text("requested_tier").tolist(),
        failed.text("outcome").tolist(),
        failed.column("status").tolist(),
        failed.text("detail").tolist(),
        strict=True,
    )
    counts: Counter[tuple[str, str, int | None]] = Counter()
    details: dict[tuple[str, str, int | None], str] = {}
    for tier, outcome, status, detail in keys:
        key = (tier, outcome, None if np.isnan(status) else int(status))
        counts[key] += 1
        details.setdefault(key, detail)
    groups = [
        ErrorGroup(tier=key[0], outcome=key[1], status=key[2], detail=details[key], count=count)  # type: ignore[arg-type]
        for key, count in counts.most_common(MOST_ERROR_GROUPS)
    ]
    left = len(counts) - len(groups)
    return groups, [f"{left} rarer kinds of failure are not listed"] if left else []


def _speed(per_delivery: float, step_s: Estimate) -> Estimate:
    """Tokens per second of one user: tokens per delivery over step time; the ends change places."""
    if step_s.value is None or not np.isfinite(per_delivery):
        return intervals.NOTHING
    return intervals.estimate(
        per_delivery / step_s.value,
        per_delivery / step_s.high if step_s.high is not None else np.nan,
        per_delivery / step_s.low if step_s.low is not None else np.nan,
    )


def _row(metric: Metric, values: Floats) -> QuantileRow:
    known = values[np.isfinite(values)]
    return QuantileRow(
        metric=metric,
        unit="tokens/s" if metric == "otps" else "s",
        count=known.size,
        mean=intervals.finite(_mean(known)),
        p50=intervals.quantile(known, 0.5),
        p90=intervals.quantile(known, 0.9),
        p95=intervals.quantile(known, 0.95),
        p99=intervals.quantile(known, 0.99),
    )


def _gap_row(gaps: Gaps) -> QuantileRow:
    """Inter-token latency: a gap that brought k tokens counts as k gaps of a k-th of it."""
    each_s = gaps.gap_ns / 1e9 / gaps.tokens
    ordered = np.argsort(each_s)

    def at(q: float) -> Estimate:
        return intervals.clustered_quantile(each_s, gaps.tokens, gaps.offsets, q, ordered=ordered)

    total = float(gaps.tokens.sum())
    return QuantileRow(
        metric="itl",
        unit="s",
        count=int(total),
        mean=float(gaps.gap_ns.sum()) / 1e9 / total if total else None,
        p50=at(0.5),
        p90=at(0.9),
        p95=at(0.95),
        p99=at(0.99),
    )


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
