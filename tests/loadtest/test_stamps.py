"""Kernel stamps on the run's clock, also when the wall clock is stepped under it."""

import socket
import struct
import subprocess
import sys

import pytest

from loadtest import clock as clock_module
from loadtest import stamps
from loadtest.clock import RunClock
from tierscope.errors import BadInputError

SECOND = 1_000_000_000
MS = 1_000_000


class Clocks:
    """Both clocks of the machine, in the test's hand."""

    def __init__(self) -> None:
        self.monotonic = 5 * SECOND
        self.realtime = 1_700_000_000 * SECOND

    def monotonic_ns(self) -> int:
        return self.monotonic

    def time_ns(self) -> int:
        return self.realtime

    def time(self) -> float:
        return self.realtime / 1e9

    def pass_ns(self, ns: int) -> None:
        self.monotonic += ns
        self.realtime += ns


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    made = Clocks()
    monkeypatch.setattr(clock_module, "time", made)
    return made


def ancillary(realtime_ns: int) -> stamps.AncillaryData:
    return [(socket.SOL_SOCKET, 35, struct.pack("=qq", *divmod(realtime_ns, SECOND)))]


def test_a_stamp_is_the_time_since_the_runs_start(clocks: Clocks) -> None:
    clock = RunClock()
    clocks.pass_ns(7 * MS)
    stamped = ancillary(clocks.realtime)
    clocks.pass_ns(3 * MS)
    assert clock.now_ns() == 10 * MS
    assert stamps.arrival_ns(clock, stamps.told(stamped), 0, clock.now_ns()) == 7 * MS


@pytest.mark.parametrize("step_s", [3600, -3600, 1, -1])
def test_a_step_of_the_wall_clock_is_found_and_later_stamps_are_right(clocks: Clocks, step_s: int) -> None:
    clock = RunClock()
    clocks.pass_ns(20 * MS)
    clocks.realtime += step_s * SECOND
    stamped = ancillary(clocks.realtime)
    clocks.pass_ns(2 * MS)
    assert stamps.arrival_ns(clock, stamps.told(stamped), 10 * MS, clock.now_ns()) == 20 * MS
    assert clock.stepped_ns == abs(step_s) * SECOND


def test_a_stamp_from_before_a_step_is_given_up_rather_than_believed(clocks: Clocks) -> None:
    clock = RunClock()
    clocks.pass_ns(20 * MS)
    stamped = ancillary(clocks.realtime)
    clocks.realtime += 3600 * SECOND
    clock.recheck()
    assert stamps.arrival_ns(clock, stamps.told(stamped), 10 * MS, clock.now_ns()) is None


def test_a_small_step_is_found_by_looking_again(clocks: Clocks) -> None:
    clock = RunClock()
    assert not clock.recheck()
    clocks.realtime += MS
    assert clock.recheck()
    assert clock.stepped_ns == MS
    assert not clock.recheck()


def test_an_answer_that_came_while_sending_returned_is_not_earlier_than_the_sending(clocks: Clocks) -> None:
    clock = RunClock()
    clocks.pass_ns(10 * MS)
    stamped = ancillary(clocks.realtime)
    clocks.pass_ns(20_000)
    sent_ns = clock.now_ns()
    assert stamps.arrival_ns(clock, stamps.told(stamped), sent_ns, sent_ns + 5) == sent_ns


@pytest.mark.parametrize(
    "foreign", [[], [(socket.SOL_SOCKET, 1, b"x" * 16)], [(socket.SOL_SOCKET, 35, b"short")]]
)
def test_a_read_without_a_stamp_has_none(clocks: Clocks, foreign: stamps.AncillaryData) -> None:
    assert stamps.arrival_ns(RunClock(), stamps.told(foreign), 0, SECOND) is None


def test_the_probe_says_which_stamps_there_are_and_why_not() -> None:
    found = stamps.probe()
    found.close()
    assert found.source in ("kernel", "user")
    assert (found.note == "") == (found.source == "kernel")


def test_a_failing_probe_falls_back_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(stamps, "_probe_loopback", refuse)
    assert stamps.probe() == stamps.Stamps(
        "user", "the probe of kernel receive stamps failed: Operation not permitted"
    )


def test_another_system_falls_back_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert stamps.probe() == stamps.Stamps("user", "kernel receive stamps are not known on darwin")


def test_the_readers_clock_can_be_asked_for_and_the_record_says_so() -> None:
    assert stamps.choose("user") == stamps.Stamps("user", "the reader's clock was asked for")


@pytest.mark.parametrize("wish", ["auto", "kernel"])
def test_kernel_stamps_are_taken_where_there_are_any(
    wish: stamps.StampWish, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = stamps.Stamps("kernel")
    monkeypatch.setattr(stamps, "_probe_loopback", lambda: found)
    monkeypatch.setattr("sys.platform", "linux")
    assert stamps.choose(wish) is found


def test_kernel_stamps_that_cannot_be_had_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert stamps.choose("auto").source == "user"
    with pytest.raises(BadInputError, match=r"^--stamps: kernel cannot be had: .* on darwin; expected"):
        stamps.choose("kernel")


PROBES_UNDER_LOCUST = """
from gevent import monkey
monkey.patch_all()
from loadtest import stamps
print(stamps.probe())
"""


def test_under_locust_the_probe_finds_what_it_finds_elsewhere() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROBES_UNDER_LOCUST], capture_output=True, text=True, timeout=30, check=True
    )
    here = stamps.probe()
    here.close()
    assert f"source={here.source!r}" in ended.stdout
    assert f"departures={here.departures}" in ended.stdout
