"""The clock's side of the engines: nothing early, everything in order, only while it runs."""

import asyncio
import time
from functools import partial

from mockserver import config
from mockserver.fleet import Fleet
from mockserver.job import Job
from mockserver.realtime import RealTime, Steps

CONFIG = config.load("fast-tier")
MS = 1_000_000


def test_calls_come_in_the_order_of_their_instants_and_never_early() -> None:
    async def main() -> list[tuple[str, int]]:
        came: list[tuple[str, int]] = []
        clock = RealTime(Fleet(CONFIG), lambda _: None)
        clock.start()
        for name, at_ms in (("late", 60), ("soon", 20), ("soon after", 20), ("between", 40)):
            clock.call_at(at_ms * MS, partial(lambda name: came.append((name, clock.now_ns())), name))
        await asyncio.sleep(0.3)
        clock.stop()
        return came

    came = asyncio.run(main())
    assert [name for name, _ in came] == ["soon", "soon after", "between", "late"]
    assert all(at_ns >= due * MS for (_, at_ns), due in zip(came, (20, 20, 40, 60), strict=True))


def test_a_clock_that_was_held_up_hands_all_steps_over_together_in_order() -> None:
    async def main() -> list[Steps]:
        handed: list[Steps] = []
        clock = RealTime(Fleet(CONFIG), handed.append)
        clock.start()
        clock.submit("fast", Job(1, 10, 1000))
        await asyncio.sleep(0.1)
        time.sleep(0.2)  # the point: a loop that comes round late
        await asyncio.sleep(0.05)
        clock.stop()
        return handed

    handed = asyncio.run(main())
    ends = [step.ended_ns for steps in handed for _, step in steps]
    assert ends == sorted(ends)
    assert max(len(steps) for steps in handed) > 10
    for name in ("standard", "fast"):
        numbers = [step.number for steps in handed for engine, step in steps if engine == name]
        assert numbers == list(range(len(numbers)))


def test_a_stopped_clock_hands_nothing_over_and_a_call_for_the_past_comes_at_once() -> None:
    async def main() -> tuple[list[str], int]:
        came: list[str] = []
        handed: list[Steps] = []
        clock = RealTime(Fleet(CONFIG), handed.append)
        clock.start()
        await asyncio.sleep(0.01)
        ticks = len(handed)
        clock.call_at(0, lambda: came.append(f"past, {len(handed) - ticks} ticks later"))
        await asyncio.sleep(0.05)
        clock.stop()
        before = len(handed)
        clock.call_at(clock.now_ns(), lambda: came.append("after"))
        await asyncio.sleep(0.05)
        return came, len(handed) - before

    assert asyncio.run(main()) == (["past, 0 ticks later"], 0)
