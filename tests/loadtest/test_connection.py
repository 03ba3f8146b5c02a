"""Connections over real sockets: names, both address families, deadlines, cancelling, reuse."""

import _socket
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from loadtest import race
from loadtest.clock import RunClock
from loadtest.connection import Connection
from loadtest.plan import Timeouts
from loadtest.pool import KEEP_LOOK_NS
from loadtest.race import connect_first
from loadtest.resolve import Address, interleaved
from loadtest.transport import Transport
from loadtest.waiter import CancelledError, DeadlineError, Waiter
from tests.loadtest.certificates import Certificate, secured
from tests.loadtest.peer import ANSWER, REQUEST, Make, Serve, answer_always, receive
from tierscope.errors import RunFailedError

V4, V6 = int(socket.AF_INET), int(socket.AF_INET6)
SOON_NS = 20_000_000_000
Lookup = list[Address] | OSError
Names = Callable[..., list[str]]


def unprepared(_: _socket.socket) -> None:
    """Set no option."""


@pytest.fixture
def refusing() -> Address:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return V4, listener.getsockname()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Let every name lead where the test says, one answer for each look-up, the last for all later ones."""
    asked: list[str] = []

    def lead(*answers: Lookup, first: Event | None = None) -> list[str]:
        left = list(answers)

        def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[Any, ...]]:
            asked.append(host)
            if first is not None:
                first.wait()
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, OSError):
                raise answer
            return [(family, 1, 6, "", where) for family, where in answer]

        monkeypatch.setattr("loadtest.resolve.gevent_socket.getaddrinfo", getaddrinfo)
        return asked

    return lead


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def at(port: int) -> Address:
    return V4, ("127.0.0.1", port)


# The first address that answers


def test_families_take_turns_beginning_with_the_systems_choice() -> None:
    found: list[Address] = [(V6, 1), (V6, 2), (V6, 3), (V4, 4), (V4, 5)]
    assert interleaved(found) == [(V6, 1), (V4, 4), (V6, 2), (V4, 5), (V6, 3)]
    assert interleaved([(V4, 4), (V6, 1), (V6, 2)]) == [(V4, 4), (V6, 1), (V6, 2)]
    assert interleaved([]) == []


def test_an_address_that_does_not_answer_holds_up_the_next_for_a_quarter_second(
    serve: Serve, unanswering: Address
) -> None:
    waiter, live = Waiter(RunClock()), at(serve().port)
    began_s = time.monotonic()
    sock, address = connect_first([unanswering, live], unprepared, waiter, SOON_NS, "")
    took_s = time.monotonic() - began_s
    sock.close()
    assert address == live
    assert 0.24 < took_s < 5


def test_an_address_that_refuses_holds_up_nobody(
    serve: Serve, refusing: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race, "ATTEMPT_DELAY_NS", 2**62)
    waiter, live = Waiter(RunClock()), at(serve().port)
    sock, address = connect_first([refusing, refusing, live], unprepared, waiter, SOON_NS, "")
    sock.close()
    assert address == live


def test_a_family_that_this_machine_lacks_holds_up_nobody(serve: Serve) -> None:
    live = at(serve().port)
    addresses: list[Address] = [(9999, ("x", 1)), live]
    sock, address = connect_first(addresses, unprepared, Waiter(RunClock()), SOON_NS, "")
    sock.close()
    assert address == live


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_attempts_that_lost_are_closed(serve: Serve, unanswering: Address, refusing: Address) -> None:
    live, clock = at(serve().port), RunClock()
    before = descriptors()
    sock, _ = connect_first([unanswering, refusing, live], unprepared, Waiter(clock), SOON_NS, "")
    assert descriptors() <= before + 2  # ours, and the server's end of it
    sock.close()
    with pytest.raises(DeadlineError):
        connect_first([unanswering, unanswering], unprepared, Waiter(clock), clock.now_ns() + 10**8, "w")
    with pytest.raises(ConnectionRefusedError):
        connect_first([refusing, refusing], unprepared, Waiter(clock), SOON_NS, "")
    cancelled = Waiter(clock)
    gevent.spawn_later(0.05, cancelled.cancel)
    with pytest.raises(CancelledError):
        connect_first([unanswering], unprepared, cancelled, SOON_NS, "")
    assert descriptors() <= before + 1


def test_an_ipv6_address_is_reached(serve: Serve, connect: Make) -> None:
    try:
        peer = serve(answer_always, socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    assert connect(peer.url).call(REQUEST).run().ending == "complete"


def test_a_name_with_two_addresses_is_reached_at_the_one_that_listens(serve: Serve, connect: Make) -> None:
    peer = serve()  # on 127.0.0.1 only; localhost is ::1 first on most machines
    assert connect(f"http://localhost:{peer.port}").call(REQUEST).run().ending == "complete"


# Names


def close_each(connection: socket.socket, _: int) -> None:
    """One answer a connection, so that each request is a new connection."""
    receive(connection)
    connection.sendall(ANSWER.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))


def test_the_address_that_worked_last_is_tried_first(
    serve: Serve, connect: Make, names: Names, unanswering: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = names([unanswering, at(serve(close_each).port)])
    transport = connect("http://h.test", Timeouts(connect_s=10.0))
    assert transport.call(REQUEST).run().ending == "complete"
    monkeypatch.setattr(race, "ATTEMPT_DELAY_NS", 2**62)  # who begins with the other one waits for good
    assert [transport.call(REQUEST).run().ending for _ in range(2)] == ["complete"] * 2
    assert transport.connections_opened == 3
    assert asked == ["h.test"]


def test_a_host_that_moved_is_looked_up_again_once_none_of_its_addresses_answers(
    serve: Serve, connect: Make, names: Names
) -> None:
    first, second = serve(close_each), serve(close_each)
    asked = names([at(first.port)], [at(second.port)])
    transport = connect("http://h.test")
    assert transport.call(REQUEST).run().ending == "complete"
    first.close()
    assert [transport.call(REQUEST).run().ending for _ in range(2)] == ["complete"] * 2
    assert second.connections == 2
    assert len(asked) == 2


def test_a_name_that_is_not_known_yet_may_be_known_for_the_next_request(
    serve: Serve, connect: Make, names: Names
) -> None:
    names(socket.gaierror(-2, "Name or service not known"), [at(serve().port)])
    transport = connect("http://h.test")
    exchange = transport.call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("unconnected", "Name or service not known")
    assert transport.call(REQUEST).run().ending == "complete"


def test_a_look_up_is_shared_and_its_error_too(serve: Serve, connect: Make, names: Names) -> None:
    gate = Event()
    asked = names(socket.gaierror(-2, "nope"), [at(serve().port)], first=gate)
    transport = connect("http://h.test")
    for ending in ("unconnected", "complete"):
        gate.clear()
        calls = [gevent.spawn(transport.call(REQUEST).run) for _ in range(30)]
        gevent.sleep(0.05)
        gate.set()
        gevent.joinall(calls, timeout=20)
        assert [call.value.ending for call in calls] == [ending] * 30
    assert len(asked) == 2


def test_a_slow_look_up_blocks_nobody_else(
    serve: Serve, connect: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system is asked in a thread: the hub goes on meanwhile."""
    peer, looking, done = serve(), threading.Event(), threading.Event()

    def slow(*_: object, **__: object) -> list[tuple[Any, ...]]:
        looking.set()
        done.wait(20)
        return [(socket.AF_INET, 1, 6, "", ("127.0.0.1", peer.port))]

    monkeypatch.setattr(_socket, "getaddrinfo", slow)
    slow_call = gevent.spawn(connect(f"http://slow.test:{peer.port}").call(REQUEST).run)
    while not looking.is_set():
        gevent.sleep(0.001)
    for _ in range(10):
        gevent.sleep(0.001)
    assert not slow_call.ready()
    done.set()
    slow_call.join(timeout=20)
    assert slow_call.value.ending == "complete"


def test_a_look_up_that_takes_too_long_has_words_of_its_own(connect: Make, names: Names) -> None:
    gate = Event()
    names([], first=gate)
    exchange = connect("http://h.test", Timeouts(connect_s=0.1)).call(REQUEST).run()
    gate.set()
    assert (exchange.ending, exchange.detail) == ("timeout", "connect: name not resolved within 0.1 s")


def test_a_host_without_an_address_is_told_so(connect: Make, names: Names) -> None:
    names([])
    exchange = connect("http://h.test").call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("unconnected", "the host has no address")


# Cancelling


def test_waiting_for_a_name_or_a_connection_ends_at_once_when_cancelled(
    connect: Make, names: Names, unanswering: Address
) -> None:
    gate = Event()
    names([unanswering], first=gate)
    transport = connect("http://h.test", Timeouts(connect_s=600.0))
    call = gevent.spawn(transport.call(REQUEST).run)
    gevent.sleep(0.05)  # waits for the name
    transport.cancel()
    assert call.join(timeout=10) is None
    assert call.value.ending == "cancelled"
    gate.set()
    call = gevent.spawn(transport.call(REQUEST).run)
    gevent.sleep(0.05)  # waits for the connection
    transport.cancel()
    assert call.join(timeout=10) is None
    assert call.value.ending == "cancelled"


def test_a_first_look_at_the_server_ends_at_once_when_cancelled(
    connect: Make, names: Names, unanswering: Address
) -> None:
    names([unanswering])
    transport = connect("http://h.test", Timeouts(connect_s=600.0))
    gevent.spawn_later(0.05, transport.cancel)
    with pytest.raises(RunFailedError, match=r"^stopped while connecting to http://h\.test$"):
        transport.probe()


HANGING = """
import _socket, sys, time
from loadtest import endpoint
from loadtest.clock import RunClock
from loadtest.plan import Timeouts
from loadtest.stamps import Stamps
from loadtest.transport import Transport
import gevent
_socket.getaddrinfo = lambda *_, **__: time.sleep(300)
transport = Transport(endpoint.parse("http://h.test", "/x"), Timeouts(), RunClock(), Stamps("user"))
call = gevent.spawn(transport.call(b"GET / HTTP/1.1\\r\\n\\r\\n").run)
gevent.sleep(0.2)
transport.cancel()
call.join()
print(call.value.ending)
"""


def test_a_process_ends_though_the_system_is_still_looking_up_a_name() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("cancelled\n", "")


# Deadlines while connecting; those after it are in test_transport


def test_nobody_who_answers_is_no_connection_in_time(
    connect: Make, names: Names, unanswering: Address
) -> None:
    names([unanswering, unanswering])
    exchange = connect("http://h.test", Timeouts(connect_s=0.4)).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("timeout", "connect: no connection within 0.4 s")


def test_a_handshake_that_does_not_end_is_no_tls_session_in_time(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    def mute(connection: socket.socket, _: int) -> None:
        while connection.recv(65536):
            pass

    url = serve(mute).url.replace("http", "https")
    exchange = connect(url, Timeouts(connect_s=0.2), certificate.trusting()).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("timeout", "connect: no TLS session within 0.2 s")


def test_connecting_takes_no_longer_than_the_whole_may(
    connect: Make, names: Names, unanswering: Address
) -> None:
    names([unanswering])
    exchange = connect("http://h.test", Timeouts(connect_s=60.0, total_s=0.2)).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("timeout", "connect: no connection within 0.2 s")


# How long it took


def timed(transport: Transport) -> tuple[float, float]:
    """Seconds from now to the connection, and from the sent request to the first byte of its answer."""
    began_ns = transport.clock.now_ns()
    exchange = transport.call(REQUEST).run()
    assert exchange.ending == "complete", exchange.detail
    assert exchange.connected_ns is not None
    assert exchange.sent_ns is not None
    assert exchange.connected_ns <= exchange.sent_ns
    return (exchange.connected_ns - began_ns) / 1e9, (exchange.pieces[0][0] - exchange.sent_ns) / 1e9


def test_the_time_of_a_handshake_is_before_the_sending_and_not_in_the_answer(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    def slow(connection: socket.socket, number: int) -> None:
        time.sleep(0.6)
        secured(certificate.serving(), answer_always)(connection, number)

    transport = connect(serve(slow).url.replace("http", "https"), context=certificate.trusting())
    connecting_s, answer_s = timed(transport)
    assert connecting_s > 0.6
    assert answer_s < 0.5


def test_the_time_of_a_second_connection_is_not_in_the_answer_either(
    serve: Serve, connect: Make, names: Names, unanswering: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one was kept, and broke before it took a byte."""
    live = at(serve().port)
    names([live], [unanswering, live])
    transport = connect("http://h.test")
    timed(transport)
    (kept,) = transport.pool._idle
    kept.sock = Refuses(kept.sock)  # type: ignore[assignment]
    transport.pool.dialer._resolver.forget()
    monkeypatch.setattr(race, "ATTEMPT_DELAY_NS", 600_000_000)
    connecting_s, answer_s = timed(transport)
    assert connecting_s > 0.59
    assert answer_s < 0.5


# Reuse


class Refuses:
    """A socket that breaks when it is sent to, before it took a byte."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def send(self, _: memoryview) -> int:
        self._sock.shutdown(socket.SHUT_RDWR)
        raise BrokenPipeError(32, "Broken pipe")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


@pytest.mark.parametrize(("broken", "ending", "opened"), [(1, "complete", 2), (2, "unanswered", 2)])
def test_a_request_of_which_no_byte_was_taken_is_tried_once_more_and_not_twice(
    serve: Serve, connect: Make, monkeypatch: pytest.MonkeyPatch, broken: int, ending: str, opened: int
) -> None:
    peer = serve()
    transport = connect(peer.url)
    dial = transport.pool.dialer.dial
    dialled: list[Any] = []

    def watched_dial(*arguments: Any) -> Connection:
        connection = dial(*arguments)
        dialled.append(connection)
        if broken > 1 and len(dialled) > 1:
            dialled[-1].sock = Refuses(connection.sock)
        return connection

    monkeypatch.setattr(transport.pool.dialer, "dial", watched_dial)
    assert transport.call(REQUEST).run().ending == "complete"
    dialled[0].sock = Refuses(dialled[0].sock)
    exchange = transport.call(REQUEST).run()
    assert exchange.ending == ending
    assert transport.connections_opened == opened


@pytest.mark.parametrize("how", ["FIN", "RST"])
def test_a_kept_connection_that_the_server_gave_up_while_idle_costs_no_request(
    serve: Serve, connect: Make, how: str
) -> None:
    gone = threading.Semaphore(0)

    def gives_up(connection: socket.socket, _: int) -> None:
        for _ in range(2):
            receive(connection)
            connection.sendall(ANSWER)
        time.sleep(1.5 * KEEP_LOOK_NS / 1e9)  # later than anybody would have looked
        if how == "RST":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()
        gone.release()

    transport = connect(serve(gives_up).url)
    for opened in (1, 2, 3):
        assert [transport.call(REQUEST).run().ending for _ in range(2)] == ["complete"] * 2
        assert gone.acquire(timeout=10)
        assert transport.connections_opened == opened
    assert transport.pool.keeps


def test_two_thousand_requests_of_eight_streams_need_eight_connections(serve: Serve, connect: Make) -> None:
    peer = serve()
    transport = connect(peer.url)
    endings: list[str] = []

    def stream() -> None:
        endings.extend(transport.call(REQUEST).run().ending for _ in range(250))

    gevent.joinall([gevent.spawn(stream) for _ in range(8)], timeout=60)
    assert endings == ["complete"] * 2000
    assert transport.connections_opened == peer.connections <= 8


def test_bursts_need_as_many_connections_as_requests_at_once(serve: Serve, connect: Make) -> None:
    peer = serve()
    transport = connect(peer.url)
    for _ in range(2):  # it is known from here on that connections are kept
        assert transport.call(REQUEST).run().ending == "complete"
    for _ in range(50):
        burst = [gevent.spawn(transport.call(REQUEST, punctual=True).run) for _ in range(8)]
        gevent.joinall(burst, timeout=20)
        assert [call.value.ending for call in burst] == ["complete"] * 8
    assert transport.connections_opened == peer.connections <= 8
