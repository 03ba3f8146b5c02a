"""Where requests go: a target's URL taken apart once. Pure."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from tierscope.errors import BadInputError

_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_LONGEST_LABEL = 63  # RFC 1035, section 2.3.4
_FORM = "http://HOST[:PORT][/PREFIX] or https://…"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One HTTP endpoint. ``path`` is that of the request, prefix included."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The value of the Host header; an IPv6 zone means nothing to others (RFC 6874, section 1)."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def tls_name(self) -> str:
        """What the certificate must be for."""
        return tls_name(self.host)

    @property
    def origin(self) -> str:
        """Scheme and authority, for people."""
        return f"{'https' if self.tls else 'http'}://{self.authority}"


def parse(url: str, path: str) -> Endpoint:
    """Take ``url`` apart and add the API's ``path``; a prefix that has its start already is not doubled.

    ``http://h:1``, ``http://h:1/v1`` and ``http://h:1/v1/chat/completions`` give the same endpoint. Raises
    BadInputError in one line on anything else than an http or https URL without credentials.
    """
    if " " in url or not url.isprintable():
        raise _refused(url, "it holds a blank or a control character")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(url, str(error)) from error
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https") or not host:
        raise _refused(url, "scheme or host is missing")
    if "@" in parts.netloc:
        raise BadInputError("url: credentials do not belong there; the key comes from the environment")
    if port == 0:
        raise _refused(url, "nothing can listen on port 0")
    if not parts.path.isascii():
        raise _refused(url, "its path is not ASCII; write it percent-encoded")
    if parts.query or parts.fragment:
        raise _refused(url, "a query or fragment cannot be part of it")
    try:
        host = host_name(host)
    except ValueError as error:
        raise _refused(url, str(error)) from error
    return Endpoint(
        tls=parts.scheme == "https",
        host=host,
        port=port if port is not None else (443 if parts.scheme == "https" else 80),
        path=_join(parts.path.rstrip("/"), path),
    )


def _join(prefix: str, path: str) -> str:
    """Join without repeating: the longest start of ``path`` that ends ``prefix`` is used once."""
    steps = path.strip("/").split("/")
    for count in range(len(steps), 0, -1):
        start = "/" + "/".join(steps[:count])
        if prefix.endswith(start):
            return prefix.removesuffix(start) + path
    return prefix + path


def host_name(host: str) -> str:
    """The ASCII form of a host's name or address. Raises ValueError, in words, if it cannot be one."""
    wrong = f"{host!r} is not a host name"
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError(wrong) from error
    if ":" in name:
        name = name.replace("%25", "%")  # as RFC 6874 writes the zone of an IPv6 address
    labels = name.removesuffix(".").split(".")
    if not _HOST.fullmatch(name) or not all(0 < len(label) <= _LONGEST_LABEL for label in labels):
        raise ValueError(wrong)
    return name


def tls_name(host: str) -> str:
    """What a host's certificate must be for: no final dot (RFC 6066, section 3), no IPv6 zone."""
    return host.partition("%")[0].removesuffix(".")


def _refused(url: str, why: str) -> BadInputError:
    return BadInputError(f"url: {url!r} is not allowed: {why}; expected {_FORM}")
