"""A whole server in virtual time: as fast as it computes, the same events as on a clock. Pure.

The caller closes the loop: it submits what arrives at the server, asks for the next finish up to the instant
of its own next submission, and adds the network itself.
"""

from collections import deque
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from mockserver import job
from mockserver.config import ServerConfig
from mockserver.fleet import Fleet
from mockserver.job import Job, StepDone


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that has all its tokens. Instants are ns of virtual time, of emission at the server."""

    tier: str
    """The one it was submitted to."""
    engine: str
    """The one that served it."""
    done: job.Finished

    @property
    def job_id(self) -> int:
        """The job's."""
        return self.done.job.id

    @property
    def submitted_ns(self) -> int:
        """When it arrived."""
        return self.done.submitted_ns

    @property
    def first_token_ns(self) -> int:
        """Instant of the first token."""
        return self.done.first_token_ns

    @property
    def ended_ns(self) -> int:
        """Instant of the last token."""
        return self.done.ended_ns

    @property
    def token_ns(self) -> NDArray[np.int64]:
        """Instant of each output token."""
        return self.done.token_ns


class VirtualServer:
    """The fleet of a server, its engines advanced together in the order of their steps' ends.

    Virtual time starts at 0, with every engine's hidden load already at its target. The same configuration,
    seed and calls give the same results to the nanosecond. ``on_step`` sees all steps with their engine's
    name, in order.
    """

    def __init__(
        self,
        config: ServerConfig,
        seed: int | None = None,
        *,
        on_step: Callable[[str, StepDone], None] | None = None,
    ) -> None:
        self.config, self.fleet = config, Fleet(config, seed=seed)
        self._on_step = on_step
        self._tiers: dict[int, str] = {}
        self._finished: deque[Finished] = deque()

    def submit(self, tier_name: str, job: Job, now_ns: int) -> None:
        """Hand a request to a tier at ``now_ns``, its arrival at the server.

        Raises KeyError for an unknown tier and ValueError for an instant that has passed, an id in use or a
        job that can never run.
        """
        self.fleet.submit(tier_name, job, now_ns)
        self._tiers[job.id] = tier_name

    def cancel(self, tier_name: str, job_id: int, now_ns: int) -> bool:
        """Drop a request, as when its client hangs up; False if it is not there any more."""
        dropped = self.fleet.cancel(tier_name, job_id, now_ns)
        if dropped:
            del self._tiers[job_id]
        return dropped

    def next_finish(self, limit_ns: int) -> Finished | None:
        """Advance to the next end of a submitted request at or before ``limit_ns`` and return it.

        None: there is none, and all tiers stand at ``limit_ns``. Otherwise no tier has gone past
        ``ended_ns``, so that the caller can submit from then on.
        """
        if not self._finished:
            for engine_name, step in self.fleet.advance_to_finish(limit_ns):
                self._book(engine_name, step)
        if self._finished and self._finished[0].ended_ns <= limit_ns:
            return self._finished.popleft()
        return None

    def _book(self, engine_name: str, step: StepDone) -> None:
        if self._on_step is not None:
            self._on_step(engine_name, step)
        for done in step.finished:
            tier_name = self._tiers.pop(done.job.id)
            self._finished.append(Finished(tier=tier_name, engine=engine_name, done=done))
