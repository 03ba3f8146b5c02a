"""Certificates for the tests of TLS, made by openssl: each is signed by itself and is its own authority."""

import socket
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from loadtest import tls
from tests.loadtest.peer import Script


@dataclass(frozen=True)
class Certificate:
    """The files of one certificate."""

    key: Path
    cert: Path

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this certificate alone."""
        return tls.context(authorities=tls.read_authorities(self.cert))

    def serving(self, highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
        """A server's context."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        context.maximum_version = highest
        return context


def make_certificate(folder: Path, names: str) -> Certificate:
    """Make one for ``names``, in openssl's form: ``DNS:a,IP:127.0.0.1``. Skips the test without openssl."""
    made = Certificate(folder / "key.pem", folder / "cert.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(made.key), "-out", str(made.cert), "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", f"subjectAltName={names}"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"openssl cannot make a certificate: {error}")
    return made


def secured(context: ssl.SSLContext, script: Script) -> Script:
    """The script, spoken over TLS."""

    def wrapped(connection: socket.socket, number: int) -> None:
        with context.wrap_socket(connection, server_side=True) as inside:
            script(inside, number)

    return wrapped
