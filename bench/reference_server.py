"""A server whose sending instants are known: the truth against which stamps are measured.

    python bench/reference_server.py --truth FILE [--ttft-ms 100] [--gap-ms 20] [--grid]

Each stream sends its first token ``--ttft-ms`` after its request arrived and one more every ``--gap-ms``, on
an absolute schedule; with ``--grid`` all streams send at the same instants, multiples of the gap, as an
engine's decode steps do. Right before each write the server notes CLOCK_MONOTONIC. On SIGTERM it writes what
it noted, one JSON line a request in the order of arrival (``bench/truth.py`` reads it):

    {"id": "bench-0017", "connection": 3, "arrived_ns": 99, "due_ns": 120, "gap_ns": 20, "sent_ns": [121, …]}

``arrived_ns`` is the kernel's stamp of the request's last segment, where there is one. One thread, epoll and
two queues: gaps are equal for all, so due streams stand in line and no heap is needed. It shares no code with
the client or the mock server. Linux only (timerfd).
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import time
from array import array
from collections import deque
from pathlib import Path
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ID = b'data: {"id":"ref","created":1,"model":"ref",'
CHAT = _ID + b'"object":"chat.completion.chunk","choices":[{"index":0,"delta":{%s},"finish_reason":%s}]}\n\n'
TEXT = _ID + b'"object":"text_completion","choices":[{"index":0,"text":"%s","finish_reason":%s}]}\n\n'
USAGE = b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}'
WORD = b" word"
MODELS = b'{"object":"list","data":[{"id":"ref","object":"model","created":1,"owned_by":"bench"}]}'
_SO_TIMESTAMPNS = 35  # include/uapi/asm-generic/socket.h
_READ_BYTES = 262_144
_LIBC = ctypes.CDLL(None, use_errno=True)


class Answer:
    """One streamed answer under way. ``due_ns`` is when its next token should leave."""

    __slots__ = ("count", "due_ns", "last", "sent_ns", "sock", "token", "total")

    def __init__(self, sock: socket.socket, due_ns: int, total: int, token: bytes, last: bytes) -> None:
        self.sock, self.due_ns, self.total, self.token, self.last = sock, due_ns, total, token, last
        self.sent_ns = array("q")
        self.count = 0


class Connection:
    """One client connection: what came so far of a request, and which connection it is."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock, self.number = sock, number
        self.received = bytearray()


class Server:
    """Serves until SIGTERM; ``truth`` then holds a line for each streamed request."""

    def __init__(self, port: int, ttft_ns: int, gap_ns: int, *, grid: bool) -> None:
        self.truth: list[dict[str, Any]] = []
        self._ttft_ns, self._gap_ns, self._grid = ttft_ns, gap_ns, grid
        self._listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self._listener.setblocking(False)
        self._timer = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        self._stopping, wake = os.pipe2(os.O_NONBLOCK)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._epoll = select.epoll()
        for fd in (self._listener.fileno(), self._timer, self._stopping):
            self._epoll.register(fd, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._opened = 0
        self._first: deque[Answer] = deque()
        self._later: deque[Answer] = deque()
        self._wall_minus_monotonic_ns = time.time_ns() - time.monotonic_ns()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Send what is due, take what comes, until SIGTERM."""
        while True:
            self._send_due(self._first)
            self._send_due(self._later)
            self._set_timer()
            for fd, _ in self._epoll.poll():
                if fd in self._connections:
                    self._receive(self._connections[fd])
                elif fd == self._listener.fileno():
                    self._accept()
                elif fd == self._timer:
                    with contextlib.suppress(BlockingIOError):
                        os.read(fd, 8)
                else:
                    return

    def _send_due(self, queue: deque[Answer]) -> None:
        """Send one token to each stream that is due; the last one takes the end of the stream along."""
        now, gap_ns, later = time.monotonic_ns, self._gap_ns, self._later
        now_ns = now()
        while queue and queue[0].due_ns <= now_ns:
            answer = queue.popleft()
            answer.sent_ns.append(now())
            try:
                answer.sock.send(answer.token)
                answer.count += 1
                if answer.count == answer.total:
                    answer.sock.send(answer.last)
                    continue
            except OSError:  # the client is gone
                continue
            answer.due_ns += gap_ns
            later.append(answer)

    def _set_timer(self) -> None:
        due = [queue[0].due_ns for queue in (self._first, self._later) if queue]
        seconds, nanoseconds = divmod(min(due) if due else 0, 1_000_000_000)  # zero switches the timer off
        spec = struct.pack("=qqqq", 0, 0, seconds, nanoseconds)
        _LIBC.timerfd_settime(self._timer, 1, spec, None)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
                self._opened += 1
                self._connections[sock.fileno()] = Connection(sock, self._opened)
                self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _receive(self, connection: Connection) -> None:
        """Collect a request; answer it once it is whole."""
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(_READ_BYTES, 64)
        except OSError:
            data, ancillary = b"", []
        if not data:
            del self._connections[connection.sock.fileno()]
            connection.sock.close()
            return
        arrived_ns = time.monotonic_ns()
        for level, kind, stamp in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("=qq", stamp[:16])
                arrived_ns = seconds * 1_000_000_000 + nanoseconds - self._wall_minus_monotonic_ns
        connection.received += data
        request = take_request(connection.received)
        if request is not None:
            with contextlib.suppress(OSError):
                self._answer(connection, *request, arrived_ns=arrived_ns)

    def _answer(
        self, connection: Connection, path: str, headers: dict[str, str], body: bytes, *, arrived_ns: int
    ) -> None:
        sock = connection.sock
        if not path.endswith("/completions"):
            known = path.endswith(("/models", "/health"))
            sock.sendall(whole(MODELS) if known else whole(b"{}", "404 Not Found"))
            return
        asked = json.loads(body)
        total = max(1, int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16))
        prompt = max(1, len(body.split()))  # blanks between words; close enough, since nothing depends on it
        chat = path.endswith("/chat/completions")
        if not asked.get("stream"):
            sock.sendall(whole(document(chat, prompt, total)))
            return
        due_ns = arrived_ns + self._ttft_ns
        if self._grid:
            due_ns = -(-due_ns // self._gap_ns) * self._gap_ns
        answer = Answer(sock, due_ns, total, *stream_parts(chat, prompt, total))
        self.truth.append(
            {
                "id": headers.get("x-client-request-id", headers.get("x-request-id", "")),
                "connection": connection.number,
                "arrived_ns": arrived_ns,
                "due_ns": due_ns,
                "gap_ns": self._gap_ns,
                "sent_ns": answer.sent_ns,
            }
        )
        sock.send(HEAD)
        self._first.append(answer)


def take_request(received: bytearray) -> tuple[str, dict[str, str], bytes] | None:
    """Take path, headers and body of a whole request out of what came; None if it is not whole yet."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    first, *lines = bytes(received[:head_end]).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    end = head_end + 4 + int(headers.get("content-length", "0"))
    if len(received) < end:
        return None
    body = bytes(received[head_end + 4 : end])
    del received[:end]
    return first.split(" ")[1].partition("?")[0], headers, body


def stream_parts(chat: bool, prompt: int, total: int) -> tuple[bytes, bytes]:
    """Give the bytes of one token, and those that end a stream: finish reason, usage, end mark."""
    usage = USAGE % (prompt, total, prompt + total)
    token = CHAT % (b'"content":"%s"' % WORD, b"null") if chat else TEXT % (WORD, b"null")
    stop = CHAT % (b"", b'"length"') if chat else TEXT % (b"", b'"length"')
    rest = _ID + b'"object":"chat.completion.chunk","choices":[],"usage":%s}\n\ndata: [DONE]\n\n' % usage
    return chunk(token), chunk(stop + rest) + b"0\r\n\r\n"


def document(chat: bool, prompt: int, total: int) -> bytes:
    """Give the answer to a request that did not ask for a stream."""
    text = " word" * total
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    usage = {"prompt_tokens": prompt, "completion_tokens": total, "total_tokens": prompt + total}
    choice = {"index": 0, **said, "finish_reason": "length"}
    return json.dumps(
        {"id": "ref", "model": "ref", "created": 1, "choices": [choice], "usage": usage}
    ).encode("ascii")


def whole(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free one, printed on stdout")
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--grid", action="store_true", help="all streams send at the same instants")
    parser.add_argument("--truth", type=Path, required=True, help="file for the sending instants")
    options = parser.parse_args()
    server = Server(options.port, int(options.ttft_ms * 1e6), int(options.gap_ms * 1e6), grid=options.grid)
    print(server.port, flush=True)
    gc.disable()  # nothing here makes cycles, and a collection would delay a token
    server.serve()
    lines = (json.dumps(line, default=list, separators=(",", ":")) + "\n" for line in server.truth)
    with options.truth.open("w", encoding="utf-8") as file:
        file.writelines(lines)


if __name__ == "__main__":
    main()
