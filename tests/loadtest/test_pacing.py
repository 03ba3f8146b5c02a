"""Absolute instants are waited for, with and without a timerfd."""

import time

import gevent
import pytest

from loadtest import pacing
from loadtest.pacing import Alarm

MS = 1_000_000


@pytest.fixture(params=["timerfd", "gevent"])
def alarm(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Alarm:
    if request.param == "gevent":
        monkeypatch.setattr(pacing, "_libc", lambda: None)
    made = Alarm()
    if request.param == "timerfd" and not made.exact:
        pytest.skip("this system has no timerfd")
    return made


def test_nobody_is_woken_before_the_instant(alarm: Alarm) -> None:
    start_ns = time.monotonic_ns()
    for offset_ns in (3 * MS, 3 * MS + 100_000, 9 * MS):
        alarm.wait_until(start_ns + offset_ns)
        assert time.monotonic_ns() >= start_ns + offset_ns
    alarm.close()


def test_an_instant_that_has_passed_is_not_waited_for(alarm: Alarm) -> None:
    switched = gevent.spawn(lambda: None)
    alarm.wait_until(time.monotonic_ns() - 1)
    assert not switched.ready()  # no other greenlet ran
    switched.join()
    alarm.close()


def test_others_run_meanwhile_and_a_killed_waiter_gives_everything_back(alarm: Alarm) -> None:
    waiter = gevent.spawn(alarm.wait_until, time.monotonic_ns() + 60_000 * MS)
    gevent.sleep(0.01)
    assert not waiter.ready()
    waiter.kill()
    alarm.wait_until(time.monotonic_ns() + MS)
    alarm.close()
    alarm.close()
