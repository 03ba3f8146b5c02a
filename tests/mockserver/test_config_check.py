"""What types cannot refuse in a profile is refused in one line: names that lead nowhere, clashing numbers."""

from pathlib import Path

import pytest

from mockserver import config
from mockserver.config_check import ENGINE_KEYS
from mockserver.hardware import Chip, Model
from tests.mockserver.small_profile import GOOD, read
from tierscope.errors import BadInputError
from tierscope.validate import validate_files

SHARING = """
[[tiers]]
name = "third"
shares = "standard"
priority = 1
"""
CACHED = """
[[tiers]]
name = "c64"
[tiers.prefix_cache]
shared = true
tokens = 64
"""


@pytest.mark.parametrize(
    ("add", "says"),
    [
        (SHARING.replace('"standard"', '"nobody"'), "shares: 'nobody' is not a tier; other tiers: standard"),
        (SHARING.replace('"standard"', '"third"'), "tiers[2].shares: 'third' is the tier itself"),
        (SHARING + "max_batch = 9", "tiers[2].max_batch: is not allowed beside shares"),
        (SHARING + "replicas = 2", "tiers[2].replicas: is not allowed beside shares"),
        (SHARING + "deployment = { kv_bits = 8 }", "tiers[2].deployment: is not allowed beside shares"),
        (SHARING + SHARING.replace("third", "fourth").replace("standard", "third"),
         "tiers[3].shares: 'third' is not allowed; that tier has no engine of its own but shares 'standard'"),
        ("downgrade_ratio = 0.5", "tiers[1].downgrade_ratio: 0.5 is not allowed without downgrade_to"),
        ('[tiers.limits]\nrequests_per_min = 9\nover = "downgrade"',
         'tiers[1].limits.over: "downgrade" is not allowed without downgrade_to'),
        ('downgrade_to = "standard"', "tiers[1].downgrade_to: 'standard' has no effect"),
        ('downgrade_to = "slow"\ndowngrade_ratio = 1.0', "tiers[1].downgrade_to: 'slow' is not a tier"),
        ('downgrade_to = "fast"\ndowngrade_ratio = 1.0', "tiers[1].downgrade_to: 'fast' is the tier itself"),
        ('speeds = ["fast", "fast"]', "tiers: speeds: 'fast' is there twice"),
        ('model_names = ["mock"]', "tiers[1].model_names: 'mock' is not allowed; it is the server's"),
        ("[tiers.limits]", "tiers[1].limits: limits nothing; give one of requests_per_min"),
        ("[tiers.limits]\nrequests_per_min = 6\nburst_s = 1", "holds 0.1 and could never admit one request"),
        ("[tiers.limits]\noutput_tokens_per_min = 100",
         "limits.output_tokens_per_min: 100 is not allowed; a full bucket of burst_s (60 s) holds 100"),
        ("[tiers.limits]\ninput_tokens_per_min = 0.5", "holds 0.5 and could never admit one token"),
        ("kv_tokens = 90000000", "tiers[1].kv_tokens: 90000000 is not allowed; expected at most the"),
        ("kv_tokens = 8000", "max_context_tokens: 8192 is not allowed; expected at most the KV capacity of"),
        ("batch_wait_s = 1.0", 'tiers[1].batch_wait_s: 1 has no effect; it needs batching = "static"'),
        ("step_tokens = 32\n[tiers.speculation]", "expected more than 32, max_batch times 4 with its draft"),
        ("[tiers.speculation]\nacceptance_ratio = 1.0", "speculation.acceptance_ratio: 1.0 is not allowed"),
        ("[tiers.prefix_cache]\nshared = true", "prefix_cache.tokens: is missing; shared = true needs it"),
        ("[tiers.prefix_cache]\nblock_tokens = 64\ntokens = 32", "expected at most the cache's 32"),
        (CACHED + CACHED.replace("64", "65"), "tokens 64 and block_tokens 16 are not allowed; the cache"),
        ('[[faults]]\nkind = "cut"\ntiers = ["slow"]', "faults[0].tiers: 'slow' is not a tier; tiers: "),
        ('[[faults]]\nkind = "cut"\nfrom_s = 5\nuntil_s = 5', "faults[0].until_s: 5 is not allowed; "),
        ('[[faults]]\nkind = "crash"', "faults[0].kind: 'crash' is not allowed; expected one of cut, delay"),
        ("[wire]\nping_s = 0", "wire.ping_s: 0 is not allowed"),
    ],
)  # fmt: skip
def test_what_tiers_say_of_each_other_must_be_true(tmp_path: Path, add: str, says: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read(tmp_path, GOOD + add)
    line = str(refused.value)
    assert says in line
    assert line.startswith(str(tmp_path / "server.toml"))
    assert "\n" not in line


def test_downgrades_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    circle = GOOD.replace(
        'name = "standard"', 'name = "standard"\ndowngrade_to = "fast"\ndowngrade_ratio = 0.5'
    )
    read(tmp_path, circle)
    with pytest.raises(BadInputError, match=r"leads in a circle: standard -> fast -> standard"):
        read(tmp_path, circle + 'downgrade_to = "standard"\ndowngrade_ratio = 0.1')


def test_a_tier_that_shares_an_engine_has_its_deployment(tmp_path: Path) -> None:
    small = read(tmp_path, GOOD + SHARING.replace('"standard"', '"fast"'))
    assert config.deployment_of(small, small.tiers[2]) == config.deployment_of(small, small.tiers[1])


def test_every_key_of_an_engine_is_refused_beside_shares() -> None:
    """All keys between ``priority`` and ``deployment``, as the contract says, in the order of the file."""
    fields = list(config.TierConfig.__struct_fields__)
    assert list(ENGINE_KEYS) == fields[fields.index("priority") + 1 : fields.index("deployment") + 1]


def test_a_cache_may_be_shared_within_an_engine_without_a_size(tmp_path: Path) -> None:
    cached = GOOD + "[tiers.prefix_cache]\nshared = true\n" + SHARING.replace('"standard"', '"fast"')
    assert read(tmp_path, cached).tiers[1].prefix_cache is not None


def test_memory_that_may_run_out_holds_more_hidden_sequences(tmp_path: Path) -> None:
    full = GOOD.replace("= 64\ntarget_batch = 32", "= 500\ntarget_batch = 260")
    with pytest.raises(BadInputError, match="its hidden load needs"):
        read(tmp_path, full)
    read(tmp_path, full.replace("target_batch = 260", 'target_batch = 260\nwhen_kv_is_full = "preempt"'))


OWN = """
[[chips]]
name = "mine"
bf16_flops_per_s = 1e15
hbm_bytes = 100e9
memory_bytes_per_s = 5e12
[[models]]
name = "small"
parameters = 1e9
active_parameters = 1e9
layers = 10
hidden = 1024
query_heads = 8
kv_heads = 8
head_dim = 128
"""


def test_a_profile_may_name_chips_and_models_of_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "hardware.toml").write_text(OWN)
    text = GOOD.replace('chip = "H100"', 'hardware_files = ["hardware.toml"]\nchip = "mine"').replace(
        'chip = "H200"', 'model = "small"'
    )
    served = read(tmp_path, text)
    standard, fast = (config.deployment_of(served, tier) for tier in served.tiers)
    assert isinstance(standard.chip, Chip)
    assert isinstance(fast.model, Model)
    assert (standard.chip.name, standard.model, fast.model.name) == ("mine", "Llama-3.1-8B", "small")
    with pytest.raises(BadInputError, match=r"tiers\[1\].deployment.hardware_files: is not allowed"):
        read(tmp_path, text.replace("kv_bits = 8", 'kv_bits = 8, hardware_files = ["other.toml"]'))
    with pytest.raises(BadInputError, match=r"nowhere\.toml: cannot be read"):
        read(tmp_path, text.replace("hardware.toml", "nowhere.toml"))


def test_validate_knows_hardware_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "hardware.toml", tmp_path / "taken.toml"
    good.write_text(OWN)
    bad.write_text(OWN.replace('"mine"', '"H100"'))
    assert validate_files([good])
    assert not validate_files([bad])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{good}: a good hardware file"
    assert said[1].startswith(f"{bad}: chips[0]")
    assert len(said) == 2
