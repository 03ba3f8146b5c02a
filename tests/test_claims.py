"""docs/claims.md is what the engine says today, and the engine's scenarios are what closed forms say.

Closed forms are written out with the numbers of data sheets and of the models' own shapes, not with the law.
"""

import re
from itertools import pairwise

import msgspec
import pytest

from bench import claims, claims_figures, claims_prices, claims_tables
from bench.claims_scenarios import EXPERTS, LLAMA, alone, ideal, seventy_billion, steady
from bench.fidelity import filled
from mockserver.hardware import Deployment

TEXT = claims.DOCUMENT.read_text(encoding="utf-8")

# Llama-3.1-70B in fp8 on 4 x H100, all chips together.
WEIGHTS, KV, ACTIVE = 70.6e9, 327_680, 70.6e9
PAIR_FLOPS = 80 * 4 * 64 * 128
BANDWIDTH, FLOPS = 4 * 3.35e12, 4 * 1979e12
KV_TOKENS = (4 * (0.9 * 80e9 - 2e9) - WEIGHTS) / KV


def prefill_s(tokens: float, cached: float = 0.0) -> float:
    """On the ideal server, bound by arithmetic."""
    return (2 * ACTIVE * tokens + PAIR_FLOPS * tokens * (cached + tokens / 2)) / FLOPS


def step_s(batch: float, context: float) -> float:
    """On the ideal server, bound by memory."""
    return (WEIGHTS + KV * batch * context) / BANDWIDTH


def test_figures_and_picture_of_the_document_are_those_of_the_scenarios_today() -> None:
    assert filled(TEXT, claims_tables.sections()) == TEXT
    assert claims.PICTURE.read_text(encoding="utf-8") == claims.picture()


def test_every_claim_names_tests_that_exist_and_every_test_is_named() -> None:
    claims_told = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    named = [re.findall(r"`(test_\w+)`", claim) for claim in claims_told]
    assert [claim.split(".")[0] for claim in claims_told] == [str(number) for number in range(1, 13)]
    assert all(named)
    here = {name for name in globals() if name.startswith("test_")}
    of_the_document = {name for name in here if "document" in name or "every_claim" in name}
    assert {name for own in named for name in own} == here - of_the_document


@pytest.mark.parametrize(("prompt", "output"), [(1000, 500), (1000, 1000), (2000, 500), (4000, 2)])
def test_doubling_the_output_doubles_the_time_and_doubling_the_input_hardly_does(
    prompt: int, output: int
) -> None:
    expected_s = prefill_s(prompt) + (output - 1) * step_s(1, prompt + output / 2)
    assert alone(ideal(LLAMA), prompt, output).end_s == pytest.approx(expected_s, rel=1e-3)
    found = claims_figures.doubling()
    assert found.output_doubled.end_s / found.base.end_s == pytest.approx(2, rel=0.01)
    assert found.output_doubled.ttft_s == found.base.ttft_s
    assert 1 < found.input_doubled.end_s / found.base.end_s < 1.02
    assert found.input_doubled.ttft_s / found.base.ttft_s > 1.8  # all of it is in the first token


def test_140_gb_at_2_tb_a_second_are_70_ms_and_not_70_us() -> None:
    taken_s = steady(seventy_billion(1), 1, 1, output_tokens=8).step_s
    assert taken_s == pytest.approx(140e9 / 2e12, rel=1e-3)
    assert taken_s / 70e-6 == pytest.approx(1000, rel=1e-3)


def test_the_best_batch_is_300_times_the_sparsity_on_chips_like_the_h100() -> None:
    sparsity = {"Llama-3.1-8B": 1.0, "Qwen3-30B-A3B": 30.5 / 3.3, "DeepSeek-V3": 671 / 37}
    per_byte = {("H100", 16): 989 / 3.35, ("H100", 8): 1979 / 3.35 / 2, ("B200", 8): 4500 / 8 / 2}
    for one in claims_figures.knees():
        chip, model = str(one.deployment.chip), str(one.deployment.model)
        expected = per_byte[chip, one.deployment.weight_bits] * sparsity[model]
        assert one.batch == pytest.approx(expected, rel=0.01)
        assert one.batch == pytest.approx(300 * sparsity[model], rel=0.07)
    machine = ideal(Deployment(chip="H100", model="Llama-3.1-8B"))
    least, quarter, past, far = (steady(machine, batch, 1, output_tokens=3) for batch in (1, 74, 1180, 2360))
    assert quarter.step_s == pytest.approx(least.step_s, rel=0.01)
    assert far.chip_s_per_mtok == pytest.approx(past.chip_s_per_mtok, rel=0.01)


def experts_step_s(batch: int, context: float) -> float:
    """DeepSeek-V3 in fp8 on 8 x B200 at 80 %: what is read, 61 layers' launches and reductions, sequences.

    58 layers of 256 experts of three matrices of 7168 x 2048; latent KV lies on every chip.
    """
    experts = 58 * 256 * 3 * 7168 * 2048
    read = 671e9 - experts + experts * (1 - (1 - 8 / 256) ** batch) + 8 * 70_272 * batch * context
    launches_s = 61 * (30e-6 + 2 * 13e-6) + 0.15e-3
    per_sequence_s = 4e-6 + 61 * 2 * 2 * 7 / 8 * 7168 * 2 / 1.5e12
    return read / (8 * 8e12 * 0.8) + launches_s + per_sequence_s * batch


def test_a_smaller_batch_alone_makes_a_tier_2_5_times_as_fast_with_equal_prefill() -> None:
    tiers = claims_figures.fast_tier()
    for tier, batch in zip(tiers, (48, 6), strict=True):
        assert tier.batch == batch
        # Of who is there: prompts of 2,000, and half of an output, long ones being met more often.
        context = 2000 + 1500 * (1 + 0.8**2) / 2
        assert 1 / tier.tokens_per_s == pytest.approx(experts_step_s(batch, context), rel=0.04)
    standard, fast = tiers
    assert fast.tokens_per_s / standard.tokens_per_s == pytest.approx(2.5, rel=0.04)
    assert standard.added_prefill_s / fast.added_prefill_s == pytest.approx(1, abs=0.1)
    # Speed and cost of two tiers give their batches: β·B_fast = share·α, played with KV reads for β.
    server = ideal(msgspec.structs.replace(LLAMA, chip="H200"))
    for batches, share, price in ((15, 0.12, 6), (5, 0.6, 2)):
        context = round(share * WEIGHTS / KV / 4)
        quick, slow = steady(server, 4, context), steady(server, 4 * batches, context)
        assert quick.tokens_per_s / slow.tokens_per_s == pytest.approx(2.5, rel=0.01)
        assert quick.chip_s_per_mtok / slow.chip_s_per_mtok == pytest.approx(price, rel=0.01)
    assert {one.fast_over_standard for one in claims_prices.list_ratios()} == {2, 2.5, 6}


def test_a_slow_mode_saves_only_the_part_that_waiting_shares() -> None:
    context = claims_figures.SLOW_CONTEXT_TOKENS
    modes = claims_figures.slow_modes()
    assert modes[-1].batch == int(KV_TOKENS / (context + 17))
    played = [steady(ideal(LLAMA), one.batch, context) for one in modes]
    for one in played:
        cost = 4e6 * (WEIGHTS / one.batch + KV * context) / BANDWIDTH
        assert one.chip_s_per_mtok == pytest.approx(cost, rel=0.005)
    full_memory_s = (0.9 * 80e9 - 2e9) / 3.35e12
    assert played[-1].step_s == pytest.approx(full_memory_s, rel=0.015)
    # With overheads: fixed part over batch, and a rest that waiting does not touch, by any two batches.
    fixed_s = [(b.step_s * a.batch - a.step_s * b.batch) / (a.batch - b.batch) for a, b in pairwise(modes)]
    assert fixed_s == pytest.approx([fixed_s[0]] * 4, rel=0.01)
    rest = 4e6 * (modes[-1].step_s - fixed_s[0]) / modes[-1].batch
    kv = 4e6 * KV * context / (0.8 * BANDWIDTH)
    assert claims_figures.kv_chip_s_per_mtok(LLAMA, context) == pytest.approx(kv)
    assert kv < rest < 1.1 * kv
    for one in modes:
        assert one.chip_s_per_mtok == pytest.approx(rest + 4e6 * fixed_s[0] / one.batch, rel=0.005)
    opus, slow = claims_figures.slow_opus()  # and where KV is small the claim does not hold
    assert slow.chip_s_per_mtok < opus.chip_s_per_mtok / 2


@pytest.mark.parametrize("acceptance", [0.7, 0.8])
def test_drafts_of_three_bring_2_53_or_2_95_tokens_a_step(acceptance: float) -> None:
    expected = {0.7: 1 + 0.7 + 0.49 + 0.343, 0.8: 1 + 0.8 + 0.64 + 0.512}[acceptance]
    assert claims_figures.drafted_tokens_per_step(acceptance) == pytest.approx(expected, rel=0.005)
    found = claims_figures.speculation(acceptance)
    assert found[0].speed_ratio == pytest.approx(expected, rel=0.02)
    assert found[2].speed_ratio == pytest.approx(2.5, rel=0.15)
    assert all(a.speed_ratio > b.speed_ratio for a, b in pairwise(found))


@pytest.mark.parametrize("acceptance", [0.7, 0.8])
def test_drafts_stop_paying_at_the_best_batch_times_tokens_over_positions(acceptance: float) -> None:
    """4·c·B = E·(W + κ·s·B)/BW for B, with c = 2·N/F; contexts s of some 50 tokens."""
    server = ideal(Deployment(chip="H100", model="Llama-3.1-8B"))
    found = claims_figures.drafts_stop_paying(server, acceptance, context_tokens=50, most=600)
    tokens = (1 - acceptance**4) / (1 - acceptance)
    best_batch, kv = 989 / 3.35, 131_072 * 50 / 16.06e9
    assert found == pytest.approx(1 / (4 / tokens / best_batch - kv), rel=0.03)
    assert found == pytest.approx(best_batch * tokens / 4, rel=0.12)


def test_the_bus_is_waited_for_before_the_first_token_only() -> None:
    often, seldom = (claims_figures.bus_fill(rate, static=True) for rate in (2.0, 0.5))
    for rate, seats in ((2.0, often), (0.5, seldom)):
        assert seats[0].wait_s == pytest.approx(7 / rate, rel=0.03)
        assert sum(seat.wait_s for seat in seats) / 8 == pytest.approx(7 / (2 * rate), rel=0.03)
        assert seats[-1].wait_s < 1e-3
        assert [seat.tpot_s for seat in seats] == pytest.approx([seldom[0].tpot_s] * 8, abs=1e-9)
    joined = claims_figures.bus_fill(2.0, static=False)
    assert max(seat.wait_s for seat in joined) < joined[0].tpot_s


def test_a_longer_context_slows_decoding_by_its_bytes() -> None:
    found = claims_figures.contexts()
    for short, long in pairwise(found):
        added = KV * (long.context_tokens - short.context_tokens) / (0.8 * BANDWIDTH)
        assert long.alone_s - short.alone_s == pytest.approx(added, rel=0.01)
        assert long.four_s - short.four_s == pytest.approx(4 * added, rel=0.01)
        assert long.four_kv_int8_s - short.four_kv_int8_s == pytest.approx(2 * added, rel=0.01)


def test_cost_falls_as_one_over_the_batch_down_to_what_kv_costs() -> None:
    context, found = claims_figures.COST_CONTEXT_TOKENS, claims_figures.costs()
    for one in found:
        played = steady(ideal(LLAMA), one.batch, context)
        assert played.chip_s_per_mtok == pytest.approx(
            4e6 * step_s(one.batch, context) / one.batch, rel=0.005
        )
    assert found[2].chip_s_per_mtok == pytest.approx(found[0].chip_s_per_mtok / 4, rel=0.03)
    assert all(a.chip_s_per_mtok > b.chip_s_per_mtok for a, b in pairwise(found))
    kv = 4e6 * KV * context / (0.8 * BANDWIDTH)
    assert kv < found[-1].chip_s_per_mtok < 2.1 * kv


def test_an_output_token_costs_as_many_prompt_tokens_as_its_share_of_the_step() -> None:
    for batch in (4, 16, 64):
        expected = step_s(batch, 4000) / batch / (prefill_s(4000) / 4000)
        assert claims_prices.output_input_ratio(ideal(LLAMA), batch) == pytest.approx(expected, rel=0.005)
    for ratio in (10.0, 6.0):
        batch = claims_prices.batch_of_price_ratio(LLAMA, ratio, most=150)
        assert claims_prices.output_input_ratio(LLAMA, batch) <= ratio
        assert claims_prices.output_input_ratio(LLAMA, batch - 1) > ratio


@pytest.mark.parametrize(("cached", "fresh"), [(16_000, 4000), (30_000, 2000), (64_000, 8000)])
def test_a_cache_hit_costs_what_later_tokens_attend_to_it(cached: int, fresh: int) -> None:
    added_s = prefill_s(fresh, cached) - prefill_s(fresh)
    expected = added_s / cached / (prefill_s(cached + fresh) / (cached + fresh))
    assert claims_prices.cache_hit_ratio(ideal(LLAMA), cached, fresh) == pytest.approx(expected, rel=0.01)


def test_long_contexts_cost_more_than_lists_ask_for_output() -> None:
    short, long = 8000, 128_000
    played = claims_prices.long_context(ideal(LLAMA), short, long, 256)
    cheap, dear = int(KV_TOKENS / (short + 17)), int(KV_TOKENS / (long + 17))
    assert (played.short_batch, played.long_batch) == (cheap, dear)
    output = step_s(dear, long) / dear / (step_s(cheap, short) / cheap)
    assert played.output_ratio == pytest.approx(output, rel=0.005)
    assert played.input_ratio == pytest.approx(prefill_s(long) * short / prefill_s(short) / long, rel=0.005)
    for deployment in (LLAMA, EXPERTS, claims_prices.WIDE, claims_prices.WINDOWED):
        found = claims_prices.long_context(deployment, short, long, 256)
        assert 2 / 2.5 < found.input_ratio < 2 * 2.5
        assert found.output_ratio > 3 * 1.5
    assert claims_prices.long_context(claims_prices.WIDE, short, 200_000, 256).input_ratio < 2 * 2.5


def test_ratios_of_the_price_list_are_those_that_are_told() -> None:
    """5 and 6; hits at 0.025 to 0.1, which is where those of the engine lie."""
    listed = {model: one for one in claims_prices.list_ratios() for model in one.models}
    assert listed["claude-opus-5-5"].output_over_input == 20 / 4
    assert listed["gpt-5.5"].output_over_input == 30 / 5
    assert listed["claude-fable-5-2"].read_over_input == 0.20 / 8
    assert listed["claude-opus-4-6"].fast_over_standard == 150 / 25
    reads = [one.read_over_input for one in listed.values()]
    for cached, fresh in ((20_000, 2000), (96_000, 4000), (190_000, 10_000)):
        assert min(reads) < claims_prices.cache_hit_ratio(EXPERTS, cached, fresh) < max(reads)


def test_a_pipeline_spreads_weights_and_neither_kv_nor_the_time_of_a_token() -> None:
    one, *more = (claims_figures.pipeline(stages) for stages in (1, 2, 4))
    assert one.weights_gb_per_chip == pytest.approx(70.6 / 4)
    assert one.kv_gb_per_chip == pytest.approx(16 * 8000 * KV / 4 / 1e9, rel=0.005)
    for other in more:
        assert other.weights_gb_per_chip * other.stages == pytest.approx(one.weights_gb_per_chip)
        assert other.kv_gb_per_chip == pytest.approx(one.kv_gb_per_chip, rel=1e-4)
        assert other.tpot_s == pytest.approx(one.tpot_s, rel=0.01)


@pytest.mark.parametrize("chips", [1, 2, 4, 8])
def test_reading_is_as_many_times_quicker_as_there_are_chips_and_launches_are_not(chips: int) -> None:
    assert claims_figures.sweep_s(chips) == pytest.approx(0.070 / chips, rel=1e-3)
    launches_s = 80 * (30e-6 + (2 * 20e-6 if chips > 1 else 0)) + 0.15e-3
    expected_s = 141.2e9 / (chips * 8e12 * 0.8) + launches_s
    assert claims_figures.b200_step_s(chips) == pytest.approx(expected_s, rel=0.005)
