"""The /metrics page of a run, served from the load process without holding it up.

The numbers are copied in the hub (some tenths of a millisecond); text is made of the copy in a thread.
"""

import os
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gevent
from gevent.pywsgi import WSGIServer
from prometheus_client import generate_latest
from prometheus_client.exposition import choose_encoder

from loadtest.metrics import RunMetrics
from loadtest.records import write_whole
from tierscope.errors import BadInputError

METRICS_FILE = "metrics.prom"
Current = Callable[[], RunMetrics | None]


def serve(host: str, port: int, current: Current) -> WSGIServer:
    """Serve ``GET /metrics`` until the process ends; ``current`` gives the run's metrics, None before one.

    Raises BadInputError in one line if the port cannot be had.
    """
    server = WSGIServer((host, port), _application(current), log=None, error_log=None)
    try:
        server.start()
    except OSError as error:
        # gevent appends the address to strerror, so the words come from the number where it is the system's
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise BadInputError(f"--metrics-port: {host}:{port} cannot be used: {reason}") from error
    return server


def save(folder: Path, metrics: RunMetrics) -> None:
    """Write the page as it stands into a run folder, whole or (OSError) not at all."""
    write_whole(folder / METRICS_FILE, generate_latest(_Page(metrics)))


class _Page:
    """A registry of one collector, as prometheus_client's encoders want it."""

    def __init__(self, metrics: RunMetrics | None) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Any]:
        return [] if self._metrics is None else self._metrics.collect()


def _application(current: Current) -> Callable[..., list[bytes]]:
    def application(environ: dict[str, str], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] not in ("/metrics", "/"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"metrics are at /metrics\n"]
        metrics = current()
        page = _Page(None if metrics is None else metrics.copy())
        encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        body = gevent.get_hub().threadpool.apply(encode, (page,))
        start_response("200 OK", [("Content-Type", content_type)])
        return [body]

    return application
