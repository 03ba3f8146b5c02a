"""Text from foreign servers made fit to be shown: nothing in it moves a cursor or turns a line around."""

import re
from typing import Any

import msgspec

from analysis.model import Report

_BREAKS = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f"  # control characters: escape sequences start with one
    r"\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff"  # invisible, or changing the direction of text
    r"\ud800-\udfff\ufffe\uffff]"  # no characters at all
)


def printable(report: Report) -> Report:
    """Return a report whose strings are single lines without control characters; those become ``�``."""
    return msgspec.convert(_cleaned(msgspec.to_builtins(report)), Report)


def line(text: str) -> str:
    """Put a text on one line and make what is hidden in it visible."""
    return _HIDDEN.sub("\ufffd", _BREAKS.sub(" ", text))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return line(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    return value
