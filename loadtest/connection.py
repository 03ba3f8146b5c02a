"""Connections: raw sockets, with TLS on top where the endpoint wants it.

Sockets are the C type: locust replaces ``socket.socket`` by gevent's, which waits and buffers on its own.
"""

import _socket
import socket

from loadtest.tls import TlsSession

_READ_BYTES = 65536


class ConnectError(Exception):
    """No connection could be made; the sentence says why."""


class Connection:
    """A connected socket and its TLS session, if any."""

    __slots__ = ("idle_since_ns", "recv", "sock", "tls")

    def __init__(self, sock: _socket.socket, tls: TlsSession | None) -> None:
        self.sock = sock
        self.tls = tls
        self.recv = sock.recvmsg_into
        self.idle_since_ns = 0

    def close(self) -> None:
        """Close at once."""
        self.sock.close()

    def is_dead(self) -> bool:
        """Whether a pooled connection was closed, or spoken on, by the server.

        What TLS says for itself (a late session ticket, a change of keys) is taken in and does no harm.
        """
        try:
            if self.tls is None:
                self.sock.recv(1, socket.MSG_PEEK)
                return True
            while received := self.sock.recv(_READ_BYTES):
                data, closed = self.tls.decrypt(received)
                send_quietly(self.sock, self.tls.to_send())
                if data or closed:
                    return True
        except BlockingIOError:
            return False
        except OSError:  # ssl.SSLError is one
            return True
        return True


def send_quietly(sock: _socket.socket, data: bytes) -> None:
    """Send a TLS alert or key update; if the socket does not take it, the next read shows what is wrong."""
    if data:
        try:
            sock.send(data)
        except OSError:
            return


def in_words(error: OSError) -> str:
    """The text of an OS error alone, without number and address."""
    return error.strerror or str(error)
