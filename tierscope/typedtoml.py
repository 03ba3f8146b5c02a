"""TOML files read into typed structs, with one clear line for whatever is wrong with them.

Plans, server profiles and price files are all read here, so that they are all refused in the same words:
``FILE: KEY: VALUE is not allowed; expected WHAT``. The module is pure and imports no room.
"""

import difflib
import re
import tomllib
from datetime import date, time
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tierscope.errors import BadInputError

T = TypeVar("T")

_MOST_SHOWN = 120
"""Characters of a value or a name that an error repeats."""

_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<key>.*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<key>.*)`$")
_TYPES = re.compile(r"`([^`]*?)(?: \| null)?`")
_STEP = re.compile(r"\.(?P<key>[^.\[\]]+)|\[(?P<index>\d+)\]|(?P<any>\[\.\.\.\])")


def load(path: Path, kind: type[T]) -> T:
    """Read the TOML file at ``path`` as a ``kind`` (a msgspec Struct).

    Raises BadInputError, in one line, if the file is missing, unreadable, not TOML or not a ``kind``.
    """
    return parse(_read(path), kind, where=str(path))


def find(name_or_path: str, *, what: str, shipped: Traversable) -> tuple[str, str]:
    """Find a shipped file by its name (``ab``), or any other by its path: what to call it, and its text.

    ``shipped`` is the folder of those that come with tierscope, ``what`` says what they are: ``plan``.
    """
    path = Path(name_or_path)
    if path.suffix == ".toml" or is_file(path):
        return str(path), _read(path)
    names = names_in(shipped)
    if name_or_path in names:
        return f"{what} {name_or_path}", (shipped / f"{name_or_path}.toml").read_text(encoding="utf-8")
    raise BadInputError(
        f"{what} {_brief(name_or_path)}: no such file or shipped {what}; shipped: {', '.join(names)}"
    )


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:  # longer than file names are, for one
        return False


def names_in(shipped: Traversable) -> list[str]:
    """Names of the TOML files in a folder of package data, sorted."""
    files = (entry.name for entry in shipped.iterdir())
    return sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors put a mark of three bytes first
    except OSError as error:
        raise BadInputError(f"{_cut(str(path))}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def parse(text: str, kind: type[T], *, where: str) -> T:
    """Read TOML ``text`` as a ``kind``; ``where`` names it in errors (a path, or a built-in name)."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{where}: is not valid TOML: {error}") from error
    except RecursionError as error:
        raise BadInputError(f"{where}: is nested too deep") from error
    return convert(raw, kind, where=where)


def convert(raw: dict[str, Any], kind: type[T], *, where: str) -> T:
    """Turn an already parsed table into a ``kind``, or raise BadInputError naming key, value and bound."""
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{where}: {_explain(str(error), raw, kind)}") from error


def _explain(message: str, raw: Any, kind: Any) -> str:
    """Put msgspec's message into the form ``key: value is not allowed; expected …``."""
    match = _AT.match(message)
    if match is None:  # pragma: no cover - the pattern matches any string
        return message
    what, path = match["what"], match["path"] or ""
    if unknown := _UNKNOWN.match(what):
        return _explain_unknown(_join(path, unknown["key"]), unknown["key"], _fields_at(raw, path, kind))
    if missing := _MISSING.match(what):
        return f"{_join(path, missing['key'])}: is missing and has no default"
    value = _value_at(raw, path)
    shown = "" if value is None else f"{_brief(value)} is not allowed; "
    choices = _choices_at(raw, path, kind) if what.startswith("Invalid") else []
    wanted = f"expected one of {', '.join(choices)}" if choices else what[0].lower() + _in_words(what[1:])
    return f"{path.lstrip('.') or 'top level'}: {shown}{wanted}"


def _in_words(what: str) -> str:
    """Say a type as TOML's users know it: a table, and not ``object | null``."""
    return _TYPES.sub(lambda match: match[1].replace("object", "table").replace(" | ", " or "), what)


def _brief(value: Any) -> str:
    """Show a value, however long it is, in a line that can be read."""
    return _cut(str(value) if isinstance(value, date | time) else repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def _explain_unknown(place: str, key: str, allowed: list[str]) -> str:
    close = difflib.get_close_matches(key, allowed, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    names = f"; allowed: {', '.join(allowed)}" if allowed else ""
    return f"{place}: unknown key{hint}{names}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}".lstrip(".")


def _value_at(raw: Any, path: str) -> Any:
    """Follow a msgspec path such as ``.stages[0].requests``; None where it leaves the data."""
    for step in _STEP.finditer(path):
        if step["any"]:
            return None
        try:
            raw = raw[step["key"]] if step["key"] is not None else raw[int(step["index"])]
        except (KeyError, IndexError, TypeError):
            return None
    return raw


def _fields_at(raw: Any, path: str, kind: Any) -> list[str]:
    """Names of the fields that the struct at ``path`` has, empty where the type cannot be followed."""
    node, value = _follow(raw, path, kind)
    node = _pick(node, value) or node
    if not isinstance(node, msgspec.inspect.StructType):
        return []
    tag = [node.tag_field] if node.tag_field else []
    return tag + [field.encode_name for field in node.fields]


def _choices_at(raw: Any, path: str, kind: Any) -> list[str]:
    """What a literal at ``path`` may be, or the tag that chooses among the structs of a union."""
    node, _ = _follow(raw, path, kind)
    if isinstance(node, msgspec.inspect.LiteralType):
        return [str(value) for value in node.values]
    parent, _, key = path.rpartition(".")
    union, _ = _follow(raw, parent, kind)
    structs = [t for t in getattr(union, "types", ()) if isinstance(t, msgspec.inspect.StructType)]
    return [str(struct.tag) for struct in structs if struct.tag_field == key]


def _follow(raw: Any, path: str, kind: Any) -> tuple[Any, Any]:
    """The type and the value at ``path``; the type is None where it cannot be followed."""
    node = msgspec.inspect.type_info(kind)
    for step in _STEP.finditer(path):
        node = _into(node, step["key"], raw)
        raw = _value_at(raw, step[0])
        if node is None:
            break
    return node, raw


def _into(node: Any, key: str | None, raw: Any) -> Any:
    node = _pick(node, raw) or node
    if key is None:
        return getattr(node, "item_type", None)
    if isinstance(node, msgspec.inspect.StructType):
        return next((field.type for field in node.fields if field.encode_name == key), None)
    return getattr(node, "value_type", None)


def _pick(node: Any, raw: Any) -> Any:
    """The member of a union that the data's tag chooses (or its only struct)."""
    if not isinstance(node, msgspec.inspect.UnionType):
        return None
    structs = [t for t in node.types if isinstance(t, msgspec.inspect.StructType)]
    for struct in structs:
        if struct.tag_field and isinstance(raw, dict) and raw.get(struct.tag_field) == struct.tag:
            return struct
    return structs[0] if len(structs) == 1 else None
