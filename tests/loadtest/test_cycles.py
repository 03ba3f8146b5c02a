"""Requests leave nothing to the garbage collector, so it need not hold up arrivals to look for it."""

import gc
import socket
import time
from collections.abc import Iterator

import gevent
import pytest

from loadtest.plan import Timeouts
from tests.loadtest.peer import ANSWER, REQUEST, Make, Script, Serve, receive, silent


def answers(connection: socket.socket, _: int) -> None:
    for _ in range(3):
        receive(connection)
        connection.sendall(ANSWER)


def answers_in_pieces(connection: socket.socket, _: int) -> None:
    receive(connection)
    for place in range(0, len(ANSWER), 20):
        connection.sendall(ANSWER[place : place + 20])
        time.sleep(0.001)


def breaks_off(connection: socket.socket, _: int) -> None:
    receive(connection)
    connection.sendall(ANSWER[:-10])


def is_not_http(connection: socket.socket, _: int) -> None:
    receive(connection)
    connection.sendall(b"good day\r\n\r\n")


@pytest.fixture
def no_collection() -> Iterator[None]:
    gevent.idle()  # greenlets of earlier tests end only when the hub gets its turn, and leave things behind
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("script", [answers, answers_in_pieces, breaks_off, is_not_http, silent])
@pytest.mark.usefixtures("no_collection")
def test_a_call_leaves_no_cycle_however_it_ends(serve: Serve, connect: Make, script: Script) -> None:
    transport = connect(serve(script).url, Timeouts(first_byte_s=0.2, idle_s=0.2))
    endings = [transport.call(REQUEST).run().ending for _ in range(3)]
    kinds = {"ResponseFramer", "HttpResponseParser", "Call", "Exchange"}
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        left = {type(thing).__name__ for thing in gc.garbage} & kinds
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left, endings
