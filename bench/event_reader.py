"""The least that reads many streams: counts their events, a read at a time, and asks again when one ends.

    python bench/event_reader.py --url http://127.0.0.1:PORT [--streams N] [--tokens N] [--seconds S]

epoll and nothing else: no parser, no record, no stamp. Requests go out over half of the warm-up. Prints one
line of JSON: events that came within ``--seconds``, answers that ended in that time, CPU seconds used, and
when that time began and ended on CLOCK_MONOTONIC.
"""

import argparse
import json
import select
import socket
import time
from urllib.parse import urlsplit

_EVENT = b"\n\n"
_END = b"[DONE]"
_READ_BYTES = 65_536


def request(host: str, tokens: int) -> bytes:
    """A chat request for an answer of so many tokens."""
    asked = {
        "model": "mock",
        "stream": True,
        "max_tokens": tokens,
        "messages": [{"role": "user", "content": "go"}],
    }
    body = json.dumps(asked).encode("ascii")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("ascii") + body


class Reader:
    """So many connections, each with a stream under way."""

    def __init__(self, url: str, streams: int, tokens: int) -> None:
        self.events = self.answers = 0
        place = urlsplit(url)
        self._request = request(place.netloc, tokens)
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        for _ in range(streams):
            sock = socket.create_connection((place.hostname, place.port))
            sock.setblocking(False)
            self._sockets[sock.fileno()] = sock
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def ask(self, spread_s: float) -> None:
        """Send everybody's first request, evenly spread, and read meanwhile."""
        begin_s, pause_s = time.monotonic(), spread_s / len(self._sockets)
        for number, sock in enumerate(self._sockets.values()):
            self.read_until(begin_s + number * pause_s)
            sock.send(self._request)

    def read_until(self, end_s: float) -> None:
        """Count what comes until that instant."""
        while (left_s := end_s - time.monotonic()) > 0:
            for fd, _ in self._epoll.poll(left_s):
                data = self._sockets[fd].recv(_READ_BYTES)
                if not data:
                    raise SystemExit("the server closed a connection")
                self.events += data.count(_EVENT)
                if _END in data:
                    self.answers += 1
                    self._sockets[fd].send(self._request)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--warm-s", type=float, default=2.0)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    reader = Reader(options.url, options.streams, options.tokens)
    begin_s = time.monotonic()
    reader.ask(options.warm_s / 2)
    reader.read_until(begin_s + options.warm_s)
    events, answers, cpu_s, now_s = reader.events, reader.answers, time.process_time(), time.monotonic()
    print("warm", flush=True)
    reader.read_until(now_s + options.seconds)
    found = {
        "events": reader.events - events,
        "answers": reader.answers - answers,
        "begin_s": now_s,
        "end_s": time.monotonic(),
        "cpu_s": time.process_time() - cpu_s,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
