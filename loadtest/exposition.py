"""The /metrics page of a run, served from the load process without holding it up.

The numbers are copied in the hub (some tenths of a millisecond); text is made of the copy in a thread.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore
from gevent.pywsgi import WSGIServer

from loadtest import page
from loadtest.linger import Readers
from loadtest.metrics import RunMetrics
from tierscope import wholefile
from tierscope.errors import BadInputError

METRICS_FILE = "metrics.prom"
Current = Callable[[], RunMetrics | None]


class MetricsServer:
    """Serves ``GET /metrics`` until the process ends; ``current`` gives the run's metrics, None before one.

    Raises BadInputError in one line if the port cannot be had.
    """

    def __init__(self, host: str, port: int, current: Current) -> None:
        self._current = current
        self._readers = Readers()
        self._come, self._stopped = Event(), False
        self._one_at_a_time = BoundedSemaphore(1)
        self._server = WSGIServer((host, port), self._answer, log=None, error_log=None)
        try:
            self._server.start()
        except OSError as error:
            # gevent appends the address to strerror, so the words come from the number if it is the system's
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise BadInputError(f"--metrics-port: {host}:{port} cannot be used: {reason}") from error

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_port)

    def linger(self, most_s: float) -> None:
        """Block until everybody who reads the page regularly has got it as it stands, or will not come.

        At most ``most_s``; not at all if nobody ever came. ``stop`` ends it.
        """
        final_ns = time.monotonic_ns()
        while not self._stopped:
            until_ns = self._readers.awaited_until_ns(final_ns, int(most_s * 1e9))
            left_s = 0.0 if until_ns is None else (until_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                return
            self._come.clear()
            self._come.wait(left_s)

    def stop(self) -> None:
        """Wait for nobody any more."""
        self._stopped = True
        self._come.set()

    def close(self) -> None:
        """Give the port back."""
        self._server.stop()

    def _answer(self, environ: dict[str, str], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] not in ("/metrics", "/"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        with self._one_at_a_time:  # two threads that render would take more turns from the hub than one
            metrics, copied_ns = self._current(), time.monotonic_ns()
            body = b""
            if metrics is not None:
                body = gevent.get_hub().threadpool.apply(page.render, (metrics.copy(),))
        start_response("200 OK", [("Content-Type", page.CONTENT_TYPE), ("Content-Length", str(len(body)))])
        who = f"{environ.get('REMOTE_ADDR', '')} {environ.get('HTTP_USER_AGENT', '')}"
        return _Body(body, sent=lambda: self._on_sent(who, copied_ns))

    def _on_sent(self, who: str, copied_ns: int) -> None:
        self._readers.seen(who, copied_ns)
        self._come.set()


def save(folder: Path, metrics: RunMetrics) -> None:
    """Write the page as it stands into a run folder, whole or (OSError) not at all."""
    wholefile.write(folder / METRICS_FILE, page.render(metrics))


class _Body:
    """A response that tells when it has been sent."""

    def __init__(self, body: bytes, *, sent: Callable[[], None]) -> None:
        self._body, self._sent = body, sent

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        """What a WSGI server calls in the end."""
        self._sent()
