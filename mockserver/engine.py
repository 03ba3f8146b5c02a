"""An inference engine without a clock and without I/O: requests in, steps and token instants out.

Rules for whoever edits this file:

1. A step begins when the previous one *ended*, not when somebody looked: calling ``advance`` late, often or
   never changes no event. Only ``submit`` and ``cancel`` do, and their instants never decrease.
2. A step costs O(own streams + sequences that start or finish), never O(batch); only throwing somebody out of
   memory looks at all of it.
3. Time is ``int`` nanoseconds on whatever clock the caller has. Nothing here asks what time it is.

The engine knows how long a step takes and what is told of it. What a step works on is for ``scheduling`` to
say, who is in memory for ``kv_memory``, who decodes for ``decoding``. Decoding sequences get a token each
step, or several with speculation; the step that finishes a prompt brings its first token.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from mockserver.background import Background
from mockserver.job import Finished, Job, StepDone
from mockserver.kv_memory import KvMemory
from mockserver.neighbours import Neighbours
from mockserver.noise import StepNoise
from mockserver.prefix_store import PrefixStore
from mockserver.roofline import StepFunction
from mockserver.scheduling import Limits, Plan, Scheduler
from mockserver.sequence import Sequence
from mockserver.speculation import Drafting, drafted_pairs
from mockserver.tier_config import PrefixCache, Speculation
from mockserver.token_instants import TokenInstants

__all__ = ["Engine", "Finished", "Job", "Limits", "StepDone"]

_NEVER_NS = 2**62
_DRAFTED_AHEAD = 64  # quiet steps whose tokens are read off at once
_NOBODY: tuple[int, ...] = ()
_ended_ns = attrgetter("ended_ns")


class Engine:
    """One replica of one tier: ``submit``, ``cancel``, ``advance``, ``wakeup_ns``.

    ``step`` is the law (``roofline.step_function``, or any function of the same five numbers). ``ingest_ns``
    passes between a job's submission and the first step that can see it: parsing, tokenising, queues of the
    API front end. ``noise_ratio`` is the standard deviation of a step's duration over the law's, lognormal
    with mean 1, drawn from ``seed``. ``prefix_store`` is where prefixes are remembered if ``prefix_cache``
    has a capacity of its own; engines may be given the same one (see there). Without ``keep_tokens`` nobody
    is named in ``StepDone.emitted``, and ``Finished.token_ns`` is the first and the last instant.
    """

    def __init__(
        self,
        step: StepFunction,
        limits: Limits,
        *,
        background: Background | None = None,
        ingest_ns: int = 0,
        noise_ratio: float = 0.0,
        seed: str = "",
        start_ns: int = 0,
        speculation: Speculation | None = None,
        prefix_cache: PrefixCache | None = None,
        prefix_store: PrefixStore | None = None,
        keep_tokens: bool = True,
    ) -> None:
        self.limits = limits
        self._step, self._ingest_ns = step, ingest_ns
        self._noise = StepNoise(noise_ratio, seed) if noise_ratio else None
        self._drafting = Drafting(speculation, seed) if speculation is not None else None
        memory = _memory(limits, prefix_cache, prefix_store)
        self._scheduler, self._memory = Scheduler(limits, memory, self._drafting), memory
        self._batch = self._scheduler.batch
        self._now_ns = start_ns
        self._own: dict[int, Sequence] = {}
        self._arriving: OrderedDict[int, Sequence] = OrderedDict()
        self._number = 0  # of the running step, or of the next one while idle
        self._ends_ns: int | None = None  # of the running step; None while idle
        self._started_ns = self._decode_sequences = self._context_tokens = 0
        self._prefill = (0, 0, 0.0)
        self._plan = Plan()
        self._settled = False  # the next step will be like this one unless something happens
        self._instants = TokenInstants(self._batch, kept=keep_tokens)
        self._done: list[StepDone] = []
        self._neighbours = Neighbours(background, self._scheduler, start_ns) if background else None
        if self._neighbours is not None:
            self._begin(start_ns)

    @property
    def own_jobs(self) -> int:
        """Own jobs that were submitted and have neither finished nor been cancelled."""
        return len(self._own)

    @property
    def running(self) -> int:
        """Sequences decoding or being prefilled, hidden ones included."""
        return self._scheduler.running

    @property
    def waiting(self) -> int:
        """Sequences that are not admitted yet, hidden and still arriving ones included."""
        return self._scheduler.waiting + len(self._arriving)

    def fits(self, prompt_tokens: int, output_tokens: int) -> bool:
        """Whether a job of that size could ever be admitted."""
        return prompt_tokens + output_tokens <= self.limits.kv_tokens

    def submit(self, job: Job, now_ns: int) -> None:
        """Hand in a job at ``now_ns``. It can join the first step that begins ``ingest_ns`` later or after.

        A submission at the very instant at which a step begins misses that step. Raises ValueError for a job
        that can never run, an id in use, or an instant before the previous call's.
        """
        if job.id < 0 or job.id in self._own or job.prompt_tokens < 1 or job.output_tokens < 1:
            raise ValueError(f"{job}: an id in use or negative, or a length below 1")
        if not self.fits(job.prompt_tokens, job.output_tokens):
            raise ValueError(f"{job}: larger than the KV capacity of {self.limits.kv_tokens} tokens")
        self._run_until(now_ns)
        sequence = Sequence(job, now_ns, now_ns + self._ingest_ns, hidden=False)
        self._own[job.id] = self._arriving[job.id] = sequence
        self._run_until(now_ns)

    def cancel(self, job_id: int, now_ns: int) -> bool:
        """Drop a job wherever it is; its slot and KV are free at once. False if it is not in the engine."""
        self._run_until(now_ns)
        sequence = self._own.pop(job_id, None)
        if sequence is None:
            return False
        if self._arriving.pop(job_id, None) is None:
            self._scheduler.drop(sequence)
        sequence.state = "gone"
        self._settled = False
        return True

    def advance(self, now_ns: int) -> list[StepDone]:
        """Every step that ended at or before ``now_ns`` and was not returned yet, in order."""
        if now_ns > self._now_ns:
            self._run_until(now_ns)
        count = bisect_right(self._done, now_ns, key=_ended_ns)
        done = self._done[:count]
        del self._done[:count]
        return done

    def advance_to_finish(self, limit_ns: int) -> list[StepDone]:
        """The same up to ``limit_ns``, but not past the end of the first step that finishes an own job."""
        if not any(step.finished for step in self._done):  # else one waits to be told already
            self._run_until(limit_ns, to_finish=True)
        return self.advance(self._now_ns)

    def wakeup_ns(self) -> int | None:
        """The next instant at which ``advance`` has something to do; None: not before another submission."""
        if self._done:
            return self._done[0].ended_ns
        return self._ends_ns if self._ends_ns is not None else self._starts_ns()

    def _run_until(self, now_ns: int, *, to_finish: bool = False) -> None:
        if now_ns < self._now_ns:
            raise ValueError(f"time runs backwards: {now_ns} after {self._now_ns}")
        self._now_ns = now_ns
        while True:
            if self._ends_ns is None:
                start_ns = self._starts_ns()
                if start_ns is None or start_ns > now_ns:
                    return
                self._begin(start_ns)
            elif self._ends_ns <= now_ns:
                if self._settled:
                    self._coast(now_ns)
                ended_ns = self._ends_ns
                if ended_ns <= now_ns:
                    self._end(ended_ns)
                    self._begin(ended_ns)
                    if to_finish and self._done[-1].finished:
                        self._now_ns = ended_ns
                        return
            else:
                return

    def _starts_ns(self) -> int | None:
        """When an idle engine starts again with those that were submitted so far."""
        return self._scheduler.starts_ns(self._arriving.values())

    def _begin(self, start_ns: int) -> None:
        """Decide what the step that starts now does, and therefore when it ends; stay idle without work."""
        arriving = self._arriving
        while arriving and (first := next(iter(arriving.values()))).ready_ns <= start_ns:
            arriving.popitem(last=False)
            self._scheduler.arrive(first)
        if self._neighbours is not None:
            self._neighbours.balance(start_ns)
        plan = self._plan = self._scheduler.plan(start_ns)
        for sequence in plan.preempted:
            self._instants.left(sequence)
        self._started_ns, self._ends_ns = start_ns, None
        self._settled = plan.decodes and not (plan.chunks or plan.preempted)
        if not plan.chunks and not plan.decodes:
            return
        batch, decodes = self._batch, plan.decodes
        self._decode_sequences = batch.size if decodes else 0
        self._context_tokens = batch.context_tokens if decodes else 0
        self._prefill = plan.prefill() if plan.chunks else (0, 0, 0.0)
        seconds = self._seconds(self._decode_sequences, self._context_tokens, *self._prefill)
        if self._noise is not None:
            seconds *= self._noise.factor(self._number)
        self._ends_ns = start_ns + max(1, round(seconds * 1e9))

    def _seconds(self, sequences: int, context: int, prefill: int, cached: int, pairs: float) -> float:
        """The law's duration; drafted tokens are computed like a prompt's, and their KV is read once."""
        if self._drafting is None or not sequences:
            return self._step(sequences, context, prefill, cached, pairs)
        drafts = self._drafting.draft_tokens
        prefill += sequences * drafts
        pairs += drafted_pairs(sequences, context, drafts)
        return self._step(sequences, context, prefill, cached, pairs) + self._drafting.draft_s

    def _coast(self, now_ns: int) -> None:
        """Let steps pass in which only contexts grow: nobody comes, ends or is short of memory."""
        quiet = self._quiet_steps()
        if quiet <= 0 or self._ends_ns is None:
            return
        batch, noise, drafting, ended = self._batch, self._noise, self._drafting, self._instants.decode_ended
        seconds_of = self._step if drafting is None else self._seconds
        size, context, number, started_ns = batch.size, batch.context_tokens, self._number, self._started_ns
        ends_ns, last, until_ns = self._ends_ns, number + quiet, self._quiet_until_ns()
        by_need, kv_tokens, told = self._memory.by_need, self._memory.used_tokens, self._told_of_quiet_steps()
        grown, growths = size, batch.growths(last - number)
        while number < last and ends_ns <= now_ns and ends_ns < until_ns:
            more: dict[str, Any] = {}
            if drafting is not None:
                grown = growths[number - self._number]
                more = self._told_of_drafts(number - self._number, grown)
            if by_need:
                kv_tokens += grown
            self._done.append(
                told(
                    number=number,
                    started_ns=started_ns,
                    ended_ns=ends_ns,
                    context_tokens=context,
                    generated_tokens=grown,
                    kv_tokens=kv_tokens,
                    **more,
                )
            )
            ended(ends_ns)
            number, context, started_ns = number + 1, context + grown, ends_ns
            seconds = seconds_of(size, context, 0, 0, 0.0)
            if noise is not None:
                seconds *= noise.factor(number)
            ends_ns += max(1, round(seconds * 1e9))
        batch.coast(number - self._number)
        self._memory.used_tokens = kv_tokens
        self._number, self._started_ns, self._ends_ns = number, started_ns, ends_ns
        self._context_tokens = context

    def _told_of_quiet_steps(self) -> Callable[..., StepDone]:
        """What is the same in all of them."""
        return partial(
            StepDone,
            decode_sequences=self._batch.size,
            prefill_tokens=0,
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            cached_kv_tokens=self._memory.cached_tokens,
            emitted=self._batch.own_ids() if self._instants.kept else _NOBODY,
            finished=(),
        )

    def _told_of_drafts(self, after: int, grown: int) -> dict[str, Any]:
        """What is said of speculation in a quiet step, ``after`` the running one."""
        assert self._drafting is not None
        return {
            "emitted_tokens": self._batch.own_counts(after) if self._instants.kept else None,
            "drafted_tokens": self._batch.size * self._drafting.draft_tokens,
            "accepted_tokens": grown - self._batch.size,
        }

    def _quiet_steps(self) -> int:
        """How many steps may end before one in which somebody ends, or after which memory may be short."""
        batch, memory, quiet = self._batch, self._memory, self._batch.next_ending - self._batch.step
        most_each = 1
        if self._drafting is not None:
            quiet, most_each = min(quiet, _DRAFTED_AHEAD), 1 + self._drafting.draft_tokens
        if memory.by_need:
            free_tokens = memory.capacity_tokens - memory.cached_tokens - memory.used_tokens
            quiet = min(quiet, free_tokens // (batch.size * most_each) - 1)
        return quiet

    def _quiet_until_ns(self) -> int:
        """A step that ends before this instant is not followed by one that somebody can join."""
        arriving = next(iter(self._arriving.values()), None)
        until_ns = _NEVER_NS if arriving is None else arriving.ready_ns
        return until_ns if self._neighbours is None else min(until_ns, self._neighbours.until_ns)

    def _end(self, ended_ns: int) -> None:
        """Book what the running step brought, and record it."""
        plan, batch, instants = self._plan, self._batch, self._instants
        growth, accepted, emitted, counts = 0, 0, _NOBODY, None
        if plan.decodes:
            growth = batch.growth
            accepted = growth - batch.size
            instants.decode_ended(ended_ns)
            if instants.kept:
                emitted, counts = batch.own_ids(), batch.own_counts()
        first, over = self._scheduler.end(plan)
        begun = [sequence for sequence in first if sequence.first_token_ns is None]
        for sequence in begun:
            sequence.first_token_ns, sequence.first_number = ended_ns, self._number
        own = [sequence for sequence in first if not sequence.hidden] if instants.kept else []
        for sequence in own:
            instants.prefill_brought(sequence, ended_ns)
        if own:
            emitted += tuple([sequence.job_id for sequence in own])
        if instants.kept and self._drafting is not None:
            counts = (counts or ()) + (1,) * len(own)
        self._done.append(self._told(ended_ns, begun, over, emitted, counts, growth + len(first), accepted))
        self._number += 1
        instants.trim()

    def _told(
        self,
        ended_ns: int,
        begun: list[Sequence],
        over: list[Sequence],
        emitted: tuple[int, ...],
        counts: tuple[int, ...] | None,
        generated: int,
        accepted: int,
    ) -> StepDone:
        """What is said of the step that has just been booked."""
        plan, memory, drafting = self._plan, self._memory, self._drafting
        return StepDone(
            number=self._number,
            started_ns=self._started_ns,
            ended_ns=ended_ns,
            decode_sequences=self._decode_sequences,
            context_tokens=self._context_tokens,
            prefill_tokens=self._prefill[0],
            prefill_cached_tokens=self._prefill[1],
            prefill_pairs=self._prefill[2],
            generated_tokens=generated,
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            kv_tokens=memory.used_tokens,
            cached_kv_tokens=memory.cached_tokens,
            emitted=emitted,
            emitted_tokens=counts,
            started=tuple([sequence.started(ended_ns) for sequence in begun if not sequence.hidden]),
            finished=tuple([self._close(sequence, ended_ns) for sequence in over if not sequence.hidden]),
            queried_tokens=plan.queried_tokens,
            hit_tokens=plan.hit_tokens,
            drafted_tokens=drafting.draft_tokens * self._decode_sequences if drafting is not None else 0,
            accepted_tokens=accepted,
            preempted=len(plan.preempted),
            **_times(begun, over, ended_ns),
        )

    def _close(self, sequence: Sequence, ended_ns: int) -> Finished:
        del self._own[sequence.job_id]
        self._instants.left(sequence)
        return Finished(
            job=sequence.job,
            submitted_ns=sequence.submitted_ns,
            admitted_ns=sequence.admitted_ns,
            cached_tokens=sequence.cached_tokens,
            steps=self._number - sequence.first_number + 1,
            mean_batch=sequence.mean_batch,
            preemptions=sequence.preemptions,
            token_ns=self._instants.of(sequence, ended_ns),
        )


def _memory(limits: Limits, cache: PrefixCache | None, store: PrefixStore | None) -> KvMemory:
    if cache is not None and cache.tokens is not None and store is None:
        store = PrefixStore(cache.block_tokens, cache.tokens)
    return KvMemory(
        limits.kv_tokens,
        by_need=limits.when_kv_is_full == "preempt",
        block_tokens=0 if cache is None else cache.block_tokens,
        store=store,
    )


def _times(begun: list[Sequence], over: list[Sequence], ended_ns: int) -> dict[str, Any]:
    """How long each of those took that got their first token or their last one."""
    met = [(s, s.first_token_ns) for s in over if s.first_token_ns is not None]  # not those met midway
    return {
        "ttft_ns": tuple([ended_ns - sequence.submitted_ns for sequence in begun]),
        "queue_ns": tuple([sequence.admitted_ns - sequence.submitted_ns for sequence in begun]),
        "e2e_ns": tuple([ended_ns - sequence.submitted_ns for sequence, _ in met]),
        "decode_ns": tuple([ended_ns - first_ns for _, first_ns in met]),
    }
