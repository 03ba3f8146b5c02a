"""A small proxy that makes tunnels, for the tests of connections."""

import select
import socket
import time
from dataclasses import dataclass, field


@dataclass
class Tunnels:
    """A proxy: tunnels whatever it is asked for to one port of this machine, and notes what it was asked."""

    port: int
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    wait_s: float = 0.0
    heads: list[bytes] = field(default_factory=list)

    def __call__(self, connection: socket.socket, _: int) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = connection.recv(65536)
            if not piece:
                return
            head += piece
        self.heads.append(head)
        time.sleep(self.wait_s)
        with socket.create_connection(("127.0.0.1", self.port)) as onward:
            connection.sendall(self.answer)
            if b" 200 " in self.answer:
                relay(connection, onward)


def relay(near: socket.socket, far: socket.socket) -> None:
    """Copy bytes both ways until either side hangs up."""
    while True:
        pending = getattr(near, "pending", int)()
        ready = [near] if pending else select.select([near, far], [], [])[0]
        for sock in ready:
            data = sock.recv(65536)
            if not data:
                return
            (far if sock is near else near).sendall(data)
