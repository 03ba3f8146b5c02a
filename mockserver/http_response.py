"""The bytes that frame a response: its head, and chunks of its body. Pure."""

from collections.abc import Mapping
from http import HTTPStatus

LAST_CHUNK = b"0\r\n\r\n"
JSON = "application/json"
EVENT_STREAM = "text/event-stream; charset=utf-8"
_REASONS = {status.value: status.phrase for status in HTTPStatus}


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """The status line, the fields and the empty line. Values must hold no line breaks."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked coding (RFC 9112 §7.1). ``data`` must not be empty: that would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data)
