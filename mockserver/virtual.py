"""A whole server in virtual time: as fast as it computes, the same events as on a clock. Pure.

The caller closes the loop: it submits what arrives at the server, asks for the next finish up to the instant
of its own next submission, and adds the network itself.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from mockserver import job as jobs
from mockserver.config import ServerConfig
from mockserver.fleet import Fleet
from mockserver.job import Job, Started, StepDone


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request that has all its tokens. Instants are ns of virtual time, of emission at the server."""

    tier: str
    """The one it was submitted to."""
    engine: str
    """The one that served it."""
    done: jobs.Finished
    cut_ns: int | None = None
    """When the server dropped it, if it did (``cut_after_tokens``); ``done`` holds what had come by then."""
    lost_tokens: int = 0
    """Tokens that were generated and not sent: those of the event that was too many, and after it."""

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
        """Instant of the last token, or of the drop."""
        return self.done.ended_ns if self.cut_ns is None else self.cut_ns

    @property
    def token_ns(self) -> NDArray[np.int64]:
        """Instant of each output token."""
        return self.done.token_ns


@dataclass(slots=True)
class _Cut:
    """A job that is to be dropped, and what it has got so far."""

    tier: str
    engine: str
    job: Job
    submitted_ns: int
    after_tokens: int
    tokens_per_event: int
    one_by_one: bool
    token_ns: list[int] = field(default_factory=list)
    """Of tokens whose event was sent; the others are lost with it."""
    gathered_ns: list[int] = field(default_factory=list)
    started: Started | None = None

    def grows(self, count: int, now_ns: int) -> bool:
        """Take in so many tokens more; whether that sends an event which is one too many."""
        sizes = [1] * count if self.one_by_one else [count]
        for place, size in enumerate(sizes):
            self.gathered_ns += [now_ns] * size
            tokens = len(self.token_ns) + len(self.gathered_ns)
            if len(self.gathered_ns) < self.tokens_per_event and tokens < self.job.output_tokens:
                continue
            if tokens > self.after_tokens:
                self.gathered_ns += [now_ns] * (len(sizes) - place - 1)
                return True
            self.token_ns += self.gathered_ns
            self.gathered_ns.clear()
        return False

    def finished(self, cut_ns: int) -> Finished:
        """What there was when it was dropped."""
        started = self.started
        done = jobs.Finished(
            job=self.job,
            submitted_ns=self.submitted_ns,
            token_ns=np.array(self.token_ns, dtype=np.int64),
            admitted_ns=started.admitted_ns if started else self.submitted_ns,
            cached_tokens=started.cached_tokens if started else 0,
            steps=len(set(self.token_ns)),
            mean_batch=0.0,
        )
        return Finished(
            tier=self.tier,
            engine=self.engine,
            done=done,
            cut_ns=cut_ns,
            lost_tokens=len(self.gathered_ns),
        )


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
        self._cuts: dict[int, _Cut] = {}
        self._finished: deque[Finished] = deque()

    def submit(
        self,
        tier_name: str,
        job: Job,
        now_ns: int,
        *,
        cut_after_tokens: int | None = None,
        tokens_per_event: int = 1,
        one_by_one: bool = False,
    ) -> None:
        """Hand a request to a tier at ``now_ns``, its arrival at the server.

        With ``cut_after_tokens`` it is dropped at the instant of the first event that would take it past so
        many; an event gathers ``tokens_per_event`` tokens at least, and all that a step brings unless they
        are handed on ``one_by_one``. Raises KeyError for an unknown tier and ValueError for an instant that
        has passed, an id in use or a job that can never run.
        """
        engine_name = self.fleet.submit(tier_name, job, now_ns)
        self._tiers[job.id] = tier_name
        if cut_after_tokens is not None:
            self._cuts[job.id] = _Cut(
                tier_name, engine_name, job, now_ns, cut_after_tokens, tokens_per_event, one_by_one
            )

    def cancel(self, tier_name: str, job_id: int, now_ns: int) -> bool:
        """Drop a request, as when its client hangs up; False if it is not there any more."""
        dropped = self.fleet.cancel(tier_name, job_id, now_ns)
        if dropped:
            del self._tiers[job_id]
            self._cuts.pop(job_id, None)
        return dropped

    def next_finish(self, limit_ns: int) -> Finished | None:
        """Advance to the next end of a submitted request at or before ``limit_ns`` and return it.

        None: there is none, and all tiers stand at ``limit_ns``. Otherwise no tier has gone past
        ``ended_ns``, so that the caller can submit from then on.
        """
        while not self._finished:
            steps = self.fleet.advance_to_finish(limit_ns, self._cuts)
            for engine_name, step in steps:
                self._book(engine_name, step)
            if not steps or steps[-1][1].ended_ns > limit_ns or not self._cuts:
                break
        if self._finished and self._finished[0].ended_ns <= limit_ns:
            return self._finished.popleft()
        return None

    def _book(self, engine_name: str, step: StepDone) -> None:
        if self._on_step is not None:
            self._on_step(engine_name, step)
        if self._cuts:
            self._cut(step)
        for done in step.finished:
            tier_name = self._tiers.pop(done.job.id, None)
            if tier_name is not None:  # None: cut in this very step
                self._finished.append(Finished(tier=tier_name, engine=engine_name, done=done))

    def _cut(self, step: StepDone) -> None:
        """Drop jobs that got more than they may have."""
        for started in step.started:
            if (cut := self._cuts.get(started.job_id)) is not None:
                cut.started = started
        for place, job_id in enumerate(step.emitted):
            cut = self._cuts.get(job_id)
            if cut is None:
                continue
            count = 1 if step.emitted_tokens is None else step.emitted_tokens[place]
            if cut.grows(count, step.ended_ns):
                self.fleet.cancel(cut.tier, job_id, step.ended_ns)
                del self._tiers[job_id], self._cuts[job_id]
                self._finished.append(cut.finished(step.ended_ns))
