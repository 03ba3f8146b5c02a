"""What a step works on: who is admitted, whose prompt gets a chunk, who must go when memory is short. Pure.

Admission is strict: the first in line waits until it fits, and nobody passes it. Running sequences are not
overtaken by a later one of higher priority. Where memory is taken by need, the sequence of lowest priority,
and of those the youngest, is thrown out; it waits at the front of its priority to be computed again, and
nobody is admitted to the step that threw it out.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from mockserver.decoding import DecodeBatch
from mockserver.kv_memory import KvMemory
from mockserver.sequence import Sequence
from mockserver.speculation import Drafting
from mockserver.tier_config import Batching, Prefill, WhenKvIsFull
from mockserver.waiting import BusStop, Line

_LONGEST_WAIT_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a step and the batch, and how both are filled."""

    max_batch: int
    """Sequences running at once: decoding or being prefilled."""
    step_tokens: int
    """Token budget of a step: decoding sequences (each with what is drafted for it) plus prompt tokens (vLLM:
    max_num_batched_tokens)."""
    prefill_tokens: int
    """Prompt tokens in one step at most (SGLang: chunked_prefill_size). With ``step_tokens`` at least
    ``prefill_tokens + max_batch`` decoding never eats into a prompt's chunk."""
    kv_tokens: int
    """KV capacity."""
    batching: Batching = "continuous"
    """Static: ``max_batch`` start together, or fewer when the first has waited ``batch_wait_ns``; nobody
    joins before all of them have ended."""
    batch_wait_ns: int = _LONGEST_WAIT_NS
    prefill: Prefill = "chunked"
    """Prompts share steps with decoding, or steps are either one or the other, prompts first."""
    when_kv_is_full: WhenKvIsFull = "queue"
    """Admit who fits with its whole output, or who fits now, and throw out who does not fit later."""


@dataclass(slots=True)
class Plan:
    """What one step does."""

    chunks: list[tuple[Sequence, int]] = field(default_factory=list)
    """Whose prompt is worked on, and how many tokens of it."""
    decodes: bool = False
    """Whether the batch takes part."""
    preempted: list[Sequence] = field(default_factory=list)
    queried_tokens: int = 0
    hit_tokens: int = 0

    def prefill(self) -> tuple[int, int, float]:
        """Prefilled tokens, tokens cached before them, and query-key pairs, over all chunks."""
        tokens = cached = 0
        pairs = 0.0
        for sequence, count in self.chunks:
            tokens += count
            cached += sequence.prefilled
            pairs += count * (sequence.prefilled + 0.5 * count)
        return tokens, cached, pairs


class Scheduler:
    """Where every sequence of an engine is, from its arrival to its end. A step is ``plan``, then ``end``."""

    def __init__(self, limits: Limits, memory: KvMemory, drafting: Drafting | None = None) -> None:
        self.limits, self.memory = limits, memory
        self.batch = DecodeBatch(drafting)
        self.prefilling: OrderedDict[int, Sequence] = OrderedDict()
        self.hidden_pending = 0
        """Hidden sequences that wait or are being prefilled."""
        self._line = Line()
        static = limits.batching == "static"
        self._stop = BusStop(limits.max_batch, limits.batch_wait_ns) if static else None
        self._step_tokens_each = 1 + (drafting.draft_tokens if drafting else 0)
        self._arrived = 0

    @property
    def running(self) -> int:
        """Sequences decoding or being prefilled."""
        return self.batch.size + len(self.prefilling)

    @property
    def waiting(self) -> int:
        """Sequences that have arrived and are not admitted."""
        return len(self._line) + (len(self._stop) if self._stop is not None else 0)

    @property
    def stands_empty(self) -> bool:
        """Whether a static batch has ended, or never begun."""
        return not self.running and not self._line

    @property
    def growth(self) -> int:
        """Memory that the next decode step needs beyond what is taken."""
        return self.batch.growth if self.memory.by_need else 0

    def enlist(self, sequence: Sequence) -> None:
        """Note that a sequence came after all others."""
        self._arrived += 1
        sequence.order = self._arrived
        self.memory.knows(sequence)

    def arrive(self, sequence: Sequence) -> None:
        """Let a sequence wait for its first admission."""
        self.enlist(sequence)
        self.hidden_pending += sequence.hidden
        (self._line if self._stop is None else self._stop).push(sequence)

    def starts_ns(self, coming: Iterable[Sequence]) -> int | None:
        """When an idle engine starts again with who waits and who is ``coming``; None: not by itself."""
        if self._stop is not None:
            return self._stop.leaves_ns(coming)
        return next((sequence.ready_ns for sequence in coming), None)

    def drop(self, sequence: Sequence) -> None:
        """Cancel a sequence that has arrived; its slot and memory are free at once."""
        if sequence.state == "decoding":
            self.batch.leave(sequence)
            self.memory.release(sequence)
        elif sequence.state == "prefilling":
            del self.prefilling[sequence.job_id]
            self.memory.release(sequence)
        elif self._stop is None or not self._stop.discard(sequence):
            self._line.discard()
        sequence.state = "gone"

    def has_slot(self) -> bool:
        """Whether one more sequence may run."""
        return self.running < self.limits.max_batch

    def rejoin(self, sequence: Sequence) -> bool:
        """Let a sequence that has its KV elsewhere decode from the next step on, if there is room for it."""
        growth = self.growth + self._step_tokens_each if self.memory.by_need else 0
        if not (self.has_slot() and self.memory.admit(sequence, growth)):
            return False
        self.batch.join(sequence)
        return True

    def plan(self, now_ns: int) -> Plan:
        """Decide what the step does that begins now."""
        plan, limits = Plan(), self.limits
        if self._stop is not None and self.stands_empty:
            self._board(self._stop, now_ns)
        if limits.prefill == "pause":
            self._fill(plan, min(limits.prefill_tokens, limits.step_tokens), 0, now_ns)
            if plan.chunks:
                return plan
        if self.memory.by_need:
            self._make_room(plan)
        if limits.prefill == "chunked":
            left = min(limits.prefill_tokens, limits.step_tokens - self.batch.size * self._step_tokens_each)
            self._fill(plan, left, self.growth, now_ns)
        plan.decodes = self.batch.size > 0
        return plan

    def end(self, plan: Plan) -> tuple[list[Sequence], list[Sequence]]:
        """Book what a step brought: who got a token from prefill, and who has all of its tokens."""
        over: list[Sequence] = []
        if plan.decodes:
            self.memory.used_tokens += self.growth
            over = self.batch.end_step()
        first = self._end_chunks(plan)
        over += [sequence for sequence in first if sequence.state == "gone"]
        for sequence in over:
            self.memory.release(sequence)
        return first, over

    def _board(self, stop: BusStop, now_ns: int) -> None:
        leaves_ns = stop.leaves_ns()
        if leaves_ns is not None and leaves_ns <= now_ns:
            for sequence in stop.board():
                self._line.push(sequence)

    def _fill(self, plan: Plan, left: int, growth: int, now_ns: int) -> None:
        """Share ``left`` prompt tokens among prompts in order, admitting who waits while it fits."""
        for sequence in self.prefilling.values():
            if left <= 0:
                return
            left -= self._chunk(plan, sequence, left)
        while left > 0 and not plan.preempted and self.has_slot():
            first = self._line.first()
            if first is None or not self.memory.admit(first, growth):
                return
            self._line.pop()
            first.state, first.joined_step = "prefilling", -1
            self.prefilling[first.job_id] = first
            if first.admitted_ns < 0:
                first.admitted_ns = now_ns
                if first.blocks:
                    first.cached_tokens = first.prefilled
                    plan.queried_tokens += first.prompt_tokens
                    plan.hit_tokens += first.prefilled
            left -= self._chunk(plan, first, left)

    def _chunk(self, plan: Plan, sequence: Sequence, left: int) -> int:
        tokens = min(left, sequence.to_prefill - sequence.prefilled)
        plan.chunks.append((sequence, tokens))
        return tokens

    def _end_chunks(self, plan: Plan) -> list[Sequence]:
        """Sequences whose prompt is done: each has a token and joins the batch, or wants no more."""
        first: list[Sequence] = []
        for sequence, tokens in plan.chunks:
            if sequence.state != "prefilling":  # cancelled while the step ran
                continue
            sequence.prefilled += tokens
            if sequence.blocks:
                self.memory.computed(sequence)
            if sequence.prefilled < sequence.to_prefill:
                continue
            del self.prefilling[sequence.job_id]
            self.hidden_pending -= sequence.hidden
            sequence.generated += 1
            first.append(sequence)
            if sequence.generated < sequence.output_tokens:
                self.batch.join(sequence)
            else:
                sequence.state = "gone"
        return first

    def _make_room(self, plan: Plan) -> None:
        """See that the batch can grow by what the next step brings, whoever must go for it."""
        memory = self.memory
        while memory.used_tokens + self.batch.growth > memory.capacity_tokens:
            victim = self._victim()
            if victim.state == "decoding":
                self.batch.leave(victim)
                self.hidden_pending += victim.hidden
            else:
                del self.prefilling[victim.job_id]
            memory.release(victim)
            victim.preemptions += 1
            victim.prefilled = 0
            plan.preempted.append(victim)
            self._line.push(victim)
        memory.fit(self.batch.growth)

    def _victim(self) -> Sequence:
        """The lowest priority, and of those the one that arrived last."""
        running = (*self.batch.own.values(), *self.batch.hidden, *self.prefilling.values())
        return min(running, key=lambda sequence: (sequence.priority, -sequence.order))
