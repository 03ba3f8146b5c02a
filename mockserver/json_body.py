"""A request's body as JSON of a type, and what is wrong with one that is not. Pure."""

import re
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<key>.*)`")


class UnreadableError(Exception):
    """A body that cannot be read. Each API says so in its own words.

    ``path`` leads to the field (``messages[0].role``; empty: the whole body); None: it is no JSON at all.
    ``missing``: the field is not there. ``str()`` says what is wrong with it, without its name.
    """

    def __init__(self, why: str, *, path: str | None, missing: bool = False) -> None:
        super().__init__(why)
        self.path, self.missing = path, missing


def decode(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    """Read a body; raises UnreadableError for whatever is wrong with it, in fields nobody reads too."""
    try:
        if not body.isascii():
            body.decode()  # what is not looked at must be UTF-8 too
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(str(error), path=None) from error


def _wrong(message: str) -> UnreadableError:
    """Take msgspec's message apart: what is wrong, and at which field."""
    match = _PATH.match(message)
    what, path = (match["what"], match["path"] or "") if match else (message, "")
    if (missing := _MISSING.search(what)) is not None:
        return UnreadableError("is missing", path=f"{path}.{missing['key']}".lstrip("."), missing=True)
    return UnreadableError(f"{what[0].lower()}{what[1:]}".replace("`", ""), path=path)
