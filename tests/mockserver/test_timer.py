"""The timer: never early, one instant at a time, silent once closed, with and without a timerfd."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import pytest

from mockserver.timer import Timer

MS = 1_000_000


def run(body: Callable[[Timer, list[int]], Awaitable[None]]) -> list[int]:
    fired_ns: list[int] = []

    async def main() -> None:
        timer = Timer(asyncio.get_running_loop(), lambda: fired_ns.append(time.monotonic_ns()))
        await body(timer, fired_ns)
        timer.close()

    asyncio.run(main())
    return fired_ns


@pytest.fixture(params=["timerfd", "loop"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "loop":
        monkeypatch.setattr(sys, "platform", "elsewhere")


def test_it_fires_once_and_not_before_its_instant() -> None:
    at_ns = time.monotonic_ns() + 20 * MS

    async def body(timer: Timer, fired_ns: list[int]) -> None:
        timer.set(at_ns)
        await asyncio.sleep(0.2)

    (fired,) = run(body)
    assert fired >= at_ns - MS  # the loop's own timers may be early by their resolution


def test_a_new_instant_replaces_the_old_one() -> None:
    async def body(timer: Timer, fired_ns: list[int]) -> None:
        timer.set(time.monotonic_ns() + 10 * MS)
        timer.set(time.monotonic_ns() + 10**12)
        await asyncio.sleep(0.05)
        assert fired_ns == []
        timer.set(time.monotonic_ns() + 10 * MS)
        await asyncio.sleep(0.1)

    assert len(run(body)) == 1


def test_an_instant_that_has_passed_fires_at_once() -> None:
    async def body(timer: Timer, fired_ns: list[int]) -> None:
        for _ in range(3):
            timer.set(time.monotonic_ns() - 10**9)
            await asyncio.sleep(0.02)

    assert len(run(body)) == 3


def test_a_closed_timer_is_silent() -> None:
    async def body(timer: Timer, fired_ns: list[int]) -> None:
        timer.set(time.monotonic_ns() + 5 * MS)
        timer.close()
        await asyncio.sleep(0.03)

    assert run(body) == []
