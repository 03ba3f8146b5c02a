"""What a request costs: a dated price book, read from TOML. Pure, shared by the rooms like ``typedtoml``.

The shipped book is ``prices.toml`` beside this file; a user's file is laid over it. No price is ever guessed:
a model or tier that no entry names has none.
"""

import re
from dataclasses import dataclass
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from tierscope import typedtoml
from tierscope.errors import BadInputError

ANY_MODEL = "*"
"""Stands for every model that no other entry names, for a server of one's own."""

UsdPerMtok = Annotated[float, Meta(ge=0, le=1_000_000)]
Named = Annotated[str, Meta(min_length=1, max_length=200)]

_SHIPPED = resources.files("tierscope") / "prices.toml"
_SNAPSHOT = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2})\Z")  # claude-opus-5-5-20261101, gpt-5.5-2026-04-01


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a price file: $ per million tokens of some models on one tier."""

    models: Annotated[tuple[Named, ...], Meta(min_length=1, max_length=1000)]
    """Names and aliases. Dated snapshots of a name and a provider before it (``openai/``) need none."""
    tiers: Annotated[tuple[Named, ...], Meta(min_length=1, max_length=100)]
    """Every name under which the tier is asked for or echoed."""
    input_usd_per_mtok: UsdPerMtok
    output_usd_per_mtok: UsdPerMtok
    cache_write_usd_per_mtok: UsdPerMtok | None = None
    """None: written tokens cost what input costs."""
    cache_read_usd_per_mtok: UsdPerMtok | None = None
    """None: read tokens cost what input costs."""
    as_of: date
    source: Named
    note: str = ""

    def cost_usd(
        self,
        uncached_input_tokens: float,
        cache_read_tokens: float,
        cache_write_tokens: float,
        output_tokens: float,
    ) -> float:
        """Dollars for one request or the sum of many; the four counts exclude one another."""
        full = self.input_usd_per_mtok
        read = full if self.cache_read_usd_per_mtok is None else self.cache_read_usd_per_mtok
        write = full if self.cache_write_usd_per_mtok is None else self.cache_write_usd_per_mtok
        in_millionths = (
            uncached_input_tokens * full
            + cache_read_tokens * read
            + cache_write_tokens * write
            + output_tokens * self.output_usd_per_mtok
        )
        return in_millionths / 1e6


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prices: Annotated[tuple[Price, ...], Meta(min_length=1, max_length=10_000)]


@dataclass(frozen=True, slots=True)
class Book:
    """Prices by (model, tier), names in lower case."""

    entries: dict[tuple[str, str], Price]

    def price(self, model: str, tier: str) -> Price | None:
        """Look up what a model costs on a tier, by any of its names; None if no entry tells.

        A name that stands in the book is taken as it is, then without its date, then without its provider;
        an entry for any model comes last.
        """
        for name in _names(model):
            if found := self.entries.get((name, tier.lower())):
                return found
        return None


def load(path: Path | None = None) -> Book:
    """Read the shipped book, with the entries of the file at ``path`` laid over it.

    Raises BadInputError, in one line, if the file is no price file or prices something twice.
    """
    shipped = _read(_SHIPPED.read_text(encoding="utf-8"), where="prices.toml")
    if path is None:
        return Book(shipped)
    return Book(shipped | check(path))


def check(path: Path) -> dict[tuple[str, str], Price]:
    """Read one price file by itself. Raises BadInputError like ``load``."""
    return _by_name(typedtoml.load(path, _File), where=str(path))


def _read(text: str, *, where: str) -> dict[tuple[str, str], Price]:
    return _by_name(typedtoml.parse(text, _File, where=where), where=where)


def _by_name(file: _File, *, where: str) -> dict[tuple[str, str], Price]:
    found: dict[tuple[str, str], Price] = {}
    for place, price in enumerate(file.prices):
        for model in price.models:
            for tier in price.tiers:
                key = (model.lower(), tier.lower())
                if key in found:
                    raise BadInputError(
                        f"{where}: prices[{place}]: {model} on {tier} is priced twice; each may appear once"
                    )
                found[key] = price
    return found


def _names(model: str) -> list[str]:
    """Names a model may stand under in a book, the most exact first, each once."""
    full = model.lower()
    bare = full.rpartition("/")[2]
    names = [full, _SNAPSHOT.sub("", full), bare, _SNAPSHOT.sub("", bare), ANY_MODEL]
    return list(dict.fromkeys(names))
