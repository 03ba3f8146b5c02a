"""The metrics page as it is served, and how long it stays for those who read it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import gevent
import pytest
from gevent import socket

from loadtest import page
from loadtest.exposition import MetricsServer
from loadtest.linger import Readers
from loadtest.metrics import RunMetrics
from loadtest.plan import Closed, Plan, Stage, Target, Workload

S = 1_000_000_000
PLAN = Plan(
    name="p",
    stages=(Stage(name="only", arrivals=Closed(streams=1), requests=2),),
    workload=Workload(prompt_tokens=(64,), output_tokens=8),
)


@contextmanager
def served(current: RunMetrics | None) -> Iterator[MetricsServer]:
    server = MetricsServer("127.0.0.1", 0, lambda: current)
    try:
        yield server
    finally:
        server.close()


def get(port: int, path: str = "/metrics", *, agent: str = "a") -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        request = f"GET {path} HTTP/1.1\r\nHost: h\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        data = b""
        while piece := connection.recv(65536):
            data += piece
    return data.decode()


def test_the_page_is_served_whole_and_nothing_else_is() -> None:
    metrics = RunMetrics(PLAN, Target(url="http://h", model="m"), "run-1", "kernel")
    with served(metrics) as server:
        head, _, body = get(server.port).partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 200")
        assert f"Content-Length: {len(body.encode())}" in head
        assert 'tierscope_run_info{run_id="run-1",plan="p",model="m",stamp_source="kernel"} 1.0' in body
        assert get(server.port, "/elsewhere").startswith("HTTP/1.1 404")


def test_before_a_run_the_page_is_empty() -> None:
    with served(None) as server:
        assert "tierscope_" not in get(server.port).partition("\r\n\r\n")[2]


def test_while_a_page_is_made_the_event_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(metrics: RunMetrics) -> bytes:
        began.set()
        assert go_on.wait(30)  # which only the event loop can set
        return f"started {metrics.in_flight}\n".encode()

    metrics = RunMetrics(PLAN, Target(url="http://h", model="m"), "run-1", "kernel")
    monkeypatch.setattr(page, "render", slow)
    with served(metrics) as server:
        reader = gevent.spawn(get, server.port)
        for _ in range(3000):
            if began.is_set():
                break
            gevent.sleep(0.01)
        metrics.started("standard")  # after the copy was made: the page does not have it
        go_on.set()
        body = reader.get(timeout=30).partition("\r\n\r\n")[2]
    assert body == "started {'standard': 0}\n"


def test_nobody_who_came_is_nobody_to_wait_for() -> None:
    with served(None) as server:
        began_s = time.monotonic()
        server.linger(60)
        assert time.monotonic() - began_s < 30


def test_a_regular_reader_gets_the_final_page_and_then_the_wait_is_over() -> None:
    with served(None) as server:
        get(server.port)
        waiting = gevent.spawn(server.linger, 60)
        gevent.sleep(0)
        assert not waiting.ready()
        get(server.port)
        waiting.join(30)
        assert waiting.ready()


def test_a_stop_ends_the_wait() -> None:
    with served(None) as server:
        get(server.port)
        waiting = gevent.spawn(server.linger, 60)
        gevent.sleep(0)
        server.stop()
        waiting.join(30)
        assert waiting.ready()


def test_a_reader_who_does_not_come_back_is_waited_for_in_vain_and_not_for_ever() -> None:
    with served(None) as server:
        get(server.port)
        waiting = gevent.spawn(server.linger, 0.2)
        waiting.join(30)
        assert waiting.ready()


# Whom to wait for, with instants handed in


def test_nobody_is_waited_for_who_never_came_or_has_the_final_page() -> None:
    readers = Readers()
    assert readers.awaited_until_ns(100 * S, 15 * S) is None
    readers.seen("p", 90 * S)
    readers.seen("p", 101 * S)
    assert readers.awaited_until_ns(100 * S, 15 * S) is None


@pytest.mark.parametrize(
    ("last_s", "interval_s", "until_s"),
    [
        (99, 1, 100.5),
        (95, 5, 102.5),
        (90, 5, None),  # he should have come at 95, and has gone
        (95, 15, 115),  # not longer than the bound
        (99, None, 115),  # came once: his interval is unknown
    ],
)
def test_a_reader_is_waited_for_one_and_a_half_of_his_interval(
    last_s: int, interval_s: int | None, until_s: float | None
) -> None:
    readers = Readers()
    if interval_s is not None:
        readers.seen("p", (last_s - interval_s) * S)
    readers.seen("p", last_s * S)
    until_ns = readers.awaited_until_ns(100 * S, 15 * S)
    assert until_ns == (None if until_s is None else until_s * S)


def test_the_slowest_of_several_readers_is_waited_for() -> None:
    readers = Readers()
    for who, every_s in (("fast", 1), ("slow", 6)):
        readers.seen(who, (99 - every_s) * S)
        readers.seen(who, 99 * S)
    assert readers.awaited_until_ns(100 * S, 15 * S) == 108 * S
    readers.seen("slow", 105 * S)
    assert readers.awaited_until_ns(100 * S, 15 * S) == 100.5 * S


def test_ever_new_readers_are_not_remembered_for_ever() -> None:
    readers = Readers()
    for k in range(1000):
        readers.seen(str(k), k)
    assert len(readers._readers) < 20
