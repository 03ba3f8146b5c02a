"""TLS without a socket: ciphertext in, plaintext out, and the other way round.

Stamps stay those of the raw reads, so TLS costs no accuracy.
"""

import re
import ssl
from pathlib import Path

from tierscope.errors import BadInputError

_READ_BYTES = 65536
_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END (?:TRUSTED )?CERTIFICATE-----"
)


def context(*, verify: bool = True, authorities: str = "") -> ssl.SSLContext:
    """Make the context of a run, which asks for a certificate that one of ``authorities`` vouches for.

    They are certificates in PEM form, as ``read_authorities`` gives them, and replace the system's own list;
    without ``verify`` any certificate will do.
    """
    made = ssl.create_default_context(cadata=authorities or None)
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["http/1.1"])
    return made


def read_authorities(ca_file: Path) -> str:
    """Give the certificates of a file, for ``context``. Raises BadInputError in one line if it holds none."""
    try:
        found = [match[0] for match in _CERTIFICATE.finditer(ca_file.read_bytes())]
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BadInputError(f"--ca-file: {ca_file} cannot be read: {why}") from error
    authorities = b"\n".join(found).decode("ascii")
    try:
        context(authorities=authorities or "none")
    except ssl.SSLError as error:
        raise BadInputError(f"--ca-file: {ca_file} holds no certificates in PEM form") from error
    return authorities


class TlsSession:
    """One client session. ``to_send`` holds what must go to the peer after each call; take it and send it.

    With ``outer``, this session's bytes travel inside of that one (through a proxy that speaks TLS itself).
    """

    def __init__(
        self,
        made: ssl.SSLContext,
        host: str,
        *,
        ticket: ssl.SSLSession | None = None,
        outer: "TlsSession | None" = None,
    ) -> None:
        self.offers_ticket = ticket is not None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._outer = outer
        self._object = made.wrap_bio(self._incoming, self._outgoing, server_hostname=host, session=ticket)

    @property
    def ticket(self) -> ssl.SSLSession | None:
        """What a later session can be resumed with; in TLS 1.3 it comes some time after the handshake."""
        found = self._object.session
        return found if found is not None and (found.has_ticket or found.id) else None

    def to_send(self) -> bytes:
        """Take the ciphertext that waits to be sent."""
        data = self._outgoing.read()
        if self._outer is None:
            return data
        return self._outer.encrypt(data) if data else self._outer.to_send()

    def handshake(self, received: bytes | memoryview = b"") -> bool:
        """Go on with the handshake; True once it is done. Raises ssl.SSLError if it fails."""
        self._take(received)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def encrypt(self, data: bytes) -> bytes:
        """Give the ciphertext of ``data``, which is not empty."""
        self._object.write(data)
        return self.to_send()

    def decrypt(self, received: bytes | memoryview) -> tuple[bytes, bool]:
        """Give the plaintext that ``received`` completes, and whether the peer has closed the session.

        Raises ssl.SSLError on damage.
        """
        self._take(received)
        incoming, session = self._incoming, self._object
        parts = []
        try:
            while part := session.read(_READ_BYTES):
                parts.append(part)
                if not incoming.pending and not session.pending():  # spares the exception of one more look
                    return b"".join(parts), False
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        return b"".join(parts), True

    def _take(self, received: bytes | memoryview) -> None:
        # That the outer session was closed is no word of the inner peer: without one, the end is a cut.
        self._incoming.write(received if self._outer is None else self._outer.decrypt(received)[0])


class TlsClient:
    """Sessions with one host, each resumed from the last good one if the server allows it (RFC 8446, 2.2)."""

    def __init__(self, made: ssl.SSLContext, host: str) -> None:
        self._context = made
        self._host = host
        self._ticket: ssl.SSLSession | None = None
        self._latest: TlsSession | None = None

    def session(self, outer: TlsSession | None = None) -> TlsSession:
        """Begin a session."""
        # Tickets come when they please; looking only here costs nothing while tokens arrive.
        self._ticket = (self._latest.ticket if self._latest is not None else None) or self._ticket
        return TlsSession(self._context, self._host, ticket=self._ticket, outer=outer)

    def succeeded(self, session: TlsSession) -> None:
        """A handshake is done: what the session brings serves the next one."""
        self._latest = session

    def forget(self) -> None:
        """A resumption went wrong: begin anew."""
        self._ticket = self._latest = None


def reason(error: ssl.SSLError) -> str:
    """Say in words why TLS failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
