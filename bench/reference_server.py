"""A server whose sending instants are known: the truth against which the client's stamps are measured.

Each stream sends its first token ``--ttft-ms`` after its request was read and one more every ``--gap-ms``,
on an absolute schedule. Right before each write the server notes CLOCK_MONOTONIC; on SIGTERM it writes all
instants, one JSON line a request, keyed by the request id that the client sent:

    {"id": "bench-0017", "sent_ns": [123, 456, …]}

It is a raw asyncio protocol of its own, so that it shares no code with the client or the mock server.
"""

import argparse
import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"id":"ref","object":"chat.completion.chunk","created":1,"model":"ref","choices":[%s]}\n\n'
TOKEN = EVENT % b'{"index":0,"delta":{"content":" word"},"finish_reason":null}'
STOP = EVENT % b'{"index":0,"delta":{},"finish_reason":"length"}'


class Stream(asyncio.Protocol):
    """One connection: reads a request, streams its answer, then reads the next."""

    def __init__(self, ttft_s: float, gap_s: float, truth: list[dict[str, Any]]) -> None:
        self._ttft_s, self._gap_s, self._truth = ttft_s, gap_s, truth
        self._buffer = bytearray()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection's transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect a request; answer it once it is whole."""
        self._buffer += data
        head_end = self._buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        lines = bytes(self._buffer[:head_end]).decode("latin-1").lower().split("\r\n")[1:]
        headers = dict(line.split(": ", 1) for line in lines)
        end = head_end + 4 + int(headers.get("content-length", "0"))
        if len(self._buffer) < end:
            return
        body = bytes(self._buffer[head_end + 4 : end])
        del self._buffer[:end]
        self._answer(headers.get("x-client-request-id", ""), json.loads(body))

    def connection_lost(self, _: Exception | None) -> None:
        """Stop sending to a client that is gone."""
        if self._timer is not None:
            self._timer.cancel()

    def _answer(self, request_id: str, body: dict[str, Any]) -> None:
        self._start_s = self._loop.time() + self._ttft_s
        self._total = int(body["max_tokens"])
        self._sent_ns: list[int] = []
        self._truth.append({"id": request_id, "sent_ns": self._sent_ns})
        self._transport.write(HEAD)
        self._timer = self._loop.call_at(self._start_s, self._send)

    def _send(self) -> None:
        self._sent_ns.append(time.monotonic_ns())
        self._transport.write(chunk(TOKEN))
        count = len(self._sent_ns)
        if count < self._total:
            self._timer = self._loop.call_at(self._start_s + count * self._gap_s, self._send)
            return
        usage = b'"usage":{"prompt_tokens":1,"completion_tokens":%d}' % count
        last = b'data: {"object":"chat.completion.chunk","choices":[],%s}\n\ndata: [DONE]\n\n' % usage
        self._transport.write(chunk(STOP + last) + b"0\r\n\r\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(port: int, ttft_s: float, gap_s: float, truth_file: Path) -> None:
    truth: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Stream(ttft_s, gap_s, truth), "127.0.0.1", port, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    server.close()
    truth_file.write_text("".join(json.dumps(line) + "\n" for line in truth), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes a free one, printed on stdout")
    parser.add_argument("--ttft-ms", type=float, default=100.0)
    parser.add_argument("--gap-ms", type=float, default=20.0)
    parser.add_argument("--truth", type=Path, required=True, help="file for the sending instants")
    options = parser.parse_args()
    asyncio.run(serve(options.port, options.ttft_ms / 1e3, options.gap_ms / 1e3, options.truth))
