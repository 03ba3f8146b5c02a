"""Tables of chips and models: those that come with tierscope, and those of a user's own file. Pure.

Both have one form, ``[[chips]]`` and ``[[models]]`` in TOML (``chips.toml``, ``models.toml``). A deployment
names files of the user's own in ``hardware_files``, by paths that start where the file that says so lies.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from mockserver.shapes import Chip, Model, check_model
from tierscope import typedtoml
from tierscope.errors import BadInputError


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    chips: Annotated[tuple[Chip, ...], Meta(max_length=1000)] = ()
    models: Annotated[tuple[Model, ...], Meta(max_length=1000)] = ()


@dataclass(frozen=True, slots=True)
class Tables:
    """Chips and models by name. Nobody changes them: ``with_files`` makes new ones."""

    chips: dict[str, Chip]
    models: dict[str, Model]

    def chip(self, name: str, *, where: str) -> Chip:
        """The chip of that name; BadInputError, with the names there are, if there is none."""
        if name not in self.chips:
            raise BadInputError(_unknown(where, name, self.chips))
        return self.chips[name]

    def model(self, name: str, *, where: str) -> Model:
        """The model of that name; BadInputError, with the names there are, if there is none."""
        if name not in self.models:
            raise BadInputError(_unknown(where, name, self.models))
        return self.models[name]


@cache
def shipped() -> Tables:
    """The tables that come with tierscope."""
    empty = Tables({}, {})
    for name in ("chips.toml", "models.toml"):
        text = (resources.files("mockserver") / name).read_text(encoding="utf-8")
        empty = _added(empty, typedtoml.parse(text, _File, where=name), where=name)
    return empty


def with_files(files: Iterable[str], *, beside: Path) -> Tables:
    """The shipped tables and those of ``files``, whose relative paths start in the folder ``beside``.

    Raises BadInputError, in one line, for a file that cannot be read, a shape that cannot be, or a name that
    is taken: a chip that differs from a shipped one needs a name of its own.
    """
    tables = shipped()
    for file in files:
        path = beside / file
        tables = _added(tables, typedtoml.load(path, _File), where=str(path))
    return tables


def _added(tables: Tables, file: _File, *, where: str) -> Tables:
    chips, models = dict(tables.chips), dict(tables.models)
    for number, chip in enumerate(file.chips):
        _refuse_taken(chip.name, chips, f"{where}: chips[{number}]")
        chips[chip.name] = chip
    for number, model in enumerate(file.models):
        place = f"{where}: models[{number}]"
        _refuse_taken(model.name, models, place)
        check_model(model, where=place)
        models[model.name] = model
    return Tables(chips, models)


def _refuse_taken(name: str, names: Iterable[str], place: str) -> None:
    if name in names:
        raise BadInputError(f"{place}.name: {name!r} is not allowed; expected a name that is not taken yet")


def _unknown(place: str, name: str, allowed: Iterable[str]) -> str:
    return f"{place}: {name!r} is not known; known: {', '.join(allowed)}; or describe it as a table"
