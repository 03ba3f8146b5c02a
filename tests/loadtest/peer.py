"""A server in threads for the tests of connections: it does with each connection what a script says."""

import contextlib
import socket
import threading
from collections.abc import Callable

from loadtest.exchange import Exchange
from loadtest.transport import Transport

REQUEST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Script = Callable[[socket.socket, int], None]


class Peer:
    """A server that runs ``script(connection, number)`` for each connection, in threads."""

    def __init__(self, script: Script, family: socket.AddressFamily = socket.AF_INET) -> None:
        host = "127.0.0.1" if family == socket.AF_INET else "::1"
        self._script = script
        self._listener = socket.create_server((host, 0), family=family)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://{host if family == socket.AF_INET else '[::1]'}:{self.port}"
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._run, args=(connection, self.connections), daemon=True).start()

    def _run(self, connection: socket.socket, number: int) -> None:
        with connection:
            try:
                self._script(connection, number)
            except OSError:
                return

    def close(self) -> None:
        with contextlib.suppress(OSError):  # closed by the test itself
            self._listener.shutdown(socket.SHUT_RDWR)  # ends accept
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def receive(connection: socket.socket) -> None:
    """Read one request, head and body."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            raise ConnectionResetError
        data += part
    head_end = data.index(b"\r\n\r\n") + 4
    length = int(data[:head_end].lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    left = length - (len(data) - head_end)
    while left > 0:
        left -= len(connection.recv(65536))


def answer_always(connection: socket.socket, _: int) -> None:
    while True:
        receive(connection)
        connection.sendall(ANSWER)


def silent(connection: socket.socket, _: int) -> None:
    receive(connection)
    connection.recv(1)


Serve = Callable[..., Peer]
Make = Callable[..., Transport]


def body(exchange: Exchange) -> bytes:
    return b"".join(piece for _, piece in exchange.pieces)
