"""A chat server for the tests of this folder: what it does is chosen by the model that a request names."""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest import endpoint, stamps
from loadtest.clock import RunClock
from loadtest.plan import Timeouts
from loadtest.proxy import Proxy
from loadtest.resolve import Address
from loadtest.stamps import Stamps
from loadtest.transport import Transport
from tests.loadtest.certificates import Certificate, make_certificate
from tests.loadtest.locust_runs import Start, starting
from tests.loadtest.peer import Make, Peer, Script, Serve, answer_always

GAP_S = 0.004
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class ChatServer:
    """Speaks the OpenAI stream over keep-alive HTTP/1.1; ``requests`` holds (headers, body) of each."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.connections = 0
        self.refused = False
        """Whether the model ``busy`` has refused a request of the fast tier yet; it does so once."""
        self.abandoned = 0
        """Streams whose client went away before their end."""
        self.events: list[int] = []
        """How many tokens each stream has brought."""
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        server.close()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                pairs = (line.split(": ", 1) for line in head.split("\r\n")[1:-2])
                headers = {name.lower(): value for name, value in pairs}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                self.requests.append((headers, body))
                await self._answer(writer, body, chat=" /v1/chat/" in head)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, body: dict[str, Any], *, chat: bool) -> None:
        model = body["model"]
        if model == "slow":
            await asyncio.sleep(0.6)
        if model == "unauthorized":
            _whole(writer, "401 Unauthorized", {"error": {"type": "auth", "message": "no such key: sekret"}})
        elif model == "flaky" and len(self.requests) % 2:
            _whole(writer, "500 Internal Server Error", {"error": {"type": "oops", "message": "try later"}})
        elif model == "busy" and "service_tier" in body and not self.refused:
            self.refused = True
            _whole(writer, "429 Too Many Requests", {"error": {"message": "slow down"}}, "Retry-After: 1")
        elif model == "endless":
            await self._stream(writer, body, 1_000_000)
        elif chat:
            await self._stream(writer, body, body["max_tokens"])
        else:
            _messages(writer, body["max_tokens"])

    async def _stream(self, writer: asyncio.StreamWriter, body: dict[str, Any], tokens: int) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        tier, place = body.get("service_tier"), len(self.events)
        self.events.append(0)
        try:
            for number in range(tokens):
                await asyncio.sleep(GAP_S)
                _event(writer, {"choices": [{"delta": {"content": f" {number}"}}], "service_tier": tier})
                await writer.drain()
                self.events[place] += 1
        except ConnectionError:
            self.abandoned += 1
            raise
        _event(writer, {"choices": [{"delta": {}, "finish_reason": "length"}]})
        words = sum(len(message["content"].split()) for message in body["messages"])
        if body["model"] == "wordy":  # 1.5 tokens a word, and a template
            words = 7 + words * 3 // 2
        if body["model"] != "uncounted":
            _event(writer, {"choices": [], "usage": {"prompt_tokens": words, "completion_tokens": tokens}})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")


def _messages(writer: asyncio.StreamWriter, tokens: int) -> None:
    """The Anthropic stream, all at once."""
    writer.write(STREAM)
    _event(writer, {"type": "message_start", "message": {"usage": {"input_tokens": 4, "output_tokens": 1}}})
    for number in range(tokens):
        _event(writer, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": f" {number}"}})
    _event(
        writer,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": tokens}},
    )
    _event(writer, {"type": "message_stop"})
    writer.write(b"0\r\n\r\n")


def _event(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    _chunk(writer, b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _whole(writer: asyncio.StreamWriter, status: str, document: dict[str, Any], *headers: str) -> None:
    data = json.dumps(document).encode()
    lines = ["Content-Type: application/json", f"Content-Length: {len(data)}", *headers]
    head = "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""])
    writer.write(head.encode() + data)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def serve() -> Iterator[Serve]:
    peers: list[Peer] = []

    def start(script: Script = answer_always, family: socket.AddressFamily = socket.AF_INET) -> Peer:
        peers.append(Peer(script, family))
        return peers[-1]

    yield start
    for peer in peers:
        peer.close()


@pytest.fixture
def start(server: ChatServer, tmp_path: Path) -> Iterator[Start]:
    with starting(server.url, tmp_path) as begin:
        yield begin


@pytest.fixture(scope="module")
def stamping() -> Iterator[Stamps]:
    found = stamps.probe()
    yield found
    found.close()


@pytest.fixture
def connect(stamping: Stamps) -> Iterator[Make]:
    made: list[Transport] = []

    def make(
        url: str,
        timeouts: Timeouts | None = None,
        context: ssl.SSLContext | None = None,
        proxy: Proxy | None = None,
    ) -> Transport:
        where = endpoint.parse(url, "/x")
        made.append(Transport(where, timeouts or Timeouts(), RunClock(), stamping, tls=context, proxy=proxy))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For this machine by name and by both addresses."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "IP:127.0.0.1,IP:::1,DNS:localhost")


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For somebody else."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:llm.test,IP:127.0.0.9")


@pytest.fixture
def unanswering() -> Iterator[Address]:
    """An address where nobody answers: its backlog is full, so the kernel drops what comes."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        where = listener.getsockname()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(where)
        yield int(socket.AF_INET), where
