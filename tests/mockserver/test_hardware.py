"""Tables of chips and models, and deployments read from files or refused in one line."""

from pathlib import Path

import pytest

from mockserver import hardware, tables
from mockserver.hardware import Deployment
from tierscope.errors import BadInputError


def read(tmp_path: Path, text: str) -> Deployment:
    path = tmp_path / "hardware.toml"
    path.write_text(text)
    return hardware.load_deployment(path)


def test_every_chip_says_where_its_numbers_come_from() -> None:
    assert len(hardware.chips()) >= 13
    assert all(len(chip.source) > 10 for chip in hardware.chips().values())


def test_low_precision_doubles_the_dense_peak_where_a_chip_has_it() -> None:
    for chip in hardware.chips().values():
        if chip.fp8_flops_per_s is not None:
            assert chip.fp8_flops_per_s == pytest.approx(2 * chip.bf16_flops_per_s, rel=0.03)
        if chip.fp4_flops_per_s is not None and chip.fp8_flops_per_s is not None:
            faster = 3 if chip.name == "B300" else 2  # Blackwell Ultra gave up fp64 for fp4
            assert chip.fp4_flops_per_s == pytest.approx(faster * chip.fp8_flops_per_s, rel=0.03)


def test_experts_and_what_is_active_of_them_add_up_to_the_published_totals() -> None:
    """Active parameters = the dense rest + k of E experts, within what published totals are rounded to."""
    for model in hardware.models().values():
        if model.experts:
            rest = model.parameters - model.expert_parameters
            active = rest + model.expert_parameters * model.experts_per_token / model.experts
            embedding = 200_000 * model.hidden  # some cards count the input embedding, some do not
            rounding = 0.05 * model.active_parameters + 0.002 * model.parameters + embedding
            assert active == pytest.approx(model.active_parameters, abs=rounding), model.name


def test_a_profile_serves_as_a_hardware_file(tmp_path: Path) -> None:
    text = '[deployment]\nchip = "H100"\nmodel = "Llama-3.1-8B"\n[[tiers]]\nname = "whatever"\n'
    assert read(tmp_path, text) == Deployment(chip="H100", model="Llama-3.1-8B")


def test_a_file_without_a_deployment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="deployment: is missing"):
        read(tmp_path, "x = 1")


def test_a_chip_and_a_model_of_ones_own_are_described_in_place(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        """
        [deployment.chip]
        name = "next year's"
        bf16_flops_per_s = 5e15
        hbm_bytes = 300e9
        memory_bytes_per_s = 20e12
        [deployment.model]
        name = "mine"
        parameters = 12e9
        active_parameters = 12e9
        layers = 40
        hidden = 5120
        query_heads = 32
        kv_heads = 8
        head_dim = 128
        """,
    )
    assert hardware.chip_of(deployment).memory_bytes_per_s == 20e12
    assert hardware.weight_bytes(deployment) == 24e9


def test_weights_are_computed_with_in_their_own_precision_where_the_chip_has_it() -> None:
    peaks = {
        chip: hardware.peak_flops_per_s(Deployment(chip=chip, model="Llama-3.1-8B", weight_bits=8))
        for chip in ("A100-80", "H100")
    }
    assert peaks == {"A100-80": 312e12, "H100": 1979e12}


H100 = 'chip = "H100"\nmodel = "Llama-3.1-8B"\n'
OWN = """chip = "H100"
[deployment.model]
name = "mine"
parameters = 8e9
active_parameters = 8e9
layers = 32
hidden = 4096
query_heads = 32
head_dim = 128
"""
EXPERTS = "experts = 8\nexperts_per_token = 2\nexpert_width = 14336\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('chip = "H100"', "deployment.model: is missing"),
        (H100.replace("H100", "H1000"), "deployment.chip: 'H1000' is not known; known: A100-80"),
        (H100.replace("Llama-3.1-8B", "Llama"), "deployment.model: 'Llama' is not known"),
        (H100 + "chips = 0", "deployment.chips: 0 is not allowed"),
        (H100 + "chpis = 2", "unknown key (did you mean chips?)"),
        (H100 + "mfu_ratio = 1.5", "deployment.mfu_ratio: 1.5 is not allowed"),
        (H100 + "weight_bits = 5", "deployment.weight_bits: 5 is not allowed"),
        (H100.replace("8B", "405B"), "810 GB of weights do not fit into 70 GB"),
        (H100.replace("H100", "A100-80") + "compute_bits = 8", "A100-80 has no such arithmetic"),
        (H100.replace("H100", "Trainium2") + "chips = 2", "link_bytes_per_s: is missing"),
        (OWN, "exactly one of kv_heads and latent_dim"),
        (OWN + "kv_heads = 8\nexperts = 8", "experts, experts_per_token and expert_width go together"),
        (OWN + "kv_heads = 8\nwindow_layers = 40", "window_layers: 40 is not allowed"),
        (OWN + "kv_heads = 8\nwindow_layers = 32\nwindow_tokens = 9", "window_layers: 32 is not allowed"),
        (OWN + "kv_heads = 8\n" + EXPERTS, "deployment.model.parameters: 8e+09 is not allowed"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read(tmp_path, f"[deployment]\n{text}")
    line = str(refused.value)
    assert says in line
    assert line.startswith(str(tmp_path / "hardware.toml"))
    assert "\n" not in line


OWN_TABLES = """
[[chips]]
name = "next year's"
bf16_flops_per_s = 5e15
hbm_bytes = 300e9
memory_bytes_per_s = 20e12
[[models]]
name = "mine"
parameters = 12e9
active_parameters = 12e9
layers = 40
hidden = 5120
query_heads = 32
kv_heads = 8
head_dim = 128
"""
NAMED = 'hardware_files = ["tables/own.toml"]\nchip = "next year\'s"\nmodel = "mine"\n'


def read_with_tables(tmp_path: Path, tables: str, deployment: str) -> Deployment:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "own.toml").write_text(tables)
    return read(tmp_path, f"[deployment]\n{deployment}")


def test_chips_and_models_of_a_users_own_file_are_named_like_ours(tmp_path: Path) -> None:
    deployment = read_with_tables(tmp_path, OWN_TABLES, NAMED)
    assert hardware.chip_of(deployment).memory_bytes_per_s == 20e12
    assert hardware.weight_bytes(deployment) == 24e9
    mixed = NAMED.replace("next year's", "H100").replace('"tables', f'"{tmp_path}/tables')
    assert hardware.chip_of(read(tmp_path, f"[deployment]\n{mixed}")).name == "H100"


def test_a_tier_may_name_what_is_in_the_users_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN_TABLES)
    known = tables.with_files(["own.toml"], beside=tmp_path)
    keys = hardware.described_keys({"chip": "next year's", "model": "Llama-3.1-8B", "chips": 2}, known)
    assert keys == {"chip": known.chips["next year's"], "model": "Llama-3.1-8B", "chips": 2}
    assert hardware.described_keys({"chip": "nobody's"}, known) == {"chip": "nobody's"}
    assert "next year's" not in tables.shipped().chips


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("next year's", "H100", "chips[0].name: 'H100' is not allowed; expected a name that is not taken"),
        ("mine", "Kimi-K2", "models[0].name: 'Kimi-K2' is not allowed"),
        ("kv_heads = 8", "", "models[0]: give exactly one of kv_heads and latent_dim"),
        ("hbm_bytes = 300e9", "hbm_bytes = -1", "chips[0].hbm_bytes: -1"),
        ("[[models]]", "[[model]]", "unknown key (did you mean models?)"),
        ("kv_heads = 8", "kv_heads = 8\nrope_dim = 64", "models[0].rope_dim: 64 is not allowed"),
    ],
)
def test_a_file_of_own_hardware_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(BadInputError) as refused:
        read_with_tables(tmp_path, OWN_TABLES.replace(old, new), NAMED)
    line = str(refused.value)
    assert says in line
    assert line.startswith(str(tmp_path / "tables" / "own.toml"))
    assert "\n" not in line


def test_a_file_of_own_hardware_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"gone\.toml: cannot be read"):
        read(tmp_path, f'[deployment]\nhardware_files = ["gone.toml"]\n{H100}')


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("chips = 4\nattention_data_parallel = 3", "attention_data_parallel: 3 is not allowed"),
        ("chips = 4\nexpert_parallel = 4", "expert_parallel: 4 is not allowed; Llama-3.1-8B has 0 experts"),
        ("pipeline_stages = 33", "pipeline_stages: 33 is not allowed; Llama-3.1-8B has 32 layers"),
        ("chips = 8\nattention_data_parallel = 0", "attention_data_parallel: 0 is not allowed"),
    ],
)
def test_parallelism_that_cannot_be_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read(tmp_path, f"[deployment]\n{H100}{text}")
    assert says in str(refused.value)


def test_what_is_not_in_experts_may_have_a_precision_of_its_own() -> None:
    """gpt-oss-120b as released: 114.7e9 weights of experts in 4 bits, 2.1e9 others in 16."""
    deployment = Deployment(chip="H100", model="gpt-oss-120b", weight_bits=4, dense_weight_bits=16)
    assert hardware.weight_bytes(deployment) == pytest.approx(114.66e9 / 2 + 2.14e9 * 2, rel=0.01)
