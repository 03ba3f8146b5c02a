"""One HTTP request as the APIs see it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One whole request."""

    method: str
    path: str
    """Without host and query, decoded."""
    headers: Mapping[str, str]
    """Looked up by names in lower case, however the client wrote them."""
    body: bytes
    keep_alive: bool
    """Whether the connection may serve another one."""
    chunks: bool
    """Whether the client understands chunks: HTTP/1.1."""
