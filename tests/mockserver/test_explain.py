"""What ``serve --explain`` prints: the law's own numbers, in lines that fit a terminal."""

import re
from pathlib import Path

import pytest

from mockserver import config, economics, roofline
from mockserver.explain import Explanation, explain

PROFILE = """
name = "own"
max_context_tokens = 16384
[deployment]
chip = "H100"
chips = 4
model = "Llama-3.1-70B"
{more}
[[tiers]]
name = "standard"
target_batch = 32
max_batch = 128
[[tiers]]
name = "fast"
max_batch = 8
[[tiers]]
name = "cheap"
shares = "standard"
priority = -1
"""


def read(tmp_path: Path, more: str = "") -> Explanation:
    path = tmp_path / "own.toml"
    path.write_text(PROFILE.format(more=more))
    return explain(config.load(str(path)))


@pytest.mark.parametrize("name", config.shipped())
def test_every_shipped_profile_is_told_in_100_columns(name: str) -> None:
    told = explain(config.load(name))
    lines = str(told).splitlines()
    assert max(len(line) for line in lines) <= 100
    for tier in told.tiers:
        assert sum(tier.tier in line.split() for line in lines) >= 1


def test_floor_best_batch_and_capacity_stand_in_the_text(tmp_path: Path) -> None:
    told = read(tmp_path)
    law = roofline.law(config.load(str(tmp_path / "own.toml")).deployment)
    text = str(told)
    for label, value in (
        ("shortest step", f"{roofline.floor_s(law) * 1e3:.2f}"),
        ("best batch", f"{roofline.best_batch(law):,.0f}"),
        ("at the peaks", "295"),
        ("KV capacity", f"{roofline.kv_capacity_tokens(law):,}"),
        ("memory-bound at any batch", f"{economics.context_where_kv_reads_like_compute(law):,.0f}"),
    ):
        line = next(line for line in text.splitlines() if label in line)
        assert value in line.split()


def test_slopes_are_what_another_sequence_and_longer_contexts_add(tmp_path: Path) -> None:
    told = read(tmp_path).tiers[0]
    law = roofline.law(config.load(str(tmp_path / "own.toml")).deployment)
    context = told.context_tokens
    assert told.slope_s == pytest.approx(roofline.step_s(law, 33.0, 33 * context) - told.step_s)
    assert told.context_slope_s == pytest.approx(
        roofline.step_s(law, 32.0, 32 * (context + 1000)) - told.step_s
    )


def test_the_cost_of_a_token_falls_with_the_batch_as_the_law_has_it(tmp_path: Path) -> None:
    told = read(tmp_path)
    law = roofline.law(config.load(str(tmp_path / "own.toml")).deployment)
    (table,) = told.costs  # the tiers differ in nothing that costs
    assert table.tiers == ("standard", "fast")
    assert [row.batch for row in table.rows] == [1, 2, 4, 8, 16, 32, 64, 128]
    costs = [row.chip_s_per_mtok for row in table.rows]
    assert costs == sorted(costs, reverse=True)
    for row in table.rows:
        cost = economics.output_cost(law, float(row.batch), table.context_tokens)
        assert row.chip_s_per_mtok == pytest.approx(cost * 1e6)
        shares = row.weights_ratio + row.kv_ratio + row.compute_ratio + row.overhead_ratio
        assert shares == pytest.approx(1)
    at_target = next(row for row in table.rows if row.batch == 32)
    assert at_target.chip_s_per_mtok == pytest.approx(told.tiers[0].output_chip_s_per_mtok)


def test_the_largest_batch_of_the_table_fits_the_memory(tmp_path: Path) -> None:
    text = PROFILE.format(more="").replace("max_batch = 128", "max_batch = 100000")
    (tmp_path / "own.toml").write_text(text)
    loaded = config.load(str(tmp_path / "own.toml"))
    table = explain(loaded).costs[0]
    most = table.rows[-1].batch
    capacity = roofline.kv_capacity_tokens(roofline.law(loaded.deployment))
    assert most * table.context_tokens <= capacity < (most + 1) * table.context_tokens


def test_a_chips_price_puts_dollars_beside_chip_seconds(tmp_path: Path) -> None:
    assert "$" not in str(read(tmp_path))
    told = read(tmp_path, "usd_per_chip_hour = 3.6")
    row = told.costs[0].rows[0]
    line = next(line for line in str(told).splitlines() if re.match(r"\s+1\s", line))
    assert (
        line.split()[-1] == f"{row.chip_s_per_mtok / 1000:.3f}"
    )  # 3.6 dollars an hour are 0.1 cent a second


def test_speculation_brings_more_tokens_for_a_step_of_the_same_weights() -> None:
    plain, drafting = explain(config.load("speculation")).tiers
    assert drafting.tokens_per_step == pytest.approx((1 - 0.7**4) / 0.3)
    assert drafting.step_s > plain.step_s
    assert drafting.tokens_per_s == pytest.approx(drafting.tokens_per_step / drafting.step_s)
    tables = explain(config.load("speculation")).costs
    at_target = next(row for row in tables[1].rows if row.batch == drafting.batch)
    assert at_target.tokens_per_s == pytest.approx(drafting.tokens_per_s, rel=1e-3)


def test_a_tier_that_shares_an_engine_is_told_by_that_engine(tmp_path: Path) -> None:
    standard, _, cheap = read(tmp_path).tiers
    assert (cheap.batch, cheap.step_s) == (standard.batch, standard.step_s)
