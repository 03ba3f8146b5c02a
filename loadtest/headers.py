"""HTTP headers that a tier may add to its requests. Pure."""

import re
from collections.abc import Mapping

from tierscope.errors import BadInputError

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[\x20-\x7e\x80-\xff\t]*")
_OURS = {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept-encoding"}
_SECRET = {"authorization", "x-api-key", "api-key", "proxy-authorization", "cookie"}


def check(headers: Mapping[str, str], *, where: str) -> None:
    """Refuse what cannot be sent, what the client sets itself, and what would put a secret into a plan."""
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not sendable(value):
            raise BadInputError(f"{where}: {name!r} is not allowed: not a header that can be sent")
        if name.lower() in _OURS:
            raise BadInputError(f"{where}: {name!r} is not allowed: the client sets it itself")
        if name.lower() in _SECRET:
            raise BadInputError(
                f"{where}: {name!r} is not allowed: a plan holds no secret; "
                f"the key comes from the environment"
            )


def sendable(value: str) -> bool:
    """Whether a header can have this value."""
    return _VALUE.fullmatch(value) is not None
