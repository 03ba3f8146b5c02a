"""docs/profiles.md is true: its examples are profiles, its tables have every key, default and bound."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from mockserver import config
from mockserver.hardware import Deployment
from mockserver.server_config import ServerConfig
from mockserver.tier_config import HiddenLoad, PrefixCache, Price, RateLimits, Speculation, TierConfig
from mockserver.wire_config import Fault, Wire
from tierscope import typedtoml

TEXT = (Path(__file__).parent.parent.parent / "docs" / "profiles.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
PARTS: dict[str, type[msgspec.Struct]] = {
    "## The server": ServerConfig,
    "## `[deployment]`": Deployment,
    "### Whom a tier serves": TierConfig,
    "### `hidden`": HiddenLoad,
    "### `speculation`": Speculation,
    "### `prefix_cache`": PrefixCache,
    "### `limits`": RateLimits,
    "### `price`": Price,
    "## `[wire]`": Wire,
    "## `[[faults]]`": Fault,
}
DEPLOYMENT = '[deployment]\nchip = "H100"\nmodel = "Llama-3.1-8B"\n'
TIERS = '[[tiers]]\nname = "standard"\n[[tiers]]\nname = "fast"\n'


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Key → default and what is allowed, of the first table below a heading."""
    below = TEXT[TEXT.index(f"\n{heading}") + 1 :].split("\n| key |", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in below.split("\n")[2:]]
    return {key.strip("`"): (default, allowed) for key, default, allowed, _ in cells}


def number(text: str) -> float:
    digits = text.replace(",", "")
    return int(digits) if digits.isdecimal() else float(digits)


def bounds(kind: Any) -> set[tuple[str, float]]:
    names = ("ge", "gt", "le", "lt")
    return {(name, getattr(kind, name)) for name in names if getattr(kind, name) is not None}


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_good_profile(example: str) -> None:
    before = "" if example.startswith("name") else 'name = "example"\n'
    parts = [
        before,
        "" if "[deployment" in example else DEPLOYMENT,
        "" if "[[tiers]]" in example else TIERS,
        example,
    ]
    served = typedtoml.parse("".join(parts), ServerConfig, where="docs/profiles.md")
    config.check(served, where="docs/profiles.md")


def test_every_profile_that_ships_is_told_of_and_no_other() -> None:
    told = TEXT.split("## Profiles that ship", 1)[1].split("## The server", 1)[0]
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", told, re.MULTILINE)) == set(config.shipped())


@pytest.mark.parametrize(("heading", "part"), PARTS.items())
def test_every_key_is_told_of_with_its_default(heading: str, part: type[msgspec.Struct]) -> None:
    told = rows(heading)
    fields = inspect.type_info(part).fields  # type: ignore[attr-defined]
    assert sorted(told) == sorted(field.encode_name for field in fields)
    for field in fields:
        default, _ = told[field.encode_name]
        if field.required:
            assert default == "required", field.encode_name
        elif default:
            assert tomllib.loads(f"value = {default.strip('`')}")["value"] == field.default, field.encode_name
        else:  # nothing, or tables of which each has its own
            assert field.default in (None, (), Wire(), HiddenLoad(), msgspec.NODEFAULT), field.encode_name


@pytest.mark.parametrize(("heading", "part"), PARTS.items())
def test_every_bound_is_told_of(heading: str, part: type[msgspec.Struct]) -> None:
    told = rows(heading)
    for field in inspect.type_info(part).fields:  # type: ignore[attr-defined]
        _, allowed = told[field.encode_name]
        kinds = [each for each in getattr(field.type, "types", (field.type,)) if each != inspect.NoneType()]
        kind = kinds[0]
        if isinstance(kind, inspect.LiteralType):
            assert set(re.findall(r"`(.+?)`", allowed)) == {str(value) for value in kind.values}
        elif isinstance(kind, inspect.IntType | inspect.FloatType):
            match = re.fullmatch(r"(over )?(\S+) to (under )?(\S+)", allowed)
            assert match is not None, field.encode_name
            lowest = ("gt" if match[1] else "ge", number(match[2]))
            highest = ("lt" if match[3] else "le", number(match[4]))
            assert {lowest, highest} == bounds(kind), field.encode_name
