"""A host too slow for its profile is told in /health, in /metrics and to the operator, while it is."""

import asyncio
import json

import pytest

from mockserver import config, lateness
from mockserver.app import Server
from mockserver.connection import Connection
from mockserver.http_request import HttpRequest

CONFIG = config.load("fast-tier")


class Heard(Connection):
    """A connection that only listens to what it should send."""

    def __init__(self) -> None:
        self.sent = b""

    def write(self, data: bytes) -> None:
        self.sent += data

    def answered(self, *, keep: bool) -> None:
        assert keep


@pytest.fixture(autouse=True)
def short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lateness, "WINDOW_NS", 1)


def get(server: Server, path: str) -> str:
    connection = Heard()
    server.handle(HttpRequest("GET", path, {}, b"", keep_alive=True, chunks=True), connection)
    return connection.sent.partition(b"\r\n\r\n")[2].decode()


def a_window(server: Server, lag_ns: int) -> None:
    for _ in range(50):
        server.dispatch.lateness.add(lag_ns, 10_000_000)
    server.check_lateness()


def test_late_is_said_in_all_places_once_a_bad_window_and_taken_back_after_good_ones() -> None:
    said: list[str] = []

    async def main() -> None:
        server = Server(CONFIG, say=said.append)
        server.start(asyncio.get_running_loop())
        a_window(server, 100_000)
        assert json.loads(get(server, "/health")) == {"status": "ok"}
        assert said == []
        for window in (1, 2):
            a_window(server, 50_000_000)
            server.check_lateness()
            assert len(said) == window
            assert said[-1].startswith("fast-tier: this host is too slow for its profile")
        health = json.loads(get(server, "/health"))
        assert health["status"] == "late"
        assert health["late"]["late_ratio"] == 1.0
        assert health["message"] in said[-1]
        assert 'mockserver_late{model_name="mock"} 1' in get(server, "/metrics")
        for _ in range(3):
            a_window(server, 100_000)
        assert json.loads(get(server, "/health")) == {"status": "ok"}
        assert 'mockserver_late{model_name="mock"} 0' in get(server, "/metrics")
        assert len(said) == 2
        server.stop()

    asyncio.run(main())
