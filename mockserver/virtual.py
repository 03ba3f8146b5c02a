"""A whole server in virtual time: as fast as it computes, the same events as on a clock. Pure.

The caller closes the loop: it submits what arrives at the server, asks for the next finish up to the instant
of its own next submission, and adds the network itself.
"""

from collections import deque
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from mockserver import tiers
from mockserver.config import ServerConfig
from mockserver.engine import Job, StepDone


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that has all its tokens. Instants are ns of virtual time, of emission at the server."""

    job_id: int
    tier: str
    submitted_ns: int
    first_token_ns: int
    ended_ns: int
    token_ns: NDArray[np.int64]
    """Instant of each output token."""


class VirtualServer:
    """The engines of all tiers of a server, advanced together in the order of their steps' ends.

    Virtual time starts at 0, with every tier's hidden load already at its target. The same configuration,
    seed and calls give the same results to the nanosecond. ``on_step`` sees all steps, in order.
    """

    def __init__(
        self,
        config: ServerConfig,
        seed: int | None = None,
        *,
        on_step: Callable[[str, StepDone], None] | None = None,
    ) -> None:
        self.config = config
        self._engines = tiers.engines(config, seed=seed)
        self._on_step = on_step
        self._finished: deque[Finished] = deque()

    def submit(self, tier_name: str, job: Job, now_ns: int) -> None:
        """Hand a request to a tier at ``now_ns``, its arrival at the server.

        Raises KeyError for an unknown tier and ValueError for an instant that has passed or a job that can
        never run.
        """
        self._engines[tier_name].submit(job, now_ns)

    def cancel(self, tier_name: str, job_id: int, now_ns: int) -> bool:
        """Drop a request, as when its client hangs up; False if it is not there any more."""
        return self._engines[tier_name].cancel(job_id, now_ns)

    def next_finish(self, limit_ns: int) -> Finished | None:
        """Advance to the next end of a submitted request at or before ``limit_ns`` and return it.

        None: there is none, and all tiers stand at ``limit_ns``. Otherwise no tier has gone past
        ``ended_ns``, so that the caller can submit from then on.
        """
        engines = self._engines
        while not self._finished:
            soonest_ns, tier_name = limit_ns + 1, ""
            for name, engine in engines.items():
                wakeup_ns = engine.wakeup_ns()
                if wakeup_ns is not None and wakeup_ns < soonest_ns:
                    soonest_ns, tier_name = wakeup_ns, name
            if not tier_name:
                for engine in engines.values():
                    engine.advance(limit_ns)
                return None
            self._book(tier_name, engines[tier_name].advance(soonest_ns))
        return self._finished.popleft() if self._finished[0].ended_ns <= limit_ns else None

    def _book(self, tier_name: str, steps: list[StepDone]) -> None:
        for step in steps:
            if self._on_step is not None:
                self._on_step(tier_name, step)
            for done in step.finished:
                self._finished.append(
                    Finished(
                        job_id=done.job.id,
                        tier=tier_name,
                        submitted_ns=done.submitted_ns,
                        first_token_ns=done.first_token_ns,
                        ended_ns=done.ended_ns,
                        token_ns=done.token_ns,
                    )
                )
