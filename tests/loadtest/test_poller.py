"""Watching many sockets at once: everybody who has something to read is called, and nobody else."""

import _socket
import socket
from collections.abc import Callable, Iterator

import gevent
import pytest

from loadtest.poller import HubPoller, Poller, poller

Pairs = Callable[[int], "list[Pair]"]


@pytest.fixture(params=[poller, HubPoller], ids=["epoll", "hub"])
def watching(request: pytest.FixtureRequest) -> Iterator[Poller]:
    made: Poller = request.param()
    yield made
    made.close()


Pair = tuple[_socket.socket, _socket.socket]


@pytest.fixture
def pairs() -> Iterator[Callable[[int], list[Pair]]]:
    made: list[Pair] = []

    def make(count: int) -> list[Pair]:
        for _ in range(count):
            near, far = socket.socketpair()
            made.append((_socket.socket(fileno=near.detach()), _socket.socket(fileno=far.detach())))
            made[-1][0].setblocking(False)
        return made[-count:]

    yield make
    for pair in made:
        for end in pair:
            end.close()


def until(happened: Callable[[], bool]) -> None:
    with gevent.Timeout(10):
        while not happened():
            gevent.sleep(0.001)


def test_each_of_two_hundred_that_have_something_is_called_until_it_has_read_it(
    watching: Poller, pairs: Pairs
) -> None:
    made = pairs(200)
    seen: dict[int, bytes] = {}

    def reader(number: int) -> Callable[[], None]:
        def read() -> None:
            seen[number] = seen.get(number, b"") + made[number][0].recv(1)

        return read

    for number, (near, _) in enumerate(made):
        watching.watch(near, reader(number))
    for number, (_, far) in enumerate(made[:150]):
        far.send(f"{number:03}".encode())
    until(lambda: sum(map(len, seen.values())) == 450)
    assert seen == {number: f"{number:03}".encode() for number in range(150)}


def test_a_later_reader_takes_the_place_of_the_earlier_one(watching: Poller, pairs: Pairs) -> None:
    [(near, far)] = pairs(1)
    called: list[str] = []
    watching.watch(near, lambda: called.append("first" + near.recv(9).decode()))
    watching.watch(near, lambda: called.append("second" + near.recv(9).decode()))
    far.send(b"!")
    until(lambda: bool(called))
    assert called == ["second!"]


def test_who_was_forgotten_is_not_called_even_in_the_same_round(watching: Poller, pairs: Pairs) -> None:
    made = pairs(20)
    called: list[int] = []

    def first_come(number: int) -> Callable[[], None]:
        def read() -> None:
            called.append(number)
            for near, _ in made:
                watching.forget(near)

        return read

    for number, (near, far) in enumerate(made):
        watching.watch(near, first_come(number))
        far.send(b"!")
    until(lambda: bool(called))
    gevent.sleep(0.02)
    assert len(called) == 1


def test_a_number_that_the_system_gives_again_belongs_to_the_new_socket(
    watching: Poller, pairs: Pairs
) -> None:
    [(old, _)] = pairs(1)
    number = old.fileno()
    watching.watch(old, lambda: pytest.fail("the old one was called"))
    watching.forget(old)
    old.close()
    made = pairs(1)
    near, far = made[0]
    if number not in (near.fileno(), far.fileno()):  # pragma: no cover - the lowest free one is given
        pytest.skip("the number was not given again")
    mine, other = (near, far) if near.fileno() == number else (far, near)
    mine.setblocking(False)
    called: list[bytes] = []
    watching.watch(mine, lambda: called.append(mine.recv(9)))
    other.send(b"new")
    until(lambda: bool(called))
    assert called == [b"new"]


def test_many_readers_do_not_keep_a_timer_waiting_for_all_of_them(watching: Poller, pairs: Pairs) -> None:
    made = pairs(300)
    order: list[str] = []

    def reader(near: _socket.socket) -> Callable[[], None]:
        def read() -> None:
            near.recv(1)
            order.append("read")

        return read

    for near, far in made:
        watching.watch(near, reader(near))
        far.send(b"!")
    timer = gevent.get_hub().loop.timer(0.0)
    timer.start(lambda: order.append("timer"))
    until(lambda: len(order) == 301)
    timer.close()
    if not isinstance(watching, HubPoller):
        assert order.index("timer") < 300, "the hub got no turn"
