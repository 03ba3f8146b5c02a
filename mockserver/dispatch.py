"""Between engines and responses: jobs go in, and what a step brings is handed to whom it belongs.

Rules for whoever edits this file:

1. Tokens first: nothing is counted, logged or judged before everybody has what the step brought.
2. Only a host that is late, so that several steps of an engine have ended at once, writes them together.
"""

import itertools
from typing import Protocol

from mockserver import prefix_blocks, speech, step_bound
from mockserver.ask import Answer, Placed
from mockserver.config import ServerConfig, TierConfig
from mockserver.connection import Cork
from mockserver.fleet import Fleet
from mockserver.job import Job, StepDone
from mockserver.lateness import Lateness
from mockserver.metrics import ServerMetrics
from mockserver.realtime import RealTime, Steps
from mockserver.response import Response
from mockserver.server_config import engine_tier
from mockserver.smoothing import Smoothing


class StepSink(Protocol):
    """Whoever wants to see every step (``step_log.StepLog``)."""

    @property
    def failure(self) -> str:
        """Why nothing is kept any more, in one line; empty while all is well."""

    def add(self, engine_name: str, step: StepDone, lag_ns: int = 0) -> None:
        """Take one step, and how long after its end it was handed out."""


class Dispatch:
    """The engines of a server on the clock, with the responses that wait for their tokens."""

    def __init__(self, config: ServerConfig, cork: Cork, step_log: StepSink | None) -> None:
        self._cork, self._step_log = cork, step_log
        fleet = Fleet(config)
        self.clock = RealTime(fleet, self._on_steps)
        self.lateness = Lateness()
        self.metrics = ServerMetrics(
            config.model_name,
            fleet.capacities(),
            tiers=[tier.name for tier in config.tiers],
            longest_tokens=config.max_context_tokens,
            bound_by=step_bound.of_config(config),
        )
        self._owners = {tier.name: engine_tier(config, tier) for tier in config.tiers}
        self._smoothing = {
            name: Smoothing(self.clock.call_at)
            for name in fleet.engines
            if _smoothed(self._owners[name.partition("/")[0]])
        }
        self._entries: dict[int, tuple[Response, int]] = {}
        self._ids = itertools.count()

    def caches(self, tier: TierConfig) -> bool:
        """Whether the engine that serves a tier has a prefix cache."""
        return self._owners[tier.name].prefix_cache is not None

    def submit(self, placed: Placed, response: Response) -> list[int]:
        """Hand in the answers of a request, a job each; returns their ids, in order."""
        cache = self._owners[placed.tier.name].prefix_cache
        ids = []
        for place, answer in enumerate(placed.answers):
            blocks: tuple[int, ...] = ()
            if cache is not None:
                prompt = placed.ask.prompts[place // placed.ask.choices]
                blocks = _blocks(prompt, answer, placed.ask.cacheable_tokens, cache.block_tokens)
            job_id = next(self._ids)
            ids.append(job_id)
            self._entries[job_id] = (response, place)
            job = Job(job_id, answer.prompt_tokens, answer.output_tokens, blocks=blocks)
            self.clock.submit(placed.tier.name, job)
        return ids

    def drop(self, tier_name: str, ids: list[int]) -> None:
        """Cancel those jobs that have not ended."""
        for job_id in ids:
            if self._entries.pop(job_id, None) is not None:
                self.clock.cancel(tier_name, job_id)

    def _on_steps(self, steps: Steps) -> None:
        several = len(steps) > 1 and len({name for name, _ in steps}) < len(steps)
        self._cork.closed = several
        lags_ns = []
        for name, step in steps:
            lags_ns.append(self.clock.now_ns() - step.ended_ns)
            self._hand_out(name, step)
        if several:
            self._cork.open()
        for (name, step), lag_ns in zip(steps, lags_ns, strict=True):
            self.metrics.on_step(name, step, lag_ns)
            if step.emitted:
                self.lateness.add(lag_ns, step.ended_ns - step.started_ns)
            if self._step_log is not None:
                self._step_log.add(name, step, lag_ns)

    def _hand_out(self, engine_name: str, step: StepDone) -> None:
        """Give everybody the tokens of a step. A response that is gone has taken its entries along."""
        entry_of = self._entries.get
        for started in step.started:
            if (entry := entry_of(started.job_id)) is not None:
                entry[0].started(entry[1], started)
        if (smoothing := self._smoothing.get(engine_name)) is not None:
            smoothing.on_step(step, entry_of)
        elif step.emitted_tokens is None:
            for job_id in step.emitted:
                if (entry := entry_of(job_id)) is not None:
                    entry[0].tokens(entry[1], 1)
        else:
            for job_id, count in zip(step.emitted, step.emitted_tokens, strict=True):
                if (entry := entry_of(job_id)) is not None:
                    entry[0].tokens(entry[1], count)
        for finished in step.finished:
            entry = self._entries.pop(finished.job.id, None)
            if entry is not None and smoothing is None:
                entry[0].finished(entry[1], finished)


def _smoothed(tier: TierConfig) -> bool:
    return tier.speculation is not None and tier.speculation.smoothed


def _blocks(prompt: str, answer: Answer, cacheable_tokens: int | None, size: int) -> tuple[int, ...]:
    """Blocks of what may be kept: the prompt up to its last mark, or all of it and of the answer."""
    words = prompt.split()
    if cacheable_tokens is None:
        words += speech.said(answer).split()
    else:
        del words[cacheable_tokens:]
    return prefix_blocks.of_words(words, size)
