"""Where words go in an answer that must be JSON of a schema: tools' arguments, structured outputs. Pure.

JSON Schema as the APIs take it (2026): types, ``properties``, ``required``, ``enum``, ``const``, ``$ref``
into the schema itself, ``anyOf``, ``oneOf``, ``allOf`` of one, least lengths, bounds, ``multipleOf``; no
patterns or formats.
"""

from typing import Any

import msgspec

Frame = tuple[str, str]
"""JSON before the words and after them. An empty end: there is no place for words, and blanks follow."""

ANY: Frame = ('{"text":"', '"}')
"""Of a schema that asks for nothing."""
_MOST_VALUES = 1000
_MOST_ITEMS = 16
_LONGEST = 1000
_DEEPEST = 32
_LARGEST = 1e300
_TIED = ("enum", "const", "pattern", "format", "maxLength", "$ref", "anyOf", "oneOf", "allOf")


def frame_of(schema: object) -> Frame:
    """The frame of the smallest instance of a schema, with the words in its first string that is free.

    The required members of an object are looked through, or all of them if none is required.
    """
    return _Smallest(schema).frame()


class _Smallest:
    """Builds the smallest instance of one schema; null where it is more than 32 deep or 1,000 values."""

    def __init__(self, schema: object) -> None:
        self._root = schema
        self._left = _MOST_VALUES

    def frame(self) -> Frame:
        schema = self._followed(self._root)
        members = schema.get("properties")
        if "const" in schema or "enum" in schema:
            return _text(self._value(schema)), ""
        if schema.get("type", "object") == "object" and not isinstance(members, dict):
            return ANY if schema.get("additionalProperties") is not False else ("{}", "")
        if schema.get("type") == "string" and _free(schema):
            return f'"{_filler(schema)}', '"'
        required = _names(schema.get("required"))
        candidates = required or list(members if isinstance(members, dict) else ())
        place = next((n for n in candidates if _free(_member(members, n), typed=True)), None)
        if place is None:
            return _text(self._value(schema)), ""
        others = [(name, self._value(_member(members, name))) for name in required if name != place]
        told = "".join(f"{_text(name)}:{_text(value)}," for name, value in others)
        return f'{{{told}{_text(place)}:"{_filler(self._followed(_member(members, place)))}', '"}'

    def _value(self, of: object, depth: int = 0) -> Any:
        """The smallest value of a schema inside."""
        self._left -= 1
        schema = self._followed(of)
        if self._left < 0 or depth > _DEEPEST:
            return None
        if "const" in schema:
            return schema["const"]
        if isinstance(choices := schema.get("enum"), list) and choices:
            return choices[0]
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) and kind else kind
        if kind == "string":
            return "x" * _count(schema, "minLength", _LONGEST)
        if kind in ("integer", "number"):
            return _number(schema, whole=kind == "integer")
        if kind == "boolean":
            return False
        if kind == "array":
            items = schema.get("items")
            return [self._value(items, depth + 1) for _ in range(_count(schema, "minItems", _MOST_ITEMS))]
        if kind == "object" or "properties" in schema:
            members, names = schema.get("properties"), _names(schema.get("required"))
            return {name: self._value(_member(members, name), depth + 1) for name in names}
        return None

    def _followed(self, schema: object) -> dict[str, Any]:
        """A schema without references and alternatives: where they lead to, the first that is not null."""
        for _ in range(_MOST_ITEMS):
            if not isinstance(schema, dict):
                return {}
            if isinstance(reference := schema.get("$ref"), str):
                schema = self._referred(reference)
                continue
            options = schema.get("allOf") or schema.get("anyOf") or schema.get("oneOf")
            if not isinstance(options, list) or not options:
                return schema
            schema = next(
                (one for one in options if isinstance(one, dict) and one.get("type") != "null"), options[0]
            )
        return {}

    def _referred(self, reference: str) -> object:
        found = self._root
        for name in reference.removeprefix("#").strip("/").split("/"):
            if name:
                key = name.replace("~1", "/").replace("~0", "~")
                found = found.get(key) if isinstance(found, dict) else None
        return found


def _free(schema: object, *, typed: bool = False) -> bool:
    """Whether a string of any words obeys the schema."""
    if not isinstance(schema, dict) or any(word in schema for word in _TIED):
        return False
    return not typed or schema.get("type") == "string"


def _member(members: object, name: str) -> object:
    return members.get(name) if isinstance(members, dict) else None


def _names(required: object) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _count(schema: dict[str, Any], key: str, most: int) -> int:
    least = schema.get(key)
    return max(0, min(least, most)) if isinstance(least, int) else 0


def _filler(schema: dict[str, Any]) -> str:
    """What goes before the words of a string so that it is long enough however few they are."""
    least = _count(schema, "minLength", _LONGEST)
    return "x" * least + " " if least else ""


def _number(schema: dict[str, Any], *, whole: bool) -> int | float:
    """The number next to 0 that a schema allows; of an interval without ends, one within it."""
    low, low_open = _end(schema, "minimum", "exclusiveMinimum")
    high, high_open = _end(schema, "maximum", "exclusiveMaximum")
    step: Any = schema.get("multipleOf")
    if not _is_number(step) or step <= 0:
        step = 1 if whole else None
    if low is not None and (low > 0 or (low_open and low == 0)):
        return _above(low, high, step, beyond=low_open)
    if high is not None and (high < 0 or (high_open and high == 0)):
        return -_above(-high, None if low is None else -low, step, beyond=high_open)
    return 0


def _end(schema: dict[str, Any], closed: str, open_: str) -> tuple[Any, bool]:
    """One end of an interval, None for none, and whether it is outside."""
    key = open_ if _is_number(schema.get(open_)) else closed
    value = schema.get(key)
    return (value, key == open_) if _is_number(value) else (None, False)


def _above(low: float, high: float | None, step: float | None, *, beyond: bool) -> int | float:
    """The smallest number from ``low`` on, or ``beyond`` it; a multiple of ``step`` where there is one."""
    if step is not None:
        least = -(-low // step) * step
        return least + step if beyond and least == low else least
    if not beyond:
        return low
    return low + 1 if high is None else (low + high) / 2


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode("utf-8")
