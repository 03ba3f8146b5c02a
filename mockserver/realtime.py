"""The engines of a server on the clock: deadlines are absolute, and how late they were met is measured.

Being late delays what a client sees but changes no event: the engines never learn what time it is. The same
submissions replayed in virtual time, at the stamps that ``submit`` returned, give the same instants.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from mockserver.engine import Engine, Job, StepDone
from mockserver.timer import Timer

_UNWATCHED_NS = 100_000_000  # a tier that serves nobody of ours is looked at this often


class RealTime:
    """Advances engines as their steps end and hands every step to ``on_step(tier_name, step, lag_ns)``.

    Instants are ns since ``start``; engines must have been made with ``start_ns=0``. ``lag_ns`` is how long
    after its end the step was handed over. Not thread-safe: everything happens on the event loop.
    """

    def __init__(self, engines: Mapping[str, Engine], on_step: Callable[[str, StepDone, int], None]) -> None:
        self._engines, self._on_step = dict(engines), on_step
        self._zero_ns = 0
        self._timer: Timer | None = None

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
        self._engines[tier_name].submit(job, now_ns)
        self._set_timer(now_ns)
        return now_ns

    def cancel(self, tier_name: str, job_id: int) -> int | None:
        """Drop a job now; returns the instant, None if it had already ended."""
        now_ns = self.now_ns()
        return now_ns if self._engines[tier_name].cancel(job_id, now_ns) else None

    def tick(self) -> None:
        """Hand over every step that has ended, of all tiers; then sleep until the next one that matters."""
        now_ns = self.now_ns()
        for tier_name, engine in self._engines.items():
            for step in engine.advance(now_ns):
                self._on_step(tier_name, step, now_ns - step.ended_ns)
        self._set_timer(now_ns)

    def _set_timer(self, now_ns: int) -> None:
        if self._timer is None:
            return
        wakeups = [engine.wakeup_ns() for engine in self._engines.values() if engine.own_jobs]
        due_ns = min((at_ns for at_ns in wakeups if at_ns is not None), default=now_ns + _UNWATCHED_NS)
        self._timer.set(self._zero_ns + min(due_ns, now_ns + _UNWATCHED_NS))
