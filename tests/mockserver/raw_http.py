"""HTTP by hand over a socket, for what a client library would hide: chunks, cuts, resets, instants."""

import json
import re
import socket
import time
import zlib
from dataclasses import dataclass, field
from typing import Any, Literal

from prometheus_client.parser import text_string_to_metric_families


@dataclass
class Exchange:
    """What came back, chunk by chunk, and when each read came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)
    ended: Literal["whole", "cut", "reset"] = "cut"
    read_s: list[tuple[float, int]] = field(default_factory=list)
    """Instant of each read, and bytes so far."""

    @property
    def body(self) -> bytes:
        """The body without transfer and content coding."""
        whole = b"".join(self.chunks)
        if self.headers.get("content-encoding") == "gzip":
            return zlib.decompressobj(31).decompress(whole)
        return whole

    @property
    def said(self) -> bytes:
        """The body without the second in it, which differs from server to server."""
        return re.sub(rb'"created(_at)?":[0-9]+', b"", self.body)

    @property
    def events(self) -> list[bytes]:
        """Data of the events that are whole."""
        found = self.body.split(b"\n\n")[:-1]
        return [event.partition(b"data: ")[2] for event in found]


def connect(url: str, *, timeout_s: float = 20.0) -> socket.socket:
    """A connection to a server."""
    host, _, port = url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=timeout_s)


def request(path: str, body: bytes, *, more: str = "", method: str = "POST", version: str = "1.1") -> bytes:
    """The bytes of a request; ``more`` are lines of the head with their ends."""
    fields = f"Host: x\r\nContent-Length: {len(body)}\r\n{more}"
    return f"{method} {path} HTTP/{version}\r\n{fields}\r\n".encode("ascii") + body


def post(url: str, path: str, asked: dict[str, Any], *, more: str = "") -> Exchange:
    """Ask and read to the end of the body, of the connection, or to its reset."""
    with connect(url) as sock:
        sock.sendall(request(path, json.dumps(asked).encode(), more=more))
        return read(sock)


def metrics(url: str) -> dict[str, float]:
    """Samples by name; of several, the sum."""
    with connect(url) as sock:
        sock.sendall(request("/metrics", b"", method="GET"))
        page = read(sock).body.decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = f"{sample.name} {sample.labels.get('finished_reason', '')}".strip()
            found[name] = found.get(name, 0.0) + sample.value
    return found


def read(sock: socket.socket) -> Exchange:
    """Read one response."""
    found, data = Exchange(), b""
    while True:
        try:
            got = sock.recv(65536)
        except ConnectionResetError:
            found.ended = "reset"
            break
        data += got
        found.read_s.append((time.monotonic(), len(data)))
        if not got or _is_whole(data):
            break
    _parse(data, found)
    return found


def _is_whole(data: bytes) -> bool:
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return False
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"\r\n0\r\n\r\n") or body == b"0\r\n\r\n"
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or b"-1")
    return len(body) == length


def _parse(data: bytes, found: Exchange) -> None:
    head, blank, body = data.partition(b"\r\n\r\n")
    if not blank:
        return
    first, *lines = head.decode("latin-1").split("\r\n")
    found.status = int(first.split()[1])
    found.headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in lines}
    if found.headers.get("transfer-encoding") != "chunked":
        found.chunks = [body]
        if found.ended != "reset" and len(body) == int(found.headers.get("content-length", "-1")):
            found.ended = "whole"
        return
    while body:  # RFC 9112 §7.1, without extensions or trailers
        size, line, rest = body.partition(b"\r\n")
        count = int(size, 16) if line else 0
        if not line or len(rest) < count + 2:
            return
        assert rest[count : count + 2] == b"\r\n"
        body = rest[count + 2 :]
        if count == 0:
            assert body == b""
            found.ended = "whole"
            return
        found.chunks.append(rest[:count])
