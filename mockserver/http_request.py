"""HTTP/1.x request bytes in, whole requests out. No socket, no clock.

httptools (llhttp) frames; this file adds bounds. Rules for whoever edits it:

1. Any split of the same bytes gives the same requests and the same refusal.
2. A body that is too large is refused as soon as that is known: by its declared length, before any of it.
3. Nothing is held without being counted against a bound.
"""

from collections import deque
from dataclasses import dataclass

import httptools

from mockserver.ask import RefusalKind, RefusedError

MAX_HEAD_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One whole request. Header names are in lower case; of a field that came twice the last one counts."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool
    """Whether the connection may serve another one."""
    chunks: bool
    """Whether the client understands chunks: HTTP/1.1."""


class RequestFramer:
    """Reads what a client sends. Take ``requests`` from its left; after a ``failure`` nothing follows."""

    def __init__(self, max_body_bytes: int) -> None:
        self.requests: deque[HttpRequest] = deque()
        self.failure: RefusedError | None = None
        self.begun = False
        """Whether a request has begun that is not whole."""
        self.wants_continue = False
        """Whether the client waits for leave to send its body (``Expect: 100-continue``)."""
        self.path = ""
        self.headers: dict[str, str] = {}
        """Of the request that has begun, as far as they have come."""
        self._max_body_bytes = max_body_bytes
        self._parser = httptools.HttpRequestParser(self)
        self.on_message_begin()
        self.begun = False

    def receive(self, data: bytes) -> None:
        """Take what one read brought."""
        if self.failure is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # an offer that nobody has to take; the request stands
            if self.begun:
                self._fail(400, "This server switches to no other protocol")
        except (httptools.HttpParserError, ValueError) as error:
            self._fail(400, f"The request is no HTTP: {error}")
        if self.begun and not self._in_body:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > MAX_HEAD_BYTES:
                self._head_too_large()

    def end(self) -> None:
        """The client says that nothing more will come."""
        if self.begun:
            declared = self.headers.get("content-length")
            of = f" of the {declared} it declared" if declared and self._in_body else ""
            self._fail(400, f"The request ended in the middle, after {self._body_bytes} bytes of body{of}")

    def on_message_begin(self) -> None:
        """Called by httptools, as all that follow."""
        self.begun, self.wants_continue, self.path = True, False, ""
        self.headers = {}
        self._url = b""
        self._parts: list[bytes] = []
        self._head_bytes = self._unfinished_bytes = self._body_bytes = 0
        self._in_body = False

    def on_url(self, url: bytes) -> None:
        """Collect the target, which may come in pieces."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a field."""
        self._head_bytes += len(name) + len(value) + 4  # colon, blank, line break
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Refuse a body whose declared length is too much."""
        self._in_body = True
        self.path = self._path()
        if self._head_bytes + len(self._url) > MAX_HEAD_BYTES:
            self._head_too_large()
        if not self.path:
            self._fail(400, "The request's target is no path")
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self._max_body_bytes:
            self._too_large(f"declares {declared} bytes")
        self.wants_continue = self.headers.get("expect", "").lower() == "100-continue"

    def on_body(self, data: bytes) -> None:
        """Collect the body, up to the bound."""
        self._body_bytes += len(data)
        if self._body_bytes > self._max_body_bytes:
            self._parts.clear()
            self._too_large(f"has more than {self._max_body_bytes} bytes")
        elif self.failure is None:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self.begun = self.wants_continue = False
        if self.failure is not None:
            return
        self.requests.append(
            HttpRequest(
                method=self._parser.get_method().decode("latin-1"),
                path=self.path,
                headers=self.headers,
                body=b"".join(self._parts),
                keep_alive=self._parser.should_keep_alive(),
                chunks=self._parser.get_http_version() >= "1.1",
            )
        )

    def _path(self) -> str:
        """The target without host and query; empty if it is none."""
        try:
            return (httptools.parse_url(self._url).path or b"/").decode("latin-1")
        except httptools.HttpParserInvalidURLError:
            return ""

    def _head_too_large(self) -> None:
        self._fail(431, f"The request's head is longer than {MAX_HEAD_BYTES} bytes")

    def _too_large(self, what: str) -> None:
        self._fail(413, f"The body {what}; at most {self._max_body_bytes} are allowed", kind="too_large")

    def _fail(self, status: int, message: str, kind: RefusalKind = "invalid") -> None:
        if self.failure is None:
            self.path = self.path or self._path()
            self.failure = RefusedError(status, " ".join(message.split()), kind=kind)
