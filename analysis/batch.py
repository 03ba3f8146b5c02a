"""How many sequences share a step, as far as timing tells: bounds from two tiers and from prices.

Two tiers of one machine, step time t(B) = α + β·B, ratio r = t_s/t_f of the slow step to the fast one:

    B_s/B_f ≥ r                    whatever α ≥ 0 is
    B_s/B_f = p·r/m                with p the price ratio fast/slow and m the ratio of their margins
    x_f = (r − 1)/(B_s/B_f − 1)    share of the fast tier's step that its batch makes up

The price algebra takes the cost of a token as machine time over batch, C = t/B. Nothing here sees α or β
themselves: two tiers are two points, and a line through an unknown batch has too many unknowns.
"""

import math
from typing import Literal

from analysis import numbers
from analysis.model import BatchAnswer, Estimate, Verdict

MARGIN_RATIOS = (0.7, 1.5)
"""(Price / cost) of the compared tier over that of the baseline, if nobody says better: an assumption, not a
measurement. The fast tier may carry a premium of half from those in a hurry, or be sold a third cheaper to
win them. That prices alone say little: one provider asked 6× and then 2× for the same kind of fast tier in
2026."""


def from_verdict(
    verdict: Verdict, price_ratio: float | None, margin_ratios: tuple[float, float]
) -> list[BatchAnswer]:
    """What the compared step times bound, and the price ratio if there is one; empty without two tiers."""
    if verdict.decode is None or verdict.baseline_tier is None or verdict.compared_tier is None:
        return []
    ratio, names = verdict.decode.speed_ratio, (verdict.baseline_tier, verdict.compared_tier)
    found = [from_step_ratio(ratio, names=names)]
    if price_ratio is not None:
        found += from_prices(ratio, price_ratio, margin_ratios=margin_ratios, names=names)
    return found


def from_step_ratio(ratio: Estimate, *, names: tuple[str, str]) -> BatchAnswer:
    """The batch ratio is at least the step ratio, if batch is all that differs between the tiers.

    ``names`` are those of the two tiers, baseline first.
    """
    baseline, compared = names
    slower = ratio.value is not None and ratio.value < 1
    low = None if ratio.low is None or ratio.low <= 1 else ratio.low
    if low is None:
        sentence = "Step times are too close to bound the batch ratio: it may be anything from 1 on."
        if slower:
            sentence = f"{compared} is the slower tier, so the bound does not apply to it."
    else:
        sentence = (
            f"If {baseline} and {compared} run on equal machines and differ in batch alone, the batch of "
            f"{baseline} is at least {numbers.number(low, numbers.RATIO)} that of {compared}: a step cannot "
            f"shrink by more than its batch does. From above, timing of two tiers bounds nothing."
        )
    return BatchAnswer(
        tier=compared,
        method="two tiers",
        quantity="batch ratio baseline/compared",
        estimate=Estimate(value=None, low=low, level=ratio.level),
        identified=False,
        sensitivity=None,
        sentence=sentence,
    )


def priced_batch_ratio(step_ratio: float, price_ratio: float, margin_ratio: float = 1.0) -> float:
    """B_s/B_f = p·r/m: machine time per token and its price, set equal."""
    return price_ratio * step_ratio / margin_ratio


def batch_share(step_ratio: float, batch_ratio: float) -> float:
    """Share of the compared tier's step that is proportional to its batch, x = (r − 1)/(B_s/B_f − 1).

    NaN where the ratios contradict a step that grows with its batch.
    """
    if batch_ratio <= 1 or step_ratio < 1:
        return math.nan
    share = (step_ratio - 1) / (batch_ratio - 1)
    return share if share <= 1 else math.nan


def from_prices(
    ratio: Estimate,
    price_ratio: float,
    *,
    margin_ratios: tuple[float, float] = MARGIN_RATIOS,
    names: tuple[str, str],
) -> list[BatchAnswer]:
    """Batch ratio and batch share of the compared tier's step, over the interval of margin ratios."""
    baseline, compared = names
    story = (
        f"A price ratio of {price_ratio:g}, at margins between {margin_ratios[0]:g} and "
        f"{margin_ratios[1]:g} of one another,"
    )
    if ratio.value is None or ratio.low is None or ratio.high is None or ratio.low <= 1:
        why = f"{compared} is not shown to be the faster tier, so prices say nothing of its batch."
        return [_priced(compared, Estimate(value=None), "batch ratio baseline/compared", why)]
    if price_ratio / margin_ratios[0] <= 1:
        why = f"{story} contradicts a tier that is faster by its batch alone: its tokens would cost more."
        return [_priced(compared, Estimate(value=None), "batch ratio baseline/compared", why)]
    batches = Estimate(
        value=priced_batch_ratio(ratio.value, price_ratio),
        low=max(ratio.low, priced_batch_ratio(ratio.low, price_ratio, margin_ratios[1])),
        high=priced_batch_ratio(ratio.high, price_ratio, margin_ratios[0]),
        level=ratio.level,
    )
    share = _share_estimate(ratio, batches)
    return [
        _priced(
            compared,
            batches,
            "batch ratio baseline/compared",
            f"{story} means that {baseline}'s batch is {numbers.estimate(batches, numbers.RATIO)} that of "
            f"{compared}.",
        ),
        _priced(
            compared,
            share,
            "batch share of step, compared",
            f"{story} leaves the batch {numbers.estimate(share, numbers.PERCENT)} of {compared}'s step; the "
            f"rest is paid whatever the batch.",
        ),
    ]


def _share_estimate(ratio: Estimate, batches: Estimate) -> Estimate:
    """The larger the batch ratio, the smaller the share; its ends are those of the batch ratio, exchanged."""
    assert ratio.value is not None
    value, low, high = (
        batch_share(ratio.value, end) if end is not None else math.nan
        for end in (batches.value, batches.high, batches.low)
    )
    return Estimate(
        value=None if math.isnan(value) else value,
        low=None if math.isnan(low) else low,
        high=1.0 if math.isnan(high) else high,
        level=ratio.level,
    )


def _priced(
    tier: str,
    estimate: Estimate,
    quantity: Literal["batch ratio baseline/compared", "batch share of step, compared"],
    sentence: str,
) -> BatchAnswer:
    return BatchAnswer(
        tier=tier,
        method="two tiers and price",
        quantity=quantity,
        estimate=estimate,
        identified=estimate.value is not None,
        sensitivity=None,
        sentence=sentence,
    )
