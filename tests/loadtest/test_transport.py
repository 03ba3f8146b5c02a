"""The transport over real sockets: reuse, deadlines, each way a connection can end."""

import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import gevent
import pytest

from loadtest import endpoint
from loadtest.call import Call
from loadtest.clock import RunClock
from loadtest.connection import Connection
from loadtest.plan import Timeouts
from loadtest.pool import KEEP_LOOK_NS
from loadtest.stamps import Stamps
from loadtest.transport import Transport
from tests.loadtest.peer import ANSWER, REQUEST, Make, Script, Serve, body, receive, silent
from tierscope.errors import RunFailedError

if TYPE_CHECKING:
    from loadtest.exchange import Exchange

# Reuse


@pytest.mark.parametrize("delay_s", [0.0, 0.0001, 0.003, 0.02])
def test_a_server_that_closes_unannounced_after_each_response_loses_no_request(
    serve: Serve, connect: Make, delay_s: float
) -> None:
    def answer_once(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(ANSWER)
        time.sleep(delay_s)

    transport = connect(serve(answer_once).url)
    endings = [transport.call(REQUEST).run().ending for _ in range(20)]
    assert endings == ["complete"] * 20
    assert transport.connections_opened == 20


def test_many_streams_of_a_server_that_closes_unannounced_lose_no_request(
    serve: Serve, connect: Make
) -> None:
    def answer_once(connection: socket.socket, number: int) -> None:
        receive(connection)
        time.sleep(0.001 * (number % 7))
        connection.sendall(ANSWER)
        time.sleep(0.002)

    transport = connect(serve(answer_once).url)
    exchanges: list[Exchange] = []

    def stream() -> None:
        exchanges.extend(transport.call(REQUEST).run() for _ in range(10))

    gevent.joinall([gevent.spawn(stream) for _ in range(8)], timeout=30)
    assert [exchange.ending for exchange in exchanges] == ["complete"] * 80


class SlowReturn:
    """A socket whose ``send`` returns late, as when the process loses its core inside the call."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock

    def send(self, data: memoryview) -> int:
        sent: int = self._sock.send(data)
        time.sleep(0.02)
        return sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def test_an_answer_that_comes_before_send_returns_keeps_its_kernel_stamp_and_moves_the_sending_back(
    serve: Serve, connect: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = connect(serve().url)
    if transport.pool.stamps.source != "kernel":
        pytest.skip(f"no kernel stamps here: {transport.pool.stamps.note}")
    dial = transport.pool.dialer.dial

    def slow_dial(*arguments: Any) -> Connection:
        connection = dial(*arguments)
        connection.sock = SlowReturn(connection.sock)  # type: ignore[assignment]
        return connection

    monkeypatch.setattr(transport.pool.dialer, "dial", slow_dial)
    exchange = transport.call(REQUEST).run()
    assert exchange.ending == "complete"
    assert exchange.stamp_source == "kernel"
    assert exchange.sent_ns is not None
    assert exchange.headers_ns is not None
    assert exchange.sent_ns <= exchange.headers_ns
    # Loopback answers within a fraction of the 20 ms that the call took to return.
    assert exchange.ended_ns - exchange.sent_ns < 15_000_000


def test_a_fault_of_ours_in_a_callback_is_raised_where_the_call_was_made(
    serve: Serve, connect: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    call = connect(serve().url).call(REQUEST)
    monkeypatch.setattr("loadtest.call.arrival_ns", broken)
    with pytest.raises(ZeroDivisionError, match="ours"):
        call.run()
    assert call.exchange.ending == "cancelled"


def test_a_call_with_an_instant_to_keep_does_not_wait_to_see_whether_connections_are_kept(
    serve: Serve, connect: Make
) -> None:
    transport = connect(serve().url)
    transport.call(REQUEST).run()
    transport.call(REQUEST, punctual=True).run()
    assert (transport.connections_opened, transport.pool.keeps) == (2, None)
    gevent.sleep(KEEP_LOOK_NS / 1e9)
    transport.call(REQUEST, punctual=True).run()
    assert (transport.connections_opened, transport.pool.keeps) == (2, True)


def test_a_second_call_reuses_the_connection_and_says_so(serve: Serve, connect: Make) -> None:
    peer = serve()
    transport = connect(peer.url)
    first, second = transport.call(REQUEST).run(), transport.call(REQUEST).run()
    assert (first.ending, body(first), first.status) == ("complete", b"ok", 200)
    assert first.connected_ns is not None
    assert (second.ending, second.connected_ns) == ("complete", None)
    assert transport.connections_opened == peer.connections == 1


def test_a_server_that_closed_a_kept_connection_costs_a_new_one_and_no_request(
    serve: Serve, connect: Make
) -> None:
    closed = threading.Event()

    def once(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(ANSWER)
        connection.close()
        closed.set()

    transport = connect(serve(once).url)
    assert transport.call(REQUEST).run().ending == "complete"
    assert closed.wait(5)
    assert transport.call(REQUEST).run().ending == "complete"
    assert transport.connections_opened == 2


def test_a_request_that_was_sent_is_never_sent_again(serve: Serve, connect: Make) -> None:
    answers = [ANSWER, b""]

    def second_is_dropped(connection: socket.socket, _: int) -> None:
        while answers:
            receive(connection)
            connection.sendall(answers.pop(0))

    transport = connect(serve(second_is_dropped).url)
    transport.call(REQUEST).run()
    exchange = transport.call(REQUEST).run()
    assert exchange.ending == "unanswered"
    assert "before a response came" in exchange.detail
    assert answers == []
    assert transport.connections_opened == 1


def test_a_connection_with_bytes_nobody_asked_for_is_not_reused(serve: Serve, connect: Make) -> None:
    def talks_on(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(ANSWER + b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        receive(connection)

    transport = connect(serve(talks_on).url)
    assert body(transport.call(REQUEST).run()) == b"ok"
    assert body(transport.call(REQUEST).run()) == b"ok"
    assert transport.connections_opened == 2


def test_many_calls_at_once_have_a_connection_each(serve: Serve, connect: Make) -> None:
    gate = threading.Barrier(20)

    def together(connection: socket.socket, _: int) -> None:
        receive(connection)
        gate.wait(10)
        connection.sendall(ANSWER)

    transport = connect(serve(together).url)
    greenlets = [gevent.spawn(transport.call(REQUEST).run) for _ in range(20)]
    gevent.joinall(greenlets, timeout=20)
    assert [greenlet.value.ending for greenlet in greenlets] == ["complete"] * 20
    assert transport.connections_opened == 20


# Endings


def test_a_response_that_ends_with_the_connection_is_complete(serve: Serve, connect: Make) -> None:
    def old(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nall of it")

    exchange = connect(serve(old).url).call(REQUEST).run()
    assert (exchange.ending, body(exchange)) == ("complete", b"all of it")


def test_a_reset_inside_a_response_is_a_cut(serve: Serve, connect: Make) -> None:
    def resets(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(ANSWER[:-1])
        time.sleep(0.05)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    exchange = connect(serve(resets).url).call(REQUEST).run()
    assert (exchange.ending, exchange.status) == ("cut", 200)
    assert exchange.detail == "Connection reset by peer inside the response"


def test_an_answer_before_the_whole_request_was_read_is_still_read(serve: Serve, connect: Make) -> None:
    def impatient(connection: socket.socket, _: int) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        while connection.recv(65536):
            pass

    big = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000)
    exchange = connect(serve(impatient).url).call(big).run()
    assert exchange.status == 413


def test_a_request_larger_than_the_socket_takes_at_once_is_sent_whole(serve: Serve, connect: Make) -> None:
    def slow(connection: socket.socket, _: int) -> None:
        time.sleep(0.05)
        receive(connection)
        connection.sendall(ANSWER)

    big = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n" + bytes(8_000_000)
    exchange = connect(serve(slow).url).call(big).run()
    assert exchange.ending == "complete"
    assert exchange.sent_ns is not None


def test_nobody_listening_is_told_with_the_systems_words(connect: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    transport = connect(f"http://127.0.0.1:{port}")
    exchange = transport.call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("unconnected", "Connection refused")
    with pytest.raises(
        RunFailedError, match=rf"cannot connect to http://127.0.0.1:{port}: Connection refused"
    ):
        transport.probe()


def test_an_unknown_host_is_told_in_words(connect: Make) -> None:
    transport = connect("http://no-such-host.invalid:1")
    assert transport.call(REQUEST).run().ending == "unconnected"
    with pytest.raises(RunFailedError, match=r"cannot connect to http://no-such-host\.invalid:1: "):
        transport.probe()


def test_a_probe_hangs_up_again(serve: Serve, connect: Make) -> None:
    hung_up = threading.Event()

    def waits(connection: socket.socket, _: int) -> None:
        if not connection.recv(1):
            hung_up.set()

    connect(serve(waits).url).probe()
    assert hung_up.wait(5)


# Deadlines: each with its own words


def starts_and_stops(connection: socket.socket, _: int) -> None:
    receive(connection)
    connection.sendall(ANSWER[:-1])
    connection.recv(1)


def drips(connection: socket.socket, _: int) -> None:
    receive(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(0.01)


def never_reads(connection: socket.socket, _: int) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    time.sleep(20)


@pytest.mark.parametrize(
    ("script", "timeouts", "words"),
    [
        (silent, Timeouts(first_byte_s=0.1), "first byte: nothing came within 0.1 s of sending"),
        (starts_and_stops, Timeouts(idle_s=0.1), "idle: nothing came for 0.1 s"),
        (drips, Timeouts(total_s=0.3), "total: not done within 0.3 s"),
        (silent, Timeouts(total_s=0.2), "total: not done within 0.2 s"),
    ],
)
def test_each_deadline_has_its_own_words(
    serve: Serve, connect: Make, script: Script, timeouts: Timeouts, words: str
) -> None:
    exchange = connect(serve(script).url, timeouts).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("timeout", words)
    assert exchange.ended_ns > 0


def test_a_server_that_takes_no_more_bytes_runs_into_the_total_deadline(serve: Serve, connect: Make) -> None:
    big = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n" + bytes(30_000_000)
    exchange = connect(serve(never_reads).url, Timeouts(total_s=0.3)).call(big).run()
    assert (exchange.ending, exchange.sent_ns) == ("timeout", None)


def test_a_full_backlog_runs_into_the_connect_deadline(connect: Make) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        exchange = connect(f"http://127.0.0.1:{port}", Timeouts(connect_s=0.1)).call(REQUEST).run()
        for filler in fillers:
            filler.close()
    assert (exchange.ending, exchange.detail) == ("timeout", "connect: no connection within 0.1 s")


# The run's end


def wait_for_bytes(calls: list[Call]) -> None:
    with gevent.Timeout(10):
        while not all(call.exchange.pieces for call in calls):
            gevent.sleep(0.005)


def test_cancelling_ends_calls_wherever_they_are(serve: Serve, connect: Make) -> None:
    transport = connect(serve(drips).url)
    calls = [transport.call(REQUEST) for _ in range(3)]
    greenlets = [gevent.spawn(call.run) for call in calls]
    wait_for_bytes(calls)
    assert transport.cancel() == 3
    gevent.joinall(greenlets, timeout=5)
    for greenlet in greenlets:
        assert greenlet.value.ending == "cancelled"
        assert body(greenlet.value)
    assert transport.cancel() == 0


def test_a_killed_greenlet_leaves_a_cancelled_exchange(serve: Serve, connect: Make) -> None:
    call = connect(serve(drips).url).call(REQUEST)
    greenlet = gevent.spawn(call.run)
    wait_for_bytes([call])
    greenlet.kill()
    assert call.exchange.ending == "cancelled"
    assert call.exchange.ended_ns > 0


# Stamps


def test_stamps_are_taken_at_arrival_even_while_the_reader_is_busy(
    serve: Serve, connect: Make, stamping: Stamps
) -> None:
    if stamping.source != "kernel":
        pytest.skip("this kernel does not stamp")
    sent_ns: list[int] = []

    def answers_soon(connection: socket.socket, _: int) -> None:
        receive(connection)
        sent_ns.append(time.monotonic_ns())
        connection.sendall(ANSWER)
        sent_ns.append(time.monotonic_ns())

    transport = connect(serve(answers_soon).url)
    greenlet = gevent.spawn(transport.call(REQUEST).run)
    gevent.sleep(0.005)
    while len(sent_ns) < 2:
        time.sleep(0.001)  # blocks the hub: nothing can be read
    time.sleep(0.2)
    busy_until_ns = time.monotonic_ns()
    greenlet.join(timeout=5)
    exchange = greenlet.value
    arrived_ns = exchange.pieces[0][0] + transport.clock.zero_ns
    assert exchange.stamp_source == "kernel"
    assert sent_ns[0] <= arrived_ns < busy_until_ns - 100_000_000


def test_without_kernel_stamps_the_readers_clock_is_used_and_recorded(serve: Serve) -> None:
    peer = serve()
    transport = Transport(endpoint.parse(peer.url, "/x"), Timeouts(), RunClock(), Stamps("user"))
    exchange = transport.call(REQUEST).run()
    transport.close()
    assert exchange.stamp_source == "user"
    assert exchange.sent_ns is not None
    assert exchange.sent_ns <= exchange.pieces[0][0] <= exchange.ended_ns


HEAD_OF_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_stream_that_goes_on_for_longer_than_the_idle_limit_is_not_idle(
    serve: Serve, connect: Make
) -> None:
    def trickle(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(HEAD_OF_CHUNKS)
        for _ in range(12):
            time.sleep(0.05)
            connection.sendall(b"1\r\nx\r\n")
        connection.sendall(b"0\r\n\r\n")

    exchange = connect(serve(trickle).url, Timeouts(idle_s=0.3)).call(REQUEST).run()
    assert (exchange.ending, body(exchange)) == ("complete", b"x" * 12)


def test_pieces_of_a_chunked_body_keep_their_own_instants_though_they_are_framed_together(
    serve: Serve, connect: Make
) -> None:
    sent_ns: list[int] = []

    def slowly(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(HEAD_OF_CHUNKS)
        for _ in range(10):
            time.sleep(0.02)
            sent_ns.append(time.monotonic_ns())
            connection.sendall(b"1\r\nx\r\n")
        connection.sendall(b"0\r\n\r\n")

    transport = connect(serve(slowly).url)
    exchange = transport.call(REQUEST).run()
    seen_ns = [stamp_ns + transport.clock.zero_ns for stamp_ns, _ in exchange.pieces]
    late_ns = [seen - sent for seen, sent in zip(seen_ns, sent_ns, strict=True)]
    assert all(0 <= late < 15_000_000 for late in late_ns), late_ns


@pytest.mark.parametrize("end", [b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n", b"1\r\n!\r\n0\r\n\r\n"])
@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_the_last_chunk_is_seen_at_once_wherever_its_bytes_are_cut(
    serve: Serve, connect: Make, end: bytes, cut: int
) -> None:
    def two_parts(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(HEAD_OF_CHUNKS)
        time.sleep(0.02)
        connection.sendall(b"2\r\nok\r\n" + end[:-cut])
        time.sleep(0.02)
        connection.sendall(end[-cut:])
        receive(connection)  # stays open: only the last chunk tells that this is the end

    exchange = connect(serve(two_parts).url, Timeouts(idle_s=5)).call(REQUEST).run()
    assert exchange.ending == "complete"
    assert body(exchange) == b"ok" + (b"!" if b"!" in end else b"")


@pytest.mark.parametrize("end", [b"0\r\n\r\n", b"0\r\nX-Trailer: 1\r\n\r\n"])
@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_bytes_after_the_last_chunk_hold_nobody_up(serve: Serve, connect: Make, end: bytes, cut: int) -> None:
    def goes_on(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(HEAD_OF_CHUNKS)
        time.sleep(0.02)
        connection.sendall(b"2\r\nok\r\n" + end[: len(end) - cut])
        time.sleep(0.02 if cut else 0.0)
        connection.sendall(end[len(end) - cut :] + b"anything else")
        receive(connection)

    call = connect(serve(goes_on).url, Timeouts(idle_s=60)).call(REQUEST)
    runner = gevent.spawn(call.run)
    runner.join(timeout=20)
    assert runner.ready()
    assert (call.exchange.ending, body(call.exchange)) == ("complete", b"ok")


def test_what_had_come_before_a_cut_is_all_there(serve: Serve, connect: Make) -> None:
    def cut(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(HEAD_OF_CHUNKS)
        for _ in range(5):
            time.sleep(0.01)
            connection.sendall(b"1\r\nx\r\n")

    exchange = connect(serve(cut).url).call(REQUEST).run()
    assert (exchange.ending, body(exchange)) == ("cut", b"xxxxx")
