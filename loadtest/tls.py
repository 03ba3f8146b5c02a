"""TLS without a socket: ciphertext in, plaintext out, and the other way round.

Stamps stay those of the raw reads, so TLS costs no accuracy.
"""

import ssl

_READ_BYTES = 65536


def context(*, verify: bool = True) -> ssl.SSLContext:
    """Make the context of a run: the system's authorities, or none at all for ``verify=False``."""
    made = ssl.create_default_context()
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["http/1.1"])
    return made


class TlsSession:
    """One client session. ``to_send`` holds what must go to the peer after each call; take it and send it."""

    def __init__(self, made: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = made.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def to_send(self) -> bytes:
        """Take the ciphertext that waits to be sent."""
        return self._outgoing.read()

    def handshake(self, received: bytes | memoryview = b"") -> bool:
        """Go on with the handshake; True once it is done. Raises ssl.SSLError if it fails."""
        self._incoming.write(received)
        try:
            self._session.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def encrypt(self, data: bytes) -> bytes:
        """Give the ciphertext of ``data``."""
        self._session.write(data)
        return self._outgoing.read()

    def decrypt(self, received: bytes | memoryview) -> tuple[bytes, bool]:
        """Give the plaintext that ``received`` completes, and whether the peer has closed the session.

        Raises ssl.SSLError on damage.
        """
        self._incoming.write(received)
        parts = []
        try:
            while part := self._session.read(_READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        return b"".join(parts), True


def reason(error: ssl.SSLError) -> str:
    """Say in words why TLS failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: {error.verify_message}"
    return f"TLS: {(error.reason or str(error)).lower().replace('_', ' ')}"
