"""Profiles: those that ship are what they say, and what cannot be is refused in one line."""

from pathlib import Path

import pytest

from mockserver import config, roofline
from mockserver.explain import explain
from tests.mockserver.small_profile import GOOD, read
from tierscope.errors import BadInputError


def test_every_shipped_profile_can_be_loaded_by_its_name() -> None:
    assert {"fast-tier", "no-change"} <= set(config.shipped())
    for name in config.shipped():
        assert config.load(name).name == name


def test_a_seed_given_overrides_the_files() -> None:
    assert config.load("fast-tier", seed=99).seed == 99


def test_the_two_tiers_of_no_change_differ_in_nothing_but_their_names() -> None:
    standard, fast = config.load("no-change").tiers
    same = [field for field in standard.__struct_fields__ if field not in ("name", "service_tiers")]
    assert [getattr(standard, field) for field in same] == [getattr(fast, field) for field in same]


def test_a_tier_may_override_the_deployment(tmp_path: Path) -> None:
    small = read(tmp_path, GOOD)
    standard, fast = (config.deployment_of(small, tier) for tier in small.tiers)
    assert (standard.chip, standard.kv_bits) == ("H100", 16)
    assert (fast.chip, fast.kv_bits, fast.model) == ("H200", 8, "Llama-3.1-8B")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("max_batch = 64", "max_batch = 0", "tiers[0].max_batch: 0 is not allowed"),
        ("target_batch = 32", "target_batch = 65", "expected at most max_batch (64)"),
        ("max_batch = 64", "max_batch = 64\nstep_tokens = 64", "tiers[0].step_tokens: 64 is not allowed"),
        ("max_batch = 64", "max_batch = 64\nnoise_ratio = 0.9", "tiers[0].noise_ratio: 0.9 is not allowed"),
        ("max_context_tokens = 8192", "max_context_tokens = 9000000", "expected at most the KV capacity"),
        ("max_context_tokens = 8192", "max_context_tokens = 128", "default_output_tokens: 128"),
        ("max_context_tokens = 8192", "max_context_tokens = 9\ningest_s = -1", "ingest_s: -1 is not allowed"),
        ('name = "fast"', 'name = "fast\\n"', r"tiers[1].name: 'fast\n' is not allowed"),
        ('"priority", "fast"', '"fast\\n"', r"tiers[1].service_tiers[0]: 'fast\n' is not allowed"),
        ('name = "fast"', 'name = "standard"', "tiers: name: 'standard' is there twice"),
        ('"priority", "fast"', '"default"', "tiers: service_tiers: 'default' is there twice"),
        ("kv_bits = 8", "kv_bits = 7", "tiers[1].deployment: kv_bits: 7 is not allowed"),
        ('chip = "H200"', 'chip = "H2000"', "tiers[1].deployment.chip: 'H2000' is not known"),
        ("target_batch = 32", "hidden = { prompt_tokens = 6000 }\ntarget_batch = 9", "at most half"),
        ("= 32", "= 32\nhidden = { prompt_tokens = 4e3, output_tokens = 9 }", "prefilling the hidden prompt"),
        ("max_batch = 64\ntarget_batch = 32", "max_batch = 999\ntarget_batch = 999", "its hidden load needs"),
        ("kv_bits = 8", "kv_bits = 8, chips = 2, link_bytes_per_s = 1e-300", "a full step would take"),
        ("max_batch = 64", "max_bacth = 64", "unknown key (did you mean max_batch?)"),
        ("[[tiers]]", "[[tiers", "is not valid TOML"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(BadInputError) as refused:
        read(tmp_path, GOOD.replace(old, new, 1))
    line = str(refused.value)
    assert says in line
    assert line.startswith(str(tmp_path / "server.toml"))
    assert "\n" not in line


def test_an_unknown_profile_is_refused_with_the_names_of_those_that_ship() -> None:
    with pytest.raises(BadInputError, match=r"no such file or shipped profile; shipped: .*fast-tier"):
        config.load("fastest")
    with pytest.raises(BadInputError, match="cannot be read"):
        config.load("nowhere/there.toml")


def test_an_explanation_is_the_law_at_the_target(tmp_path: Path) -> None:
    small = read(tmp_path, GOOD)
    standard, fast = explain(small).tiers
    law = roofline.law(small.deployment)
    context = 32 * config.mean_context_tokens(small.tiers[0])
    assert standard.step_s == roofline.step_s(law, 32.0, context)
    assert standard.tokens_per_s == pytest.approx(1 / standard.step_s)
    assert standard.slope_s > 0
    assert fast.batch == 1
    assert fast.kv_capacity_tokens > 2 * standard.kv_capacity_tokens  # H200 at half the bits
    text = str(explain(small))
    assert text.splitlines()[1].split() == ["standard", "fast"]
    assert f"{standard.step_s * 1e3:.2f}" in text
