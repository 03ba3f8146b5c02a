"""Costs and the ratios of prices against closed forms that follow from no code of ours."""

import math
from dataclasses import replace

import pytest

from mockserver import economics, roofline
from mockserver.hardware import Deployment
from mockserver.roofline import Law

DENSE = Deployment(chip="H100", chips=4, model="Llama-3.1-70B")
EXPERTS = Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8)
WINDOWED = Deployment(chip="B200", model="gpt-oss-120b", weight_bits=4)
ALL = [DENSE, EXPERTS, WINDOWED]


def bare(deployment: Deployment) -> Law:
    """Without overheads, and with reading and computing that overlap all but wholly."""
    law = roofline.law(deployment)
    return replace(law, fixed_s=0.0, sequence_s=0.0, link_s_per_token=0.0, overlap_exponent=64.0)


@pytest.mark.parametrize("deployment", ALL, ids=lambda d: d.model)
def test_a_token_costs_the_chips_for_a_step_shared_by_the_batch(deployment: Deployment) -> None:
    law = roofline.law(deployment)
    for batch, context in ((1.0, 100.0), (32.0, 4000.0), (500.0, 10.0)):
        cost = deployment.chips * roofline.step_s(law, batch, batch * context) / batch
        assert economics.output_cost(law, batch, context) == pytest.approx(cost)
        parts = economics.output_cost_parts(law, batch, context)
        assert parts.total == pytest.approx(cost)
        assert min(parts) >= 0


def test_waiting_for_a_larger_batch_makes_weights_cheaper_and_kv_not() -> None:
    law = bare(DENSE)
    small, large = (economics.output_cost_parts(law, batch, 4000.0) for batch in (8.0, 64.0))
    assert small.weights / large.weights == pytest.approx(8, rel=1e-6)
    assert small.kv == pytest.approx(large.kv, rel=1e-6)
    bandwidth = 4 * 3.35e12 * 0.8
    assert large.kv == pytest.approx(4 * 4000 * 327_680 / bandwidth, rel=1e-6)
    assert small.weights == pytest.approx(4 * 141.2e9 / bandwidth / 8, rel=1e-6)


def test_cost_per_token_tends_to_that_of_computing_and_kv_whatever_the_batch() -> None:
    law = bare(DENSE)
    compute = 4 * (2 * 70.6e9 + 80 * 4 * 64 * 128 * 100) / (4 * 989e12 * 0.65)
    assert economics.output_cost(law, 1e6, 100.0) == pytest.approx(compute, rel=1e-3)


def test_drafts_are_checked_for_the_weights_of_one_token() -> None:
    law = bare(DENSE)
    plain, drafted = (economics.output_cost_parts(law, 8.0, 1000.0, drafts=drafts) for drafts in (0, 3))
    assert drafted.total == pytest.approx(plain.total, rel=1e-6)
    positions = 8 * 4
    context, pairs = 8 * 1000, 3 * 8 * 1000 + 8 * (1 + 2 + 3)
    step_s = roofline.step_s(
        roofline.law(DENSE), 8.0, float(context), float(positions - 8), 0.0, float(pairs)
    )
    assert economics.output_cost_parts(roofline.law(DENSE), 8.0, 1000.0, drafts=3).total * 8 / 4 == (
        pytest.approx(step_s)
    )


def test_a_prompt_token_costs_what_computing_it_takes() -> None:
    law = replace(bare(DENSE), memory_bytes_per_s=1e30, prefill_flops_per_pair=0.0)
    compute_s = 2 * 70.6e9 / (4 * 989e12 * 0.65)
    assert economics.input_cost(law, 4096, 8192) == pytest.approx(4 * compute_s, rel=1e-4)


def test_the_largest_batch_is_what_fits_and_a_window_holds_no_more_than_itself() -> None:
    law = bare(DENSE)
    assert economics.largest_batch(law, 100_000) == pytest.approx(law.kv_room_bytes / 327_680 / 100_000)
    half = replace(law, kv_bytes_per_token=163_840.0, window_kv_bytes_per_token=163_840.0, window_tokens=128)
    assert economics.largest_batch(half, 100_000) == pytest.approx(
        law.kv_room_bytes / 163_840 / (100_000 + 128)
    )
    assert economics.largest_batch(half, 100) == pytest.approx(law.kv_room_bytes / 327_680 / 100)


def test_the_best_batch_of_the_data_sheet_is_300_times_the_sparsity() -> None:
    assert economics.textbook_best_batch(Deployment(chip="H100", model="Llama-3.1-8B")) == pytest.approx(
        989 / 3.35
    )
    sparse = Deployment(chip="H200", chips=8, model="DeepSeek-V3", weight_bits=8)
    sparsity = 671 / 37
    assert economics.textbook_best_batch(sparse) == pytest.approx(1979 / 4.8 / 2 * sparsity)
    law = roofline.law(sparse)
    assert roofline.best_batch(law) == pytest.approx(1979 / 4.8 / 2 * sparsity * 0.65 / 0.8)


@pytest.mark.parametrize("deployment", ALL, ids=lambda d: d.model)
@pytest.mark.parametrize("batch", [1.0, 32.0])
def test_contexts_at_which_kv_takes_over_are_where_the_times_are_equal(
    deployment: Deployment, batch: float
) -> None:
    law = roofline.law(deployment)
    context = economics.context_where_kv_reads_like_weights(law, batch)
    empty, full = (roofline.parts(law, batch, batch * c).memory_s for c in (0.0, context))
    assert full == pytest.approx(2 * empty)
    context = economics.context_where_kv_reads_like_compute(law)
    told = roofline.parts(law, batch, batch * context)
    assert told.memory_s - roofline.parts(law, batch, 0.0).memory_s == pytest.approx(told.compute_s)


def test_attention_that_computes_for_longer_than_it_reads_is_never_bound_by_memory() -> None:
    law = replace(roofline.law(DENSE), memory_bytes_per_s=1e20)
    assert economics.context_where_kv_reads_like_compute(law) == math.inf


@pytest.mark.parametrize(("price_ratio", "batches", "share"), [(6, 15, 0.12), (2, 5, 0.6)])
def test_speeds_and_prices_of_two_tiers_give_their_batches(
    price_ratio: float, batches: float, share: float
) -> None:
    found = economics.two_tiers_from_prices(2.5, price_ratio)
    assert found.batch_ratio == pytest.approx(batches)
    assert found.fast_share_ratio == pytest.approx(share)
    slow_s, fast_s = 1 + share * batches, 1 + share  # α = 1, β·B_f = share
    assert slow_s / fast_s == pytest.approx(2.5)
    assert (fast_s / 1) / (slow_s / batches) == pytest.approx(price_ratio)
