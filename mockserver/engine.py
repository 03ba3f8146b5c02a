"""Continuous batching without a clock and without I/O: requests in, steps and token instants out.

Rules for whoever edits this file:

1. A step begins when the previous one *ended*, not when somebody looked: calling ``advance`` late, often or
   never changes no event. Only ``submit`` and ``cancel`` do, and their instants never decrease.
2. A step costs O(own streams + sequences that start or finish), never O(batch).
3. Time is ``int`` nanoseconds on whatever clock the caller has. Nothing here asks what time it is.

What it models: first come first served admission while a slot and KV for prompt and whole output are free (so
nothing is ever preempted); decoding sequences get one token each step; the rest of the step's token budget
goes to prompts, in order, in chunks; the step that finishes a prompt brings its first token; hidden load.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from operator import attrgetter
from random import Random

import numpy as np

from mockserver.background import Background
from mockserver.decoding import DecodeBatch, Sequence
from mockserver.job import Finished, Job, StepDone
from mockserver.roofline import StepFunction

__all__ = ["Engine", "Finished", "Job", "Limits", "StepDone"]

_TRIM_STEPS = 4096
_ended_ns = attrgetter("ended_ns")


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step and the batch."""

    max_batch: int
    """Sequences running at once: decoding or being prefilled."""
    step_tokens: int
    """Token budget of a step: decoding sequences plus prompt tokens (vLLM: max_num_batched_tokens)."""
    prefill_tokens: int
    """Prompt tokens in one step at most (SGLang: chunked_prefill_size). With ``step_tokens`` at least
    ``prefill_tokens + max_batch`` decoding never eats into a prompt's chunk."""
    kv_tokens: int
    """KV capacity."""


class Engine:
    """One replica of one tier: ``submit``, ``cancel``, ``advance``, ``wakeup_ns``.

    ``step`` is the law (``roofline.step_function``, or any function of the same five numbers). ``ingest_ns``
    passes between a job's submission and the first step that can see it: parsing, tokenising, queues of the
    API front end. ``noise_ratio`` is the standard deviation of a step's duration over the law's, lognormal
    with mean 1, drawn from ``seed``.
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
    ) -> None:
        self.limits = limits
        self._step, self._background, self._ingest_ns = step, background, ingest_ns
        self._noise_ratio, self._noise_rng = noise_ratio, Random(f"{seed}/noise")
        self._now_ns = start_ns
        self._own: dict[int, Sequence] = {}
        self._arriving: OrderedDict[int, Sequence] = OrderedDict()
        self._waiting: OrderedDict[int, Sequence] = OrderedDict()
        self._prefilling: OrderedDict[int, Sequence] = OrderedDict()
        self._batch = DecodeBatch()
        self._parked: list[Sequence] = []
        self._hidden_count = self._hidden_pending = self._kv_tokens = 0
        self._number = 0  # of the running step, or of the next one while idle
        self._ends_ns: int | None = None  # of the running step; None while idle
        self._started_ns = self._decode_sequences = self._context_tokens = 0
        self._chunks: list[tuple[Sequence, int]] = []
        self._history = array("q")  # ends of steps, from number _history_from on
        self._history_from = 0
        self._done: list[StepDone] = []
        if background is not None:
            self._warm_start(background, start_ns)
            self._begin(start_ns)

    @property
    def own_jobs(self) -> int:
        """Own jobs that were submitted and have neither finished nor been cancelled."""
        return len(self._own)

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
        sequence = Sequence(job.id, job.prompt_tokens, job.output_tokens, now_ns, hidden=False)
        self._own[job.id] = self._arriving[job.id] = sequence
        self._run_until(now_ns)

    def cancel(self, job_id: int, now_ns: int) -> bool:
        """Drop a job wherever it is; its slot and KV are free at once. False if it is not in the engine."""
        self._run_until(now_ns)
        sequence = self._own.pop(job_id, None)
        if sequence is None:
            return False
        if sequence.state in ("prefilling", "decoding"):
            self._kv_tokens -= sequence.kv_tokens
        if sequence.state == "decoding":
            self._batch.leave(sequence, self._number, "gone")
        for queue in (self._arriving, self._waiting, self._prefilling):
            queue.pop(job_id, None)
        sequence.state = "gone"
        return True

    def advance(self, now_ns: int) -> list[StepDone]:
        """Every step that ended at or before ``now_ns`` and was not returned yet, in order."""
        if now_ns > self._now_ns:
            self._run_until(now_ns)
        count = bisect_right(self._done, now_ns, key=_ended_ns)
        done = self._done[:count]
        del self._done[:count]
        return done

    def wakeup_ns(self) -> int | None:
        """The next instant at which ``advance`` has something to do; None: not before another submission."""
        if self._done:
            return self._done[0].ended_ns
        return self._ends_ns if self._ends_ns is not None else self._next_arrival_ns()

    def _run_until(self, now_ns: int) -> None:
        if now_ns < self._now_ns:
            raise ValueError(f"time runs backwards: {now_ns} after {self._now_ns}")
        self._now_ns = now_ns
        while True:
            if self._ends_ns is None:
                start_ns = self._next_arrival_ns()
                if start_ns is None or start_ns > now_ns:
                    return
                self._begin(start_ns)
            elif self._ends_ns <= now_ns:
                ended_ns = self._ends_ns
                self._end()
                self._begin(ended_ns)
            else:
                return

    def _next_arrival_ns(self) -> int | None:
        for sequence in self._arriving.values():
            return sequence.submitted_ns + self._ingest_ns
        return None

    def _begin(self, start_ns: int) -> None:
        """Decide what the step that starts now does, and therefore when it ends; stay idle without work."""
        while (ready_ns := self._next_arrival_ns()) is not None and ready_ns <= start_ns:
            job_id, sequence = self._arriving.popitem(last=False)
            sequence.state = "waiting"
            self._waiting[job_id] = sequence
        if self._background is not None:
            self._balance(self._background, start_ns)
        self._started_ns, self._ends_ns = start_ns, None
        self._decode_sequences, self._context_tokens = self._batch.size, self._batch.context_tokens
        self._chunks = self._schedule_prefill()
        if not self._chunks and not self._batch.size:
            return
        seconds = self._step(self._batch.size, self._batch.context_tokens, *_totals(self._chunks))
        if self._noise_ratio:
            sigma = self._noise_ratio
            seconds *= self._noise_rng.lognormvariate(-0.5 * sigma * sigma, sigma)
        self._ends_ns = start_ns + max(1, round(seconds * 1e9))

    def _schedule_prefill(self) -> list[tuple[Sequence, int]]:
        """Share the step's prompt tokens among prompts in order, admitting waiting ones while they fit."""
        left = min(self.limits.prefill_tokens, self.limits.step_tokens - self._batch.size)
        chunks: list[tuple[Sequence, int]] = []
        for sequence in self._prefilling.values():
            if left <= 0:
                return chunks
            tokens = min(left, sequence.prompt_tokens - sequence.prefilled)
            chunks.append((sequence, tokens))
            left -= tokens
        while left > 0 and self._waiting:
            sequence = next(iter(self._waiting.values()))
            if not self._room_for(sequence):
                break
            self._waiting.popitem(last=False)
            self._kv_tokens += sequence.kv_tokens
            sequence.state = "prefilling"
            self._prefilling[sequence.job_id] = sequence
            tokens = min(left, sequence.prompt_tokens)
            chunks.append((sequence, tokens))
            left -= tokens
        return chunks

    def _room_for(self, sequence: Sequence) -> bool:
        running = self._batch.size + len(self._prefilling)
        return (
            running < self.limits.max_batch and self._kv_tokens + sequence.kv_tokens <= self.limits.kv_tokens
        )

    def _end(self) -> None:
        """Book what the running step brought, and record it."""
        assert self._ends_ns is not None
        number, ended_ns = self._number, self._ends_ns
        self._history.append(ended_ns)
        self._number = number + 1
        emitted, generated = self._batch.own_ids(), self._batch.size
        over = self._batch.end_step(number)
        first = self._end_chunks(ended_ns)
        if first:
            emitted += tuple(sequence.job_id for sequence in first if not sequence.hidden)
            over += [sequence for sequence in first if sequence.state == "gone"]
        for sequence in over:
            self._kv_tokens -= sequence.kv_tokens
        self._done.append(
            StepDone(
                number=number,
                started_ns=self._started_ns,
                ended_ns=ended_ns,
                decode_sequences=self._decode_sequences,
                context_tokens=self._context_tokens,
                prefill_tokens=sum(tokens for _, tokens in self._chunks) if self._chunks else 0,
                generated_tokens=generated + len(first),
                running=self._batch.size + len(self._prefilling),
                waiting=len(self._waiting),
                kv_tokens=self._kv_tokens,
                emitted=emitted,
                finished=tuple(self._close(sequence) for sequence in over if not sequence.hidden),
                ttft_ns=tuple(ended_ns - sequence.submitted_ns for sequence in first),
                e2e_ns=tuple(ended_ns - s.submitted_ns for s in over if s.first_token_ns is not None),
            )
        )
        if number % _TRIM_STEPS == 0:
            self._trim_history()

    def _end_chunks(self, ended_ns: int) -> list[Sequence]:
        """Sequences whose prompt is done: each has its first token and joins the batch, or wants no more."""
        first: list[Sequence] = []
        for sequence, tokens in self._chunks:
            if sequence.state == "gone":  # cancelled while the step ran
                continue
            sequence.prefilled += tokens
            if sequence.prefilled < sequence.prompt_tokens:
                continue
            del self._prefilling[sequence.job_id]
            self._hidden_pending -= sequence.hidden
            sequence.first_step, sequence.first_token_ns = self._number - 1, ended_ns
            sequence.generated = 1
            first.append(sequence)
            if sequence.output_tokens > 1:
                self._batch.join(sequence, self._number)
            else:
                sequence.state = "gone"
        return first

    def _close(self, sequence: Sequence) -> Finished:
        del self._own[sequence.job_id]
        first = sequence.first_step - self._history_from
        instants = self._history[first : first + sequence.output_tokens]
        return Finished(
            job=Job(sequence.job_id, sequence.prompt_tokens, sequence.output_tokens),
            submitted_ns=sequence.submitted_ns,
            admitted_ns=sequence.submitted_ns,
            steps=sequence.output_tokens,
            mean_batch=0.0,
            token_ns=np.frombuffer(instants, dtype=np.int64),
        )

    def _trim_history(self) -> None:
        """Forget the ends of steps that no running job of ours needs."""
        oldest = next((sequence.first_step for sequence in self._batch.own.values()), self._number)
        del self._history[: oldest - self._history_from]
        self._history_from = oldest

    def _balance(self, background: Background, now_ns: int) -> None:
        """Bring the number of decoding sequences to what the hidden load should make it.

        Own sequences displace hidden ones: those are set aside as they are, as if another replica served them
        meanwhile, and come back, without a second prefill, before new hidden prompts are started.
        """
        batch, desired = self._batch, background.desired(now_ns)
        while batch.size > desired and batch.hidden:
            sequence = batch.hidden[background.pick(len(batch.hidden))]
            batch.leave(sequence, self._number, "parked")
            self._kv_tokens -= sequence.kv_tokens
            self._parked.append(sequence)
        while batch.size < desired and self._parked and self._room_for(self._parked[-1]):
            sequence = self._parked.pop()
            self._kv_tokens += sequence.kv_tokens
            batch.join(sequence, self._number)
        while batch.size + self._hidden_pending + len(self._parked) < desired:
            prompt, output = background.draw()
            sequence = self._new_hidden(prompt, output, now_ns)
            sequence.state = "waiting"
            self._waiting[sequence.job_id] = sequence
            self._hidden_pending += 1

    def _warm_start(self, background: Background, start_ns: int) -> None:
        """Fill the batch to its target with sequences in the middle of their decode, as far as they fit."""
        for _ in range(background.desired(start_ns)):
            prompt, output, generated = background.draw_running()
            sequence = self._new_hidden(prompt, output, start_ns)
            sequence.prefilled, sequence.generated = prompt, generated
            if not self._room_for(sequence):
                return
            self._kv_tokens += sequence.kv_tokens
            self._batch.join(sequence, 0)

    def _new_hidden(self, prompt_tokens: int, output_tokens: int, now_ns: int) -> Sequence:
        self._hidden_count += 1
        return Sequence(-self._hidden_count, prompt_tokens, output_tokens, now_ns, hidden=True)


def _totals(chunks: list[tuple[Sequence, int]]) -> tuple[int, int, float]:
    """Prefilled tokens, tokens cached before them, and query-key pairs, over all chunks of a step."""
    tokens = cached = 0
    pairs = 0.0
    for sequence, count in chunks:
        tokens += count
        cached += sequence.prefilled
        pairs += count * (sequence.prefilled + 0.5 * count)
    return tokens, cached, pairs
