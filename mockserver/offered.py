"""A trace of requests offered to the replicas of one tier: who waited how long. In virtual time, pure.

The trace is the whole load: hidden load, limits and downgrades of the tier are left out. Of a request only
its instants are kept, so that a day of traffic fits in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from mockserver.config import ServerConfig, TierConfig
from mockserver.fleet import Fleet
from mockserver.job import Finished, Job, StepDone
from mockserver.server_config import deployment_of, engine_tier

_FOREVER_NS = 2**62
_SLICE_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Offered:
    """Requests in the order of their arrival; arrays of one length."""

    at_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    blocks: Callable[[int], tuple[int, ...]] | None = None
    """Prefix blocks of a request, by its row; None: nothing is shared."""

    def __len__(self) -> int:
        return len(self.at_ns)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a good request is, and how many there should be."""

    ttft_s: float
    """From arrival at the server to the first token."""
    tpot_s: float
    """Mean time of each further token; an answer of one token has none and is as good."""
    goodput_ratio: float
    """Share of the requests that are to keep both."""

    def misses_allowed(self, requests: int) -> int:
        """How many of so many requests may miss the goal."""
        return int(requests * (1.0 - self.goodput_ratio) + 1e-9)


@dataclass(frozen=True, slots=True)
class Service:
    """What came of it. Times of a request that is not served to its end are NaN."""

    replicas: int
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    """NaN also for answers of one token."""
    missed: int
    """Requests known to miss the goal, refused ones included."""
    refused: int
    """Requests that no replica could ever hold."""
    given_up: bool
    """It was broken off, because the goal could not be reached any more."""
    span_s: float
    """From the first arrival to the end of the last request."""
    busy_ratio: float
    """Share of that time in which a replica was in a step, mean over replicas."""
    mean_batch: float
    """Sequences decoding, mean over that busy time."""
    hit_tokens: int
    """Prompt tokens that were found in a prefix cache."""

    @property
    def goodput_ratio(self) -> float:
        """Share of the requests that kept the goal; an upper bound if it was given up."""
        return 1.0 - self.missed / len(self.ttft_s)


def alone(config: ServerConfig, tier: TierConfig, replicas: int) -> ServerConfig:
    """The same server with that tier only, on engines of its own and so many of them, without hidden load."""
    engine = engine_tier(config, tier)
    only = msgspec.structs.replace(
        engine, name=tier.name, shares=None, replicas=replicas, target_batch=0, limits=None, downgrade_to=None
    )
    deployment = deployment_of(config, tier)
    only = msgspec.structs.replace(only, downgrade_ratio=0.0, deployment={})
    return msgspec.structs.replace(config, tiers=(only,), deployment=deployment, faults=())


def serve(
    config: ServerConfig,
    tier: TierConfig,
    replicas: int,
    offered: Offered,
    goal: Goal,
    *,
    seed: int | None = None,
    give_up: bool = True,
) -> Service:
    """Offer requests to so many replicas of a tier, all of them or, to ``give_up``, until too many missed."""
    fleet = Fleet(alone(config, tier, replicas), seed=seed, keep_tokens=False)
    capacity = min(*fleet.capacities().values(), config.max_context_tokens)
    book = _Book(offered, goal, np.full(len(offered), np.nan), np.full(len(offered), np.nan))
    most = goal.misses_allowed(len(offered)) if give_up else len(offered)
    blocks = offered.blocks if engine_tier(config, tier).prefix_cache is not None else None
    rows = zip(
        offered.at_ns.tolist(), offered.prompt_tokens.tolist(), offered.output_tokens.tolist(), strict=True
    )
    for row, (at_ns, prompt, output) in enumerate(rows):
        _run(fleet, at_ns, book)
        if prompt + output > capacity:
            book.refused += 1
            book.missed += 1
        else:
            job = Job(row, prompt, output, blocks=blocks(row) if blocks is not None else ())
            fleet.submit(tier.name, job, at_ns)
        if book.missed > most:
            return book.close(replicas, given_up=True)
    _run(fleet, _FOREVER_NS, book)
    return book.close(replicas, given_up=False)


def _run(fleet: Fleet, until_ns: int, book: "_Book") -> None:
    """Let the fleet work until then, or until it has nothing to do; never many steps in memory at once."""
    while (wakeup_ns := fleet.wakeup_ns()) is not None and wakeup_ns <= until_ns:
        book.add(fleet.advance(min(until_ns, wakeup_ns + _SLICE_NS)))


@dataclass(slots=True)
class _Book:
    """What is known so far."""

    offered: Offered
    goal: Goal
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    missed: int = 0
    refused: int = 0
    busy_ns: int = 0
    sequence_ns: int = 0
    hit_tokens: int = 0
    ended_ns: int = 0

    def add(self, steps: list[tuple[str, StepDone]]) -> None:
        """Count steps in, and the requests that they finished."""
        busy_ns = sequence_ns = 0
        for _, step in steps:
            lasted_ns = step.ended_ns - step.started_ns
            busy_ns += lasted_ns
            sequence_ns += lasted_ns * step.decode_sequences
            if step.prefill_tokens or step.finished:
                self.hit_tokens += step.hit_tokens
                for done in step.finished:
                    self._finish(done)
            self.ended_ns = step.ended_ns
        self.busy_ns += busy_ns
        self.sequence_ns += sequence_ns

    def _finish(self, done: Finished) -> None:
        row, tokens = done.job.id, done.job.output_tokens
        first_ns, last_ns = done.first_token_ns, done.ended_ns
        ttft_s = (first_ns - done.submitted_ns) / 1e9
        self.ttft_s[row] = ttft_s
        met = ttft_s <= self.goal.ttft_s
        if tokens > 1:
            tpot_s = (last_ns - first_ns) / 1e9 / (tokens - 1)
            self.tpot_s[row] = tpot_s
            met = met and tpot_s <= self.goal.tpot_s
        self.missed += not met

    def close(self, replicas: int, *, given_up: bool) -> Service:
        """Sum up."""
        span_ns = max(1, self.ended_ns - int(self.offered.at_ns[0]))
        return Service(
            replicas=replicas,
            ttft_s=self.ttft_s,
            tpot_s=self.tpot_s,
            missed=self.missed,
            refused=self.refused,
            given_up=given_up,
            span_s=span_ns / 1e9,
            busy_ratio=self.busy_ns / (span_ns * replicas),
            mean_batch=self.sequence_ns / max(1, self.busy_ns),
            hit_tokens=self.hit_tokens,
        )
