"""The price book: sums that were published, names as they are asked and echoed, files that are refused."""

from pathlib import Path

import pytest

from tierscope import prices
from tierscope.errors import BadInputError
from tierscope.validate import validate_files

ENTRY = """
[[prices]]
models = {models}
tiers = {tiers}
input_usd_per_mtok = {input}
output_usd_per_mtok = 100.0
as_of = 2026-11-30
source = "a contract"
"""


def entry(models: str = '["demo"]', tiers: str = '["standard"]', usd: str = "7.0") -> str:
    return ENTRY.format(models=models, tiers=tiers, input=usd)


@pytest.mark.parametrize(
    ("tokens", "newer_usd", "older_usd"),
    [(260_591, 3.26, 9.77), (50_000, 0.62, 1.88), (100_000, 1.25, 3.75), (200_000, 2.50, 7.50)],
)
def test_a_context_rewritten_at_fast_rates_costs_what_was_published(
    tokens: int, newer_usd: float, older_usd: float
) -> None:
    book = prices.load()
    for model, usd in (("claude-opus-4-8", newer_usd), ("claude-opus-4-7", older_usd)):
        price = book.price(model, "fast")
        assert price is not None
        # Published to the cent, with halves either way: $0.625 as 0.62 and $1.875 as 1.88.
        assert price.cost_usd(0, 0, tokens, 0) == pytest.approx(usd, abs=0.00501)


@pytest.mark.parametrize(
    ("model", "standard", "fast"),
    [
        ("claude-fable-5-2", (8, 10, 0.20, 40), (16, 20, 0.40, 80)),
        ("claude-mythos-5-2", (8, 10, 0.20, 40), (16, 20, 0.40, 80)),
        ("claude-opus-5-5", (4, 5, 0.20, 20), (8, 10, 0.40, 40)),
        ("claude-opus-5", (5, 6.25, 0.50, 25), (10, 12.5, 1, 50)),
        ("claude-opus-4-8", (5, 6.25, 0.50, 25), (10, 12.5, 1, 50)),
        ("claude-opus-4-7", (5, 6.25, 0.50, 25), (30, 37.5, 3, 150)),
        ("claude-opus-4-6", (5, 6.25, 0.50, 25), (30, 37.5, 3, 150)),
        ("gpt-6-astra", (10, 12.5, 1, 50), (20, 25, 2, 100)),
        ("gpt-6.1-sol", (2, 2.5, 0.10, 10), (4, 5, 0.20, 20)),
        ("gpt-5.5", (5, 5, 0.50, 30), (12.5, 12.5, 1.25, 75)),  # it asks nothing extra for a write
    ],
)
def test_each_of_the_four_kinds_of_tokens_has_its_price(
    model: str, standard: tuple[float, ...], fast: tuple[float, ...]
) -> None:
    book = prices.load()
    for tier, (usd_in, usd_write, usd_read, usd_out) in (("standard", standard), ("fast", fast)):
        price = book.price(model, tier)
        assert price is not None
        costs = [price.cost_usd(*[1e6 * (place == kind) for place in range(4)]) for kind in range(4)]
        assert costs == pytest.approx([usd_in, usd_read, usd_write, usd_out])


def test_costs_add_up_over_kinds_and_requests() -> None:
    price = prices.load().price("claude-opus-5-5", "standard")
    assert price is not None
    assert price.cost_usd(1000, 50_000, 2000, 500) == pytest.approx(0.004 + 0.010 + 0.010 + 0.010)


def test_a_tier_is_found_under_the_names_it_is_asked_for_and_echoed_by() -> None:
    book = prices.load()
    assert book.price("gpt-5.5", "priority") is book.price("gpt-5.5", "fast") is not None
    assert book.price("gpt-5.5", "default") is book.price("gpt-5.5", "standard")
    assert book.price("gpt-5.5", "Default") is book.price("gpt-5.5", "standard")
    # At Anthropic "priority" is capacity bought ahead, and not the fast tier.
    assert book.price("claude-opus-5-5", "priority") is None


@pytest.mark.parametrize("name", ["gpt-5.5-2026-04-01", "openai/gpt-5.5", "openai/GPT-5.5-20260401"])
def test_a_snapshot_or_a_provider_in_the_name_changes_no_price(name: str) -> None:
    book = prices.load()
    assert book.price(name, "fast") is book.price("gpt-5.5", "fast") is not None


def test_a_model_nobody_priced_has_no_price() -> None:
    book = prices.load()
    assert book.price("gpt-5.5-mini", "fast") is None
    assert book.price("claude-opus", "standard") is None
    assert book.price("", "standard") is None


def test_the_users_entries_win_and_the_others_stay(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(entry('["gpt-5.5"]') + entry('["*"]', usd="0.5"))
    book = prices.load(mine)
    for model, usd in (("gpt-5.5", 7.0), ("demo", 0.5), ("claude-opus-5-5", 4.0)):
        price = book.price(model, "standard")
        assert price is not None
        assert price.input_usd_per_mtok == usd
    fast = book.price("gpt-5.5", "fast")
    assert fast is not None
    assert fast.input_usd_per_mtok == 12.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (entry() + entry(), "prices[1]: demo on standard is priced twice"),
        (entry('["demo", "Demo"]'), "prices[0]: Demo on standard is priced twice"),
        (entry(usd="-1.0"), "prices[0].input_usd_per_mtok: -1.0 is not allowed"),
        (entry(usd="inf"), "prices[0].input_usd_per_mtok: inf is not allowed"),
        (entry(models="[]"), "prices[0].models"),
        (entry(tiers='[""]'), "prices[0].tiers[0]"),
        (entry() + "input_usd = 3", "prices[0].input_usd: unknown key (did you mean input_usd_per_mtok?)"),
        (entry(usd="nan"), "prices[0].input_usd_per_mtok: nan is not allowed"),
        ("", "prices: is missing and has no default"),
        ("prices = []", "prices: [] is not allowed"),
        (entry().replace("as_of = 2026-11-30", ""), "prices[0].as_of: is missing"),
        (entry().replace("2026-11-30", '"soon"'), "prices[0].as_of: 'soon' is not allowed"),
    ],
)
def test_a_bad_price_file_is_one_line_with_file_key_and_value(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(BadInputError) as caught:
        prices.load(file)
    line = str(caught.value)
    assert line.startswith(f"{file}: ")
    assert words in line
    assert "\n" not in line


def test_validate_knows_price_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(entry())
    bad.write_text(entry(usd="-1.0"))
    assert validate_files([good])
    assert not validate_files([bad])
    said = capsys.readouterr().out
    assert f"{good}: a good price file" in said
    assert f"{bad}: prices[0].input_usd_per_mtok: -1.0 is not allowed" in said
