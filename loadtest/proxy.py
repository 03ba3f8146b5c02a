"""The way through a proxy: which one the environment names for a target, and CONNECT without a socket. Pure.

http targets are tunnelled like https ones: a proxy that reads HTTP may hold a stream back, and its own 502
would look like the server's.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import unquote_to_bytes, urlsplit

from loadtest import bypass
from loadtest.delta import folded
from loadtest.endpoint import Endpoint, host_name, tls_name
from tierscope.errors import BadInputError

OURS = "TIERSCOPE_PROXY"
"""Names a proxy for every target, whatever else is set and also for this machine; empty: none at all."""
MAX_REPLY_BYTES = 65536
_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] ([1-5][0-9]{2})(?=[ \r\n])")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_HINTS: dict[int, str] = {
    HTTPStatus.PROXY_AUTHENTICATION_REQUIRED: "; it wants USER:PASSWORD@ in its URL",
    HTTPStatus.FORBIDDEN: "; it may have tunnels to some hosts and ports only",
    HTTPStatus.METHOD_NOT_ALLOWED: "; it makes no tunnels",
}
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Proxy:
    """One HTTP proxy, reached over TLS or not. Credentials are in no ``repr``."""

    tls: bool
    host: str
    port: int
    authorization: str = field(default="", repr=False)

    @property
    def tls_name(self) -> str:
        """What its certificate must be for, as for an endpoint."""
        return tls_name(self.host)

    @property
    def origin(self) -> str:
        """Scheme, host and port, for people: no credentials."""
        return f"{'https' if self.tls else 'http'}://{_bracketed(self.host)}:{self.port}"

    def request(self, target: Endpoint) -> bytes:
        """The bytes that ask for a tunnel to ``target`` (RFC 9110, section 9.3.6)."""
        authority = f"{_bracketed(target.host)}:{target.port}"
        lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", "User-Agent: tierscope"]
        lines += [f"Proxy-Authorization: {self.authorization}"] if self.authorization else []
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


class RefusedError(Exception):
    """The proxy makes no tunnel; the sentence says why."""


class Reply:
    """A proxy's answer to CONNECT, from bytes in any pieces.

    Errors quote no words of the proxy, which may repeat the credentials.
    """

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> bool:
        """Take bytes in; True once there is a tunnel. Raises RefusedError."""
        self._data += data
        while (end := _HEAD_END.search(self._data)) is not None:
            status = _STATUS_LINE.match(self._data)
            if status is None:
                raise RefusedError("does not speak HTTP")
            code, self._data = int(status[1]), self._data[end.end() :]
            if code >= HTTPStatus.MULTIPLE_CHOICES:
                raise RefusedError(f"answered {_in_words(code)}{_HINTS.get(code, '')}")
            if code >= HTTPStatus.OK:
                if self._data:  # neither HTTP nor TLS lets a server speak first
                    raise RefusedError("sent more than an answer")
                return True
        if len(self._data) > MAX_REPLY_BYTES or not _may_become_http(self._data):
            raise RefusedError("does not speak HTTP")
        return False


def for_target(target: Endpoint, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy that ``environ`` names for ``target``, or None to go straight.

    It is ``HTTPS_PROXY`` or ``HTTP_PROXY`` by the target's scheme, else ``ALL_PROXY``, each also in lower
    case, which wins; ``NO_PROXY`` and this machine's own addresses are excepted. Raises BadInputError, in one
    line that repeats no URL, on a proxy that cannot be used.
    """
    if OURS in environ:
        return parse(environ[OURS], name=OURS) if environ[OURS].strip() else None
    if bypass.is_loopback(target.host):
        return None
    for stem in ("https_proxy" if target.tls else "http_proxy", "all_proxy"):
        for name in (stem, stem.upper()):
            if environ.get(name, "").strip():
                excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
                if bypass.is_excepted(target.host, target.port, excepted):
                    return None
                return parse(environ[name], name=name)
    return None


def parse(url: str, *, name: str) -> Proxy:
    """Take a proxy's URL apart; a bare ``host:port`` is an http one. ``name`` says where it was found."""
    text = url.strip()
    if " " in text or not text.isprintable():
        raise _refused(name, "it holds a blank or a control character")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
        host = host_name(parts.hostname or "")
    except ValueError as error:
        raise _refused(name, "its host or port cannot be read") from error
    if parts.scheme not in _PORTS:
        raise _refused(name, f"a proxy of the kind {folded(parts.scheme)} is not spoken")
    if port == 0 or parts.path.strip("/") or parts.query or parts.fragment:
        raise _refused(name, "it holds more or other than a host and a port")
    return Proxy(
        tls=parts.scheme == "https",
        host=host,
        port=port or _PORTS[parts.scheme],
        authorization=_basic(parts.username, parts.password),
    )


def _basic(user: str | None, password: str | None) -> str:
    """The credentials of a URL as a header's value (RFC 7617)."""
    if user is None:
        return ""
    pair = unquote_to_bytes(user) + b":" + unquote_to_bytes(password or "")
    return "Basic " + base64.b64encode(pair).decode("ascii")


def _in_words(code: int) -> str:
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return str(code)


def _may_become_http(data: bytes) -> bool:
    start = b"HTTP/1."
    return data.startswith(start) if len(data) >= len(start) else start.startswith(data)


def _refused(name: str, why: str) -> BadInputError:
    return BadInputError(f"{name}: is not allowed: {why}; expected [http[s]://][USER:PASSWORD@]HOST[:PORT]")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
