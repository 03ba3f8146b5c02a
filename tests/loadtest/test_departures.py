"""When a request left: the kernel's word, against what the other end of a socket sees."""

import socket
import threading
import time
from collections.abc import Callable

import gevent
import pytest

from loadtest.plan import Timeouts
from loadtest.stamps import Stamps
from loadtest.transport import Transport
from tests.loadtest.peer import ANSWER, Peer, receive

Serve = Callable[..., Peer]
Make = Callable[..., Transport]


@pytest.fixture(autouse=True)
def told(stamping: Stamps) -> None:
    if not stamping.departures:
        pytest.skip("this kernel does not tell when a segment left")


def request(size: int) -> bytes:
    return b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size


def test_a_request_leaves_between_the_call_and_its_arrival(serve: Serve, connect: Make) -> None:
    seen_ns: list[int] = []

    def note(connection: socket.socket, _: int) -> None:
        while True:
            receive(connection)
            seen_ns.append(time.monotonic_ns())
            connection.sendall(ANSWER)

    transport = connect(serve(note).url)
    for _ in range(20):
        before_ns = time.monotonic_ns()
        exchange = transport.call(request(200)).run()
        assert exchange.sent_ns is not None
        assert before_ns <= exchange.sent_ns + transport.clock.zero_ns <= seen_ns[-1]


def test_what_the_peer_has_no_room_for_has_not_left(serve: Serve, connect: Make) -> None:
    made_room_ns: list[int] = []

    def slow(connection: socket.socket, _: int) -> None:
        time.sleep(0.3)
        made_room_ns.append(time.monotonic_ns())
        receive(connection)
        connection.sendall(ANSWER)

    transport = connect(serve(slow).url, Timeouts(total_s=30))
    exchange = transport.call(request(30_000_000)).run()
    assert exchange.ending == "complete"
    assert exchange.sent_ns is not None
    assert exchange.sent_ns + transport.clock.zero_ns >= made_room_ns[0]


def test_a_process_that_loses_its_core_while_it_sends_does_not_send_late(serve: Serve, connect: Make) -> None:
    """A thread that holds the interpreter delays the look at the clock after ``send``, not the stamp."""
    arrived_ns: list[int] = []

    def note(connection: socket.socket, _: int) -> None:
        while True:
            receive(connection)
            arrived_ns.append(time.monotonic_ns())
            connection.sendall(ANSWER)

    transport = connect(serve(note).url)
    transport.call(request(200)).run()
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            sum(range(1000))

    spinner = threading.Thread(target=spin)
    spinner.start()
    try:
        for _ in range(30):
            exchange = transport.call(request(200)).run()
            assert exchange.sent_ns is not None
            assert exchange.sent_ns + transport.clock.zero_ns <= arrived_ns[-1]
    finally:
        over.set()
        spinner.join()


def test_a_stamp_that_is_late_keeps_no_hub_busy(serve: Serve, connect: Make) -> None:
    """The error queue makes a socket look readable; whoever waits for an answer empties it."""

    def later(connection: socket.socket, _: int) -> None:
        receive(connection)
        time.sleep(0.5)
        connection.sendall(ANSWER)

    transport = connect(serve(later).url)
    call = transport.call(request(200))
    greenlet = gevent.spawn(call.run)
    gevent.sleep(0.1)
    before_s = time.process_time()
    gevent.sleep(0.3)
    assert time.process_time() - before_s < 0.1
    greenlet.join()
    assert call.exchange.ending == "complete"
