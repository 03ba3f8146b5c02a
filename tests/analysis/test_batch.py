"""Batch from two tiers and prices: t = α + β·B run forwards, and what came back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import batch
from analysis.model import Estimate

NAMES = ("standard", "fast")


def around(value: float, error: float = 0.01) -> Estimate:
    return Estimate(value=value, low=value * math.exp(-error), high=value * math.exp(error))


SERVERS = st.tuples(
    st.floats(1e-3, 1e-1),  # α
    st.floats(1e-6, 1e-2),  # β
    st.integers(1, 200),  # batch of the fast tier
    st.floats(1.1, 50),  # batch ratio
)


@given(SERVERS)
def test_the_bound_never_exceeds_the_true_batch_ratio(server: tuple[float, float, int, float]) -> None:
    alpha, beta, fast, ratio = server
    steps = (alpha + beta * fast * ratio) / (alpha + beta * fast)
    found = batch.from_step_ratio(Estimate(value=steps, low=steps, high=steps), names=NAMES)
    assert found.estimate.low is None or found.estimate.low <= ratio * (1 + 1e-12)
    assert found.estimate.high is None
    assert not found.identified


@given(SERVERS)
def test_prices_equal_to_costs_give_back_batch_ratio_and_share(
    server: tuple[float, float, int, float],
) -> None:
    """The cost of a token is machine time over batch, t/B; the price ratio here is that of the costs."""
    alpha, beta, fast, ratio = server
    t_fast, t_slow = alpha + beta * fast, alpha + beta * fast * ratio
    price = (t_fast / fast) / (t_slow / (fast * ratio))
    assert batch.priced_batch_ratio(t_slow / t_fast, price) == pytest.approx(ratio)
    assert batch.batch_share(t_slow / t_fast, ratio) == pytest.approx(beta * fast / t_fast)


@pytest.mark.parametrize(("price", "ratio", "over_fixed"), [(6.0, 15.0, 0.12), (2.0, 5.0, 0.6)])
def test_speed_two_and_a_half_gives_the_worked_examples(
    price: float, ratio: float, over_fixed: float
) -> None:
    """β·B_f = 0.12·α at six times the price, 0.6·α at twice; the share of the step is y / (1 + y)."""
    assert batch.priced_batch_ratio(2.5, price) == pytest.approx(ratio)
    share = batch.batch_share(2.5, ratio)
    assert share / (1 - share) == pytest.approx(over_fixed, rel=0.01)


def test_the_price_interval_spans_the_margins() -> None:
    ratios, share = batch.from_prices(around(2.5), 6.0, margin_ratios=(0.7, 1.5), names=NAMES)
    assert ratios.estimate.value == pytest.approx(15.0)
    assert ratios.estimate.low == pytest.approx(15.0 / 1.5, rel=0.02)
    assert ratios.estimate.high == pytest.approx(15.0 / 0.7, rel=0.02)
    assert share.estimate.low is not None
    assert share.estimate.high is not None
    assert share.estimate.value is not None
    assert share.estimate.low < share.estimate.value < share.estimate.high <= 1.0


@pytest.mark.parametrize("price", [0.5, 0.69])
def test_a_fast_tier_that_is_cheaper_contradicts_the_batch_story(price: float) -> None:
    (found,) = batch.from_prices(around(2.5), price, names=NAMES)
    assert not found.identified
    assert found.estimate.value is None
    assert "contradicts" in found.sentence


def test_a_tier_that_is_not_faster_says_nothing_of_batches() -> None:
    assert batch.from_step_ratio(around(1.0), names=NAMES).estimate.low is None
    assert "slower" in batch.from_step_ratio(around(0.5), names=NAMES).sentence
    (found,) = batch.from_prices(around(0.5), 2.0, names=NAMES)
    assert not found.identified


def test_ratios_that_no_growing_step_can_have_give_no_share() -> None:
    assert math.isnan(batch.batch_share(2.5, 1.0))
    assert math.isnan(batch.batch_share(2.5, 2.0))  # the step would shrink by more than the batch


def test_bounds_are_at_the_level_of_the_ratio_they_come_from() -> None:
    ratio = Estimate(value=2.5, low=2.2, high=2.8, level=0.9981)
    found = [batch.from_step_ratio(ratio, names=NAMES), *batch.from_prices(ratio, 2.0, names=NAMES)]
    assert {answer.estimate.level for answer in found} == {0.9981}
