"""The engines of a server on the clock: deadlines are absolute, and how late they were met is measured.

Being late delays what a client sees but changes no event: the engines never learn what time it is. The same
submissions replayed in virtual time, at the stamps that ``submit`` returned, give the same instants.
"""

import asyncio
import heapq
import time
from collections.abc import Callable

from mockserver.fleet import Fleet
from mockserver.job import Job, StepDone
from mockserver.timer import Timer

_UNWATCHED_NS = 100_000_000  # engines that serve nobody of ours are looked at this often

Steps = list[tuple[str, StepDone]]


class RealTime:
    """Advances a fleet as its steps end and hands them to ``on_steps``, with their engines' names.

    Usually that is one step; where the host is late, several. Instants are ns since ``start``; the fleet must
    have been made with ``start_ns=0``. Not thread-safe: everything happens on the event loop.
    """

    def __init__(self, fleet: Fleet, on_steps: Callable[[Steps], None]) -> None:
        self._fleet, self._on_steps = fleet, on_steps
        self._zero_ns = 0
        self._timer: Timer | None = None
        self._wakes_ns = 0  # when the timer will fire, unless it has
        self._calls: list[tuple[int, int, Callable[[], None]]] = []
        self._called = 0
        self.engine_ns = 0
        """Time spent in the engines so far."""

    def start(self) -> None:
        """Begin: this instant is zero. Needs a running event loop."""
        self._zero_ns = time.monotonic_ns()
        self._timer = Timer(asyncio.get_running_loop(), self.tick)
        self.tick()

    def stop(self) -> None:
        """Never tick again."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def now_ns(self) -> int:
        """The present, in ns since the start."""
        return time.monotonic_ns() - self._zero_ns

    def submit(self, tier_name: str, job: Job) -> int:
        """Hand in a job now; returns the instant that counts as its submission."""
        now_ns = self.now_ns()
        self._fleet.submit(tier_name, job, now_ns)
        self._set_timer(now_ns, only_sooner=True)
        return now_ns

    def cancel(self, tier_name: str, job_id: int) -> int | None:
        """Drop a job now; returns the instant, None if it had already ended."""
        now_ns = self.now_ns()
        return now_ns if self._fleet.cancel(tier_name, job_id, now_ns) else None

    def call_at(self, at_ns: int, callback: Callable[[], None]) -> None:
        """Call back at an instant, with the precision of steps; those of one instant in their order."""
        self._called += 1
        heapq.heappush(self._calls, (at_ns, self._called, callback))
        if self._calls[0][1] == self._called:
            self._set_timer(self.now_ns(), only_sooner=True)

    def tick(self) -> None:
        """Hand over every step that has ended, of all engines; then sleep until the next one that matters."""
        now_ns = self.now_ns()
        try:
            while self._calls and self._calls[0][0] <= now_ns:
                heapq.heappop(self._calls)[2]()
            begun_ns = self.now_ns()
            steps = self._fleet.advance(now_ns)
            self.engine_ns += self.now_ns() - begun_ns
            if steps:
                self._on_steps(steps)
        finally:  # whatever fails for one must not stop the clock for all
            self._set_timer(now_ns)

    def _set_timer(self, now_ns: int, *, only_sooner: bool = False) -> None:
        """Have a tick come when something is due; ``only_sooner``: one that comes before will do."""
        if self._timer is None:
            return
        due_ns = self._fleet.wakeup_ns(watched=True)
        at_ns = now_ns + _UNWATCHED_NS if due_ns is None else min(due_ns, now_ns + _UNWATCHED_NS)
        if self._calls:
            at_ns = min(at_ns, self._calls[0][0])
        if not only_sooner or at_ns < self._wakes_ns:
            self._wakes_ns = at_ns
            self._timer.set(self._zero_ns + at_ns)
