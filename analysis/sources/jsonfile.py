"""JSON of other tools: read whole or by lines, typed at once, and refused in one line where it is damaged."""

import json
from typing import Any, TypeVar

import msgspec

from tierscope.errors import BadInputError

T = TypeVar("T")
MOST_NOTES = 10


def document(data: bytes, *, where: str) -> Any:
    """Decode one JSON document. NaN and Infinity, which Python's json writes and JSON has not, become null.

    Raises BadInputError for what is cut short or damaged.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        raise BadInputError(f"{where}: is no whole JSON document, cut short or damaged: {reason}") from error


def typed(value: Any, kind: type[T], *, where: str) -> T:
    """The value as one of our types; fields that the type does not name are passed over.

    Raises BadInputError naming the field.
    """
    try:
        return msgspec.convert(value, kind, strict=False)  # 32.0 is a count too
    except msgspec.ValidationError as error:
        raise BadInputError(f"{where}: {error}") from error


def lines(data: bytes, kind: type[T], *, where: str) -> tuple[list[T], list[str]]:
    """One value a line, and a note on each line that is none: a last one cut short loses that line only."""
    found: list[T] = []
    notes: list[str] = []
    left_out, decoder = 0, msgspec.json.Decoder(kind, strict=False)
    unended = 0 if data.endswith(b"\n") else data.count(b"\n") + 1
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(decoder.decode(line))
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass  # it may still be JSON as Python writes it
        try:
            found.append(typed(document(line, where=where), kind, where=where))
        except BadInputError as error:
            left_out += 1
            cut = number == unended
            if cut or left_out <= MOST_NOTES:
                what = "is cut short and left out" if cut else f"is left out: {error}"
                notes.append(f"{where}: line {number} {what}")
    if left_out > len(notes):
        notes.append(f"{where}: {left_out - len(notes)} more lines are left out for reasons like these")
    return found, notes
