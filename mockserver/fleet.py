"""All engines of a server: tiers, their replicas behind a balancer, tiers that share another's engines. Pure.

All engines have come to an instant before anything is submitted or cancelled at it: what a balancer sees is
how things stand then, whoever polls and however late. Engines that remember prefixes together take their
steps one by one in the order of their ends. Only an engine that has something to do is touched: a step costs
O(log engines) at most.

An engine is called by its tier, ``standard``, or where there are several ``standard/0``, ``standard/1``, …
"""

import heapq
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, replace

import msgspec

from mockserver import tiers
from mockserver.balancer import Balancer, balancer
from mockserver.config import ServerConfig, TierConfig
from mockserver.engine import Engine
from mockserver.job import Job, StepDone
from mockserver.prefix_store import PrefixStore

_Ended = tuple[int, int, StepDone]
"""A step with its end and the number of its engine."""


@dataclass(frozen=True, slots=True)
class _Group:
    """The replicas of one tier: engines ``first`` to ``first + replicas - 1``."""

    first: int
    balancer: Balancer


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a tier's jobs enter: to which engines, with what priority, as whose prefixes."""

    group: _Group
    priority: int
    namespace: str
    caches: bool


class Fleet:
    """``submit``, ``cancel``, ``advance``, ``wakeup_ns``, as of one engine. Ids of jobs are unique in it.

    ``seed`` overrides the configuration's. Every engine is warm at ``start_ns``, with a seed of its own.
    Without ``keep_tokens`` nobody hears of single tokens (``Engine``), which is quicker.
    """

    def __init__(
        self, config: ServerConfig, *, seed: int | None = None, start_ns: int = 0, keep_tokens: bool = True
    ) -> None:
        chosen = config.seed if seed is None else seed
        self._keep_tokens, self._store = keep_tokens, _shared_store(config)
        self.engines = dict[str, Engine]()
        self._entries: dict[str, _Entry] = {}
        groups: dict[str, _Group] = {}
        for tier in config.tiers:
            if tier.shares is None:
                groups[tier.name] = self._replicas(config, tier, chosen, start_ns)
        owners = {tier.name: tier for tier in config.tiers}
        for tier in config.tiers:
            owner = owners[tier.shares] if tier.shares is not None else tier
            self._entries[tier.name] = _entry(tier, owner, groups[owner.name])
        self._names, self._list = list(self.engines), list(self.engines.values())
        self._now_ns = start_ns
        self._wakeups = [engine.wakeup_ns() for engine in self._list]
        self._due = [(at_ns, number) for number, at_ns in enumerate(self._wakeups) if at_ns is not None]
        heapq.heapify(self._due)
        self._where: dict[int, tuple[str, int]] = {}  # job → its tier, number of its engine
        self._busy: dict[int, int] = {}  # engine → own jobs there, where there are any
        self._done: list[tuple[str, StepDone]] = []

    @property
    def own_jobs(self) -> int:
        """Jobs that were submitted and have neither finished nor been cancelled."""
        return len(self._where)

    def capacities(self) -> dict[str, int]:
        """KV tokens of each engine, by its name."""
        return {name: engine.limits.kv_tokens for name, engine in self.engines.items()}

    def submit(self, tier_name: str, job: Job, now_ns: int) -> str:
        """Hand a tier a job; returns the name of the engine that got it.

        The tier's priority and namespace take the place of the job's. Raises KeyError for an unknown tier and
        ValueError for what no engine takes, or an instant before the previous call's.
        """
        entry = self._entries[tier_name]
        if job.id in self._where:
            raise ValueError(f"{job}: an id in use")
        self._run_until(now_ns)
        group = entry.group
        number = group.first + group.balancer.choose(job.blocks)
        blocks = job.blocks if entry.caches else ()
        self._where[job.id] = (tier_name, number)
        self._busy[number] = self._busy.get(number, 0) + 1
        try:
            self._list[number].submit(
                replace(job, priority=entry.priority, namespace=entry.namespace, blocks=blocks), now_ns
            )
        except ValueError:
            self._forget(job.id)
            raise
        self._schedule(number)
        return self._names[number]

    def cancel(self, tier_name: str, job_id: int, now_ns: int) -> bool:
        """Drop a tier's job wherever it is. False if it is not there any more."""
        self._run_until(now_ns)
        tier, number = self._where.get(job_id, ("", 0))
        if tier != tier_name:
            return False
        self._list[number].cancel(job_id, now_ns)
        self._forget(job_id)
        self._schedule(number)
        return True

    def advance(self, now_ns: int) -> list[tuple[str, StepDone]]:
        """Every step that ended at or before ``now_ns`` and was not returned yet, with its engine's name.

        In the order of their ends; of equal ones in the engines' order.
        """
        if now_ns > self._now_ns:
            self._run_until(now_ns)
        count = len(self._done)
        if count and self._done[-1][1].ended_ns > now_ns:
            count = bisect_right(self._done, now_ns, key=_ended_ns)
        steps, self._done = self._done[:count], self._done[count:]
        return steps

    def advance_to_finish(
        self, limit_ns: int, watched: Collection[int] = frozenset()
    ) -> list[tuple[str, StepDone]]:
        """The same, but no engine goes past the end of the first step that finishes a job.

        Nor past one that brings a token to one of the ``watched`` jobs.
        """
        if limit_ns > self._now_ns:
            if self._store is not None:
                self._step_by_step(limit_ns, watched, to_finish=True)
            else:
                self._to_finish(limit_ns, watched)
        return self.advance(min(limit_ns, self._now_ns))

    def wakeup_ns(self, *, watched: bool = False) -> int | None:
        """The next instant at which ``advance`` has something to do; None: not before another submission.

        ``watched``: only of engines that have jobs of ours, in O(those).
        """
        if self._done:
            return self._done[0][1].ended_ns
        if watched:
            wakeups = (self._wakeups[number] for number in self._busy)
            return min((at_ns for at_ns in wakeups if at_ns is not None), default=None)
        while self._due and self._wakeups[self._due[0][1]] != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _run_until(self, now_ns: int) -> None:
        """Let engines take their steps up to ``now_ns``: each by itself, unless one sees what others do."""
        if now_ns < self._now_ns:
            raise ValueError(f"time runs backwards: {now_ns} after {self._now_ns}")
        if self._store is not None:
            self._step_by_step(now_ns)
        self._catch_up(now_ns, [])

    def _catch_up(self, now_ns: int, ended: list[_Ended]) -> None:
        """Bring every engine to ``now_ns``; ``ended`` are steps up to then that are known already."""
        self._now_ns, due = now_ns, self._due
        while due and due[0][0] <= now_ns:
            at_ns, number = heapq.heappop(due)
            if self._wakeups[number] == at_ns:  # else it says what was so once
                ended += [(step.ended_ns, number, step) for step in self._list[number].advance(now_ns)]
                self._schedule(number)
        ended.sort()  # no engine has two steps of one end
        names = self._names
        self._done += [(names[number], step) for _, number, step in ended]
        for _, _, step in ended:
            if step.finished:
                self._forget_all(step)

    def _to_finish(self, limit_ns: int, watched: Collection[int]) -> None:
        """Let engines with jobs of ours go on to the first end of one, or ``limit_ns``; then all the others.

        Where only one has any, it goes there by itself.
        """
        ended, until_ns = list[_Ended](), limit_ns
        alone = len(self._busy) == 1 and not watched
        due = [(at_ns, number) for number in self._busy if (at_ns := self._wakeups[number]) is not None]
        heapq.heapify(due)
        while due and due[0][0] <= until_ns:
            at_ns, number = due[0]
            engine = self._list[number]
            steps = engine.advance_to_finish(limit_ns) if alone else engine.advance(at_ns)
            ended += [(step.ended_ns, number, step) for step in steps]
            wakeup_ns = self._schedule(number)
            heapq.heapreplace(due, (limit_ns + 1 if wakeup_ns is None else wakeup_ns, number))
            if steps and (steps[-1].finished or (watched and _brings(steps[-1], watched))):
                until_ns = steps[-1].ended_ns
                break
        self._catch_up(until_ns, ended)

    def _step_by_step(
        self, limit_ns: int, watched: Collection[int] = frozenset(), *, to_finish: bool = False
    ) -> None:
        """Let engines take their steps in the order of their ends, perhaps to the first that matters."""
        due, wakeups, engines = self._due, self._wakeups, self._list
        while due and due[0][0] <= limit_ns:
            at_ns, number = due[0]
            if wakeups[number] != at_ns:
                heapq.heappop(due)
                continue
            steps = engines[number].advance(at_ns)
            wakeups[number] = wakeup_ns = engines[number].wakeup_ns()
            if wakeup_ns is None:
                heapq.heappop(due)
            else:
                heapq.heapreplace(due, (wakeup_ns, number))
            matters = False
            for step in steps:
                matters |= self._book(number, step, watched)
            if matters and to_finish:
                self._now_ns = at_ns
                return
        self._now_ns = limit_ns

    def _book(self, number: int, step: StepDone, watched: Collection[int] = frozenset()) -> bool:
        """Keep a step until it is asked for; whether a job finished in it or a watched one grew."""
        self._done.append((self._names[number], step))
        self._forget_all(step)
        return bool(step.finished) or _brings(step, watched)

    def _forget_all(self, step: StepDone) -> None:
        for finished in step.finished:
            self._forget(finished.job.id)

    def _forget(self, job_id: int) -> None:
        tier_name, number = self._where.pop(job_id)
        group = self._entries[tier_name].group
        group.balancer.ended(number - group.first)
        self._busy[number] -= 1
        if not self._busy[number]:
            del self._busy[number]

    def _schedule(self, number: int) -> int | None:
        """Note when an engine has something to do next."""
        wakeup_ns = self._list[number].wakeup_ns()
        if wakeup_ns is not None and wakeup_ns != self._wakeups[number]:
            heapq.heappush(self._due, (wakeup_ns, number))
        self._wakeups[number] = wakeup_ns
        return wakeup_ns

    def _replicas(self, config: ServerConfig, tier: TierConfig, seed: int, start_ns: int) -> _Group:
        """Make a tier's engines. Their names enter their seeds, so that no two are alike."""
        first = len(self.engines)
        for replica in range(tier.replicas):
            name = tier.name if tier.replicas == 1 else f"{tier.name}/{replica}"
            named = msgspec.structs.replace(tier, name=name)
            self.engines[name] = tiers.engine(
                config,
                named,
                seed=seed,
                start_ns=start_ns,
                prefix_store=self._store if _is_shared(tier) else None,
                keep_tokens=self._keep_tokens,
            )
        return _Group(first, balancer(tier.balancer, tier.replicas, f"{seed}/{tier.name}"))


def _entry(tier: TierConfig, owner: TierConfig, group: _Group) -> _Entry:
    return _Entry(
        group=group,
        priority=tier.priority,
        namespace="" if _is_shared(owner) else tier.name,
        caches=owner.prefix_cache is not None,
    )


def _is_shared(tier: TierConfig) -> bool:
    return tier.prefix_cache is not None and tier.prefix_cache.shared


def _shared_store(config: ServerConfig) -> PrefixStore | None:
    """What tiers with engines of their own remember together, if any do; all of them say the same of it."""
    for tier in config.tiers:
        cache = tier.prefix_cache
        if tier.shares is None and cache is not None and cache.shared and cache.tokens is not None:
            return PrefixStore(cache.block_tokens, cache.tokens)
    return None


def _brings(step: StepDone, watched: Collection[int]) -> bool:
    """Whether a step brings a token to one of these jobs."""
    return bool(watched) and any(job_id in watched for job_id in step.emitted)


def _ended_ns(told: tuple[str, StepDone]) -> int:
    return told[1].ended_ns
