"""The law against arithmetic anybody can redo, tables from elsewhere, and published serving measurements."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import hardware, roofline
from mockserver.engine import Engine, Job, Limits
from mockserver.hardware import Chip, Deployment, Model
from mockserver.roofline import Law

ROOMY = Chip(name="roomy", bf16_flops_per_s=1e15, hbm_bytes=1e14, memory_bytes_per_s=1e12)
LAWS = {
    name: roofline.law(Deployment(chip="GB200", chips=16, model=name, weight_bits=8, kv_bits=8))
    for name in hardware.models()
}
# Every form of parallelism that LAWS lacks, for what holds of any law.
PARALLEL = {
    "two stages": Deployment(chip="H200", chips=8, pipeline_stages=2, model="DeepSeek-V3", weight_bits=8),
    "attention groups": Deployment(
        chip="H200", chips=8, attention_data_parallel=8, expert_parallel=8, model="DeepSeek-V3", weight_bits=8
    ),
    "experts dealt out": Deployment(chip="B200", chips=4, expert_parallel=4, model="gpt-oss-120b"),
}
LAWS |= {name: roofline.law(deployment) for name, deployment in PARALLEL.items()}


def bare(chip: str | Chip, model: str | Model) -> Law:
    """The law of a deployment that reaches all of its peaks and has no overheads."""
    return roofline.law(
        Deployment(
            chip=chip,
            model=model,
            mfu_ratio=1.0,
            mbu_ratio=1.0,
            layer_overhead_s=0.0,
            step_overhead_s=0.0,
            sequence_overhead_s=0.0,
            overlap_exponent=16.0,
        )
    )


def test_140_gb_at_2_tb_per_s_are_70_ms_a_token() -> None:
    chip = Chip(name="c", bf16_flops_per_s=1e15, hbm_bytes=200e9, memory_bytes_per_s=2e12)
    model = Model(
        name="m", parameters=70e9, active_parameters=70e9, layers=80, hidden=8192,
        query_heads=64, kv_heads=8, head_dim=128,
    )  # fmt: skip
    law = bare(chip, model)
    assert roofline.floor_s(law) == pytest.approx(0.070, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "bytes_per_token"),
    [
        ("Llama-3.1-8B", 131_072), ("Llama-3.1-70B", 327_680), ("Llama-3.1-405B", 516_096),
        ("Qwen3-32B", 262_144), ("Qwen3-30B-A3B", 98_304),
        ("Qwen3-235B-A22B", 192_512), ("DeepSeek-V3", 70_272), ("Kimi-K2", 70_272),
        ("GLM-5", 89_856), ("gpt-oss-120b", 36_864), ("gpt-oss-20b", 24_576), ("Mixtral-8x7B", 131_072),
    ],
)  # fmt: skip
def test_kv_bytes_per_token_are_those_published_for_each_model(model: str, bytes_per_token: int) -> None:
    assert roofline.law(Deployment(chip=ROOMY, model=model)).kv_bytes_per_token == bytes_per_token


def test_halving_kv_bits_halves_the_slope_over_context_and_leaves_the_floor() -> None:
    wide = roofline.law(Deployment(chip="H100", model="Llama-3.1-8B"))
    narrow = roofline.law(Deployment(chip="H100", model="Llama-3.1-8B", kv_bits=8))
    assert narrow.kv_bytes_per_token == wide.kv_bytes_per_token / 2
    assert roofline.floor_s(narrow) == roofline.floor_s(wide)


@pytest.mark.parametrize(("tokens", "touched"), [(1, 8), (4, 30.5), (16, 102), (64, 222), (100_000, 256)])
def test_distinct_experts_grow_with_the_tokens_of_a_step(tokens: float, touched: float) -> None:
    assert roofline.touched_experts(LAWS["DeepSeek-V3"], tokens) == pytest.approx(touched, rel=0.005)


def test_distinct_experts_are_those_of_a_simulated_router() -> None:
    rng = np.random.default_rng(1)
    for tokens in (3, 20):
        counts = [len({e for _ in range(tokens) for e in rng.permutation(256)[:8]}) for _ in range(300)]
        assert roofline.touched_experts(LAWS["DeepSeek-V3"], float(tokens)) == pytest.approx(
            np.mean(counts), rel=0.02
        )


def test_a_chip_of_the_h100_class_computes_no_longer_than_it_reads_at_about_300_sequences() -> None:
    law = bare("H100", "Llama-3.1-8B")
    assert roofline.best_batch(law) == pytest.approx(989 / 3.35, rel=0.01)
    assert roofline.step_s(law, 100.0, 0.0) == pytest.approx(roofline.floor_s(law), rel=0.01)
    assert roofline.step_s(law, 1000.0, 0.0) == pytest.approx(1000 * law.flops_per_token / 989e12, rel=0.01)


def test_weights_divide_by_the_chips_and_latent_kv_does_not() -> None:
    one = roofline.law(Deployment(chip=ROOMY, model="DeepSeek-V3"))
    eight = roofline.law(Deployment(chip=ROOMY, chips=8, model="DeepSeek-V3", link_bytes_per_s=1e12))
    seconds_per_byte = [1 / law.memory_bytes_per_s for law in (one, eight)]
    assert seconds_per_byte[0] == pytest.approx(8 * seconds_per_byte[1])
    kv_s = [law.kv_bytes_per_token / law.memory_bytes_per_s for law in (one, eight)]
    assert kv_s[0] == pytest.approx(kv_s[1])


def test_more_chips_than_kv_heads_hold_copies() -> None:
    laws = [roofline.law(Deployment(chip="H200", chips=chips, model="Llama-3.1-70B")) for chips in (4, 8, 16)]
    assert [law.kv_bytes_per_token for law in laws] == [327_680, 327_680, 655_360]


def test_kv_capacity_is_what_the_weights_leave() -> None:
    law = roofline.law(Deployment(chip="H100", model="Llama-3.1-8B", memory_use_ratio=0.9))
    assert roofline.kv_capacity_tokens(law) == int((80e9 * 0.9 - 2e9 - 2 * 8.03e9) / 131_072)


def test_prefill_in_chunks_counts_every_pair_once() -> None:
    """Without overheads and memory, chunked prefill computes as much as prefill in one piece."""
    law = replace(LAWS["Llama-3.1-70B"], fixed_s=0.0, memory_bytes_per_s=1e30)
    whole, chunked = (roofline.prefill_s(law, 16_384, chunk) for chunk in (16_384, 1_000))
    assert chunked == pytest.approx(whole, rel=1e-9)
    pairs = 16_384**2 / 2
    flops = law.flops_per_token * 16_384 + law.attention_flops_per_pair * pairs
    assert whole == pytest.approx(flops / law.flops_per_s + law.link_s_per_token * 16_384, rel=1e-9)


def test_layers_with_a_window_do_not_see_beyond_it() -> None:
    law = LAWS["gpt-oss-120b"]
    near, far = roofline.step_s(law, 1.0, 10_000.0), roofline.step_s(law, 1.0, 20_000.0)
    full = roofline.step_s(replace(law, window_kv_bytes_per_token=0.0), 1.0, 20_000.0)
    only_full_layers = 10_000 * law.kv_bytes_per_token / law.memory_bytes_per_s
    assert far - near == pytest.approx(only_full_layers, rel=0.05)
    assert far - full < 128 * law.window_kv_bytes_per_token / law.memory_bytes_per_s * 1.001


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(sorted(LAWS)),
    batch=st.integers(0, 512),
    mean_context=st.integers(0, 50_000),
    prefill=st.integers(0, 8192),
    cached=st.integers(0, 50_000),
)
def test_the_scalar_law_of_the_engine_is_the_law(
    name: str, batch: int, mean_context: int, prefill: int, cached: int
) -> None:
    law = LAWS[name]
    if batch + prefill == 0:
        prefill = 1
    pairs = prefill * (cached + prefill / 2)
    numbers = (batch, batch * mean_context, prefill, cached if prefill else 0, pairs)
    scalar = roofline.step_function(law)(*numbers)
    as_floats = roofline.step_s(law, *(float(number) for number in numbers))
    as_arrays = roofline.step_s(law, *(np.array([number, number], dtype=float) for number in numbers))
    assert scalar == pytest.approx(as_floats, rel=1e-12)
    assert as_arrays == pytest.approx(np.array([scalar, scalar]), rel=1e-12)


@pytest.mark.parametrize("name", sorted(LAWS))
def test_more_work_never_takes_less_time(name: str) -> None:
    law = LAWS[name]
    batch = np.arange(1.0, 400.0)
    more_sequences = np.diff(roofline.step_s(law, batch, 1000.0 * batch))
    assert np.all(more_sequences[law.pipeline_stages - 1 :] > 0)  # so many are one in each stage
    assert np.all(more_sequences > -1e-12)
    assert np.all(np.diff(roofline.step_s(law, np.full(50, 8.0), np.linspace(0, 1e6, 50))) > 0)
    chunk = np.arange(1.0, 8192.0, 64.0)
    assert np.all(
        np.diff(roofline.step_s(law, 8.0 + 0 * chunk, 8e3 + 0 * chunk, chunk, 0.0, chunk**2 / 2)) > 0
    )


def test_a_large_overlap_exponent_is_the_textbook_maximum_and_one_is_the_sum() -> None:
    law = replace(LAWS["Llama-3.1-8B"], fixed_s=0.0, sequence_s=0.0, link_s_per_token=0.0)
    memory = (law.dense_weight_bytes + law.kv_bytes_per_token * 1e4) / law.memory_bytes_per_s
    compute = (law.flops_per_token * 50 + law.attention_flops_per_pair * 1e4) / law.flops_per_s
    sharp, soft = (replace(law, overlap_exponent=p) for p in (16.0, 1.0))
    assert roofline.step_s(sharp, 50.0, 1e4) == pytest.approx(max(memory, compute), rel=1e-3)
    assert roofline.step_s(soft, 50.0, 1e4) == pytest.approx(memory + compute, rel=1e-12)


# Time per output token in ms by concurrency, 1,024 tokens in and out, as published for vLLM (2024-2025).
PUBLISHED = {
    "Llama-3-8B on H100": (
        Deployment(chip="H100", model="Llama-3.1-8B"),
        {1: 7.91, 16: 10.8, 32: 12.8, 64: 18.4},
    ),
    "Llama-70B fp8 on 4 H100": (
        Deployment(chip="H100", chips=4, model="Llama-3.1-70B", weight_bits=8),
        {4: 11.8, 8: 12.1, 16: 13.2, 32: 16.5, 64: 19.5},
    ),
    "DeepSeek-R1 fp8 on 8 H200": (
        Deployment(chip="H200", chips=8, model="DeepSeek-V3", weight_bits=8),
        {4: 10.3, 8: 12.5, 16: 16.6, 32: 23.3, 64: 33.0},
    ),
}


def served_ms(law: Law, concurrency: int) -> float:
    """Mean time per output token of so many clients that ask for 1,024 tokens after 1,024, one by one."""
    limits = Limits(
        max_batch=512, step_tokens=8192, prefill_tokens=8192, kv_tokens=roofline.kv_capacity_tokens(law)
    )
    engine = Engine(roofline.step_function(law), limits)
    for number in range(concurrency):  # staggered, as if they had been at it for a while
        engine.submit(Job(number, 1024, 2 + 1022 * (number + 1) // concurrency), 0)
    asked = concurrency
    took_ms: list[float] = []
    while len(took_ms) < 2 * concurrency and (wakeup_ns := engine.wakeup_ns()) is not None:
        for step in engine.advance(wakeup_ns):
            for done in step.finished:
                if done.job.id >= concurrency:
                    took_ms.append((done.ended_ns - done.first_token_ns) / 1023 / 1e6)
                engine.submit(Job(asked, 1024, 1024), step.ended_ns)
                asked += 1
    return float(np.mean(took_ms))


def test_published_serving_points_are_met_within_30_percent_and_half_of_them_within_20() -> None:
    errors = [
        served_ms(roofline.law(deployment), concurrency) / published_ms - 1
        for deployment, points in PUBLISHED.values()
        for concurrency, published_ms in points.items()
    ]
    assert max(np.abs(errors)) < 0.30
    assert np.median(np.abs(errors)) < 0.20


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_prefill() -> None:
    """DeepSeek-V3 by its own shape: 61 layers, 128 heads, latent 512 + 64, keys of 192, values of 128."""
    law = replace(LAWS["DeepSeek-V3"], memory_bytes_per_s=1e30, fixed_s=0.0, link_s_per_token=0.0)
    law = replace(law, flops_per_token=0.0, sequence_s=0.0)
    context, prompt = 10_000, 4096
    decode = 61 * 128 * 2 * ((512 + 64) + 512) * context
    assert roofline.step_s(law, 1.0, context) * law.flops_per_s == pytest.approx(decode, rel=1e-9)
    prefill = 61 * 128 * 2 * (192 + 128) * prompt**2 / 2
    assert roofline.prefill_s(law, prompt, prompt) * law.flops_per_s == pytest.approx(prefill, rel=1e-9)
    expanded_again = 61 * 2 * 512 * 128 * (128 + 128) * (1024 + 2048 + 3072)
    chunked = roofline.prefill_s(law, prompt, 1024) * law.flops_per_s
    assert chunked == pytest.approx(prefill + expanded_again, rel=1e-9)


def test_attention_has_as_many_parameters_as_the_layers_of_the_published_models() -> None:
    """DeepSeek-V3: 187.1 M in each of 61 layers; Llama-3-8B: four matrices for 32, 8, 8 and 32 heads."""
    models = hardware.models()
    assert models["DeepSeek-V3"].attention_parameters == pytest.approx(61 * 187.1e6, rel=0.001)
    assert models["Llama-3.1-8B"].attention_parameters == 32 * 4096 * 128 * (32 + 8 + 8 + 32)


def test_attention_groups_copy_weights_instead_of_latents() -> None:
    plain = roofline.law(Deployment(chip="H200", chips=8, model="DeepSeek-V3", weight_bits=8))
    law = LAWS["attention groups"]
    assert law.kv_bytes_per_token == 70_272
    assert plain.kv_bytes_per_token == 8 * 70_272
    assert law.dense_weight_bytes - plain.dense_weight_bytes == pytest.approx(7 * 61 * 187.1e6, rel=0.001)
    assert roofline.kv_capacity_tokens(law) > 4 * roofline.kv_capacity_tokens(plain)
    assert law.link_s_per_token == pytest.approx(plain.link_s_per_token / 2)


def test_a_step_waits_for_the_group_of_chips_that_most_experts_are_touched_in() -> None:
    rng = np.random.default_rng(2)
    law = LAWS["attention groups"]
    for tokens in (1, 4, 16, 64):
        fullest = []
        for _ in range(200):
            touched = {int(expert) for _ in range(tokens) for expert in rng.permutation(256)[:8]}
            fullest.append(max(np.bincount([expert // 32 for expert in touched], minlength=8)) / 32)
        assert roofline.touched_expert_ratio(law, float(tokens)) == pytest.approx(np.mean(fullest), rel=0.1)
    assert roofline.touched_expert_ratio(law, 1e6) == 1.0


def test_pipeline_stages_take_as_long_as_one_stage_does_with_its_share_of_the_sequences() -> None:
    one = roofline.law(Deployment(chip="GB200", chips=8, model="DeepSeek-V3", weight_bits=8))
    two = roofline.law(
        Deployment(chip="GB200", chips=8, pipeline_stages=2, model="DeepSeek-V3", weight_bits=8)
    )
    hop_s = 20e-6 + 7168 * 2 / 900e9 * 32  # one all-reduce's latency, and 32 tokens over one link
    assert roofline.step_s(two, 64.0, 64_000.0) == pytest.approx(
        roofline.step_s(one, 32.0, 32_000.0) + hop_s, rel=1e-9
    )
    alone = roofline.step_s(one, 1.0, 1000.0) + 20e-6 + 7168 * 2 / 900e9
    assert roofline.step_s(two, 1.0, 1000.0) == pytest.approx(alone, rel=1e-9)
    assert roofline.best_batch(two) == pytest.approx(2 * roofline.best_batch(one))
    spare = 8 * (186e9 * 0.9 - 2e9)
    assert two.kv_room_bytes - one.kv_room_bytes == pytest.approx(spare)


@pytest.mark.parametrize(
    ("name", "work", "bound"),
    [
        ("Llama-3.1-70B", (1, 100, 0, 0, 0.0), "memory"),
        ("Llama-3.1-70B", (0, 0, 8192, 0, 8192**2 / 2), "compute"),
        ("Qwen3-30B-A3B", (1, 100, 0, 0, 0.0), "overhead"),
        ("Qwen3-30B-A3B", (64, 64 * 50_000, 0, 0, 0.0), "memory"),
    ],
)
def test_a_step_is_bound_by_what_most_of_it_is_spent_on(
    name: str, work: tuple[int, int, int, int, float], bound: str
) -> None:
    law = roofline.law(Deployment(chip="GB200", model=name, weight_bits=8))
    assert roofline.bound_by(law, *work) == bound
    faster = {
        "memory": replace(law, memory_bytes_per_s=2 * law.memory_bytes_per_s),
        "compute": replace(law, flops_per_s=2 * law.flops_per_s),
        "overhead": replace(law, fixed_s=law.fixed_s / 2),
    }
    steps = {cause: roofline.step_function(other)(*work) for cause, other in faster.items()}
    assert min(steps, key=lambda cause: steps[cause]) == bound
