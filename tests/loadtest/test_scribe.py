"""Records made in slices: in order, each once, and with the sockets looked at in between."""

import itertools
import os
import time
from collections.abc import Iterator

import gevent
import pytest
from gevent.event import AsyncResult

from loadtest import scribe as scribe_module
from loadtest.exchange import Exchange
from loadtest.plan import Tier
from loadtest.records import Outcome, RequestRecord
from loadtest.scribe import Attempt, Scribe
from loadtest.slices import Agenda, Slices
from loadtest.workload import Request

TIER = Tier(name="a")


def finished(index: int, answered: "AsyncResult[str | None] | None" = None) -> Attempt:
    request = Request(index=index, stage="s", warmup=False, tier=TIER, prompt_tokens=4, max_tokens=8)
    return Attempt(request, Exchange(stamp_source="kernel"), 0, answered)


def record(index: int, outcome: Outcome = "ok") -> RequestRecord:
    return RequestRecord(
        index=index, stage="s", requested_tier="a", model="m", prompt_class_tokens=4, max_tokens=8,
        scheduled_ns=0, outcome=outcome, stamp_source="kernel", ended_ns=9,
    )  # fmt: skip


class Socket:
    """A descriptor that is always ready to be read; ``looks`` counts how often the hub looked at it."""

    def __init__(self) -> None:
        self.looks = 0
        self._ends = os.pipe()
        os.write(self._ends[1], b"x")
        self._watcher = gevent.get_hub().loop.io(self._ends[0], 1)
        self._watcher.start(self._count)

    def _count(self) -> None:
        self.looks += 1

    def close(self) -> None:
        self._watcher.stop()
        self._watcher.close()
        for end in self._ends:
            os.close(end)


@pytest.fixture
def ready() -> Iterator[Socket]:
    made = Socket()
    yield made
    made.close()


def test_the_hub_looks_at_its_sockets_after_each_slice(ready: Socket) -> None:
    slices, looks = Slices(Agenda(), slice_ns=0), list[int]()
    for _ in range(100):
        slices.breathe()
        looks.append(ready.looks)
    slices.close()
    assert all(after > before for before, after in itertools.pairwise(looks))


def test_what_can_wait_waits_for_what_is_due_before_it_would_be_done() -> None:
    agenda, order = Agenda(), list[str]()
    slices = Slices(agenda, slice_ns=10**12)

    def keep() -> None:
        order.append("kept")
        agenda.keep()

    for due_in_s, expected in ((0.001, ["one", "kept", "two"]), (1000.0, ["one", "two", "kept"])):
        order.clear()
        slices.begin()
        agenda.expect(time.monotonic_ns() + int(due_in_s * 1e9))
        keeper = gevent.spawn(keep)
        time.sleep(0.002)  # one thing takes so long, and the next is taken to need as much
        order.append("one")
        slices.breathe()
        order.append("two")
        keeper.join()
        assert order == expected
    slices.close()


def test_nobody_waits_for_long_for_what_does_not_happen() -> None:
    agenda = Agenda()
    slices = Slices(agenda)
    agenda.expect(time.monotonic_ns())
    begun_s = time.monotonic()
    slices.breathe()
    assert time.monotonic() - begun_s < 5
    slices.close()


def test_what_has_ended_is_read_in_order_while_arrivals_are_looked_after(ready: Socket) -> None:
    written, looks = list[int](), list[int]()

    def write(one: Attempt) -> RequestRecord:
        written.append(one.request.index)
        looks.append(ready.looks)
        begun_s = time.perf_counter()
        while time.perf_counter() - begun_s < 0.0005:
            pass
        return record(one.request.index)

    scribe = Scribe(write, lambda _: "")
    for index in range(60):
        scribe.put(finished(index))
    assert written == []  # putting reads nothing
    scribe.close()
    assert written == list(range(60))
    longest = max(looks.count(look) for look in set(looks))
    assert longest <= 4  # half a millisecond each, and a slice is one


def test_a_backlog_that_grows_too_long_is_worked_through(
    ready: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe_module, "_MOST_WAITING", 10)
    monkeypatch.setattr(scribe_module, "Slices", lambda agenda: Slices(agenda, slice_ns=0))
    looks = list[int]()

    def write(one: Attempt) -> RequestRecord:
        looks.append(ready.looks)
        return record(one.request.index)

    scribe = Scribe(write, lambda _: "")
    for index in range(50):
        scribe.put(finished(index))
    scribe.close()
    assert len(set(looks[:41])) == 1
    assert len(set(looks[41:])) == 9


def test_a_conversation_is_given_the_answer_or_that_there_is_none() -> None:
    outcomes: dict[int, Outcome] = {0: "ok", 1: "timeout"}
    scribe = Scribe(lambda one: record(one.request.index, outcomes[one.request.index]), lambda _: "so it is")
    waiting = [finished(index, AsyncResult()) for index in outcomes]
    for one in waiting:
        scribe.put(one)
    scribe.close()
    assert [one.answered.get_nowait() for one in waiting if one.answered] == ["so it is", None]
    assert [one.record and one.record.outcome for one in waiting] == ["ok", "timeout"]


def test_a_fault_in_one_record_keeps_no_other_from_being_made() -> None:
    def write(one: Attempt) -> RequestRecord:
        if one.request.index == 1:
            raise ZeroDivisionError
        return record(one.request.index)

    scribe = Scribe(write, lambda _: "")
    all_of_them = [finished(index, AsyncResult()) for index in range(3)]
    for one in all_of_them:
        scribe.put(one)
    scribe.close()
    assert [one.record is None for one in all_of_them] == [False, True, False]
    assert isinstance(scribe.fault, ZeroDivisionError)


def test_draining_waits_for_what_was_put_and_for_nothing_else() -> None:
    written = list[int]()

    def write(one: Attempt) -> RequestRecord:
        written.append(one.request.index)
        return record(one.request.index)

    scribe = Scribe(write, lambda _: "")
    scribe.drain()
    for index in range(5):
        scribe.put(finished(index))
        scribe.drain()
        assert written == list(range(index + 1))
    scribe.close()
