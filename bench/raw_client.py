"""The least a client in Python can do: count tokens and note when each read came. The unit of cost.

    python bench/raw_client.py --url http://127.0.0.1:PORT --streams 64 --requests 640 --tokens 100

A closed loop of ``--streams`` connections on asyncio: no JSON, no HTTP parser, no records, no histograms, and
stamps of its own clock. Prints one line of JSON: tokens, CPU seconds of the loop, wall seconds.
"""

import argparse
import asyncio
import json
import time
from urllib.parse import urlsplit

TOKEN = b'"content":"'
END = b"\r\n0\r\n\r\n"


class Loop:
    """What all streams share: how many requests are left, and what was counted."""

    def __init__(self, requests: int, body: bytes, host: str) -> None:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.request = head.encode("ascii") + body
        self.left = requests
        self.under_way = 0
        self.tokens = 0
        self.done = asyncio.Event()


class Stream(asyncio.Protocol):
    """One connection of the closed loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._read_ns: list[int] = []
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        """Note the instant, count the tokens, look for the end."""
        self._read_ns.append(time.monotonic_ns())
        self._loop.tokens += data.count(TOKEN)
        if data.endswith(END):
            self._loop.under_way -= 1
            self._read_ns.clear()
            self._next()

    def _next(self) -> None:
        loop = self._loop
        if loop.left:
            loop.left -= 1
            loop.under_way += 1
            self._transport.write(loop.request)
        elif not loop.under_way:
            loop.done.set()


async def drive(url: str, streams: int, requests: int, tokens: int) -> dict[str, float]:
    """Run the closed loop to its end."""
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 80
    asked = {"model": "ref", "stream": True, "max_tokens": tokens, "messages": [{"content": "word " * 16}]}
    loop = Loop(requests, json.dumps(asked).encode("ascii"), place.netloc)
    wall_s, cpu_s = time.monotonic(), time.process_time()
    running = asyncio.get_running_loop()
    for _ in range(streams):
        await running.create_connection(lambda: Stream(loop), host, port)
    await loop.done.wait()
    return {
        "tokens": loop.tokens,
        "cpu_s": time.process_time() - cpu_s,
        "wall_s": time.monotonic() - wall_s,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    for name in ("streams", "requests", "tokens"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(drive(options.url, options.streams, options.requests, options.tokens))))
