"""Hidden sequences of an engine, kept at the number that its background wants. Pure.

Own sequences displace hidden ones: those are set aside as they are, as if another replica served them
meanwhile, and come back, without a second prefill, before new hidden prompts are started. With static
batching nobody joins or leaves a batch under way: hidden ones wait for the next one as soon as it has ended.
"""

from mockserver.background import Background
from mockserver.job import Job
from mockserver.scheduling import Scheduler
from mockserver.sequence import Sequence


class Neighbours:
    """The hidden load of one engine."""

    def __init__(self, background: Background, scheduler: Scheduler, start_ns: int) -> None:
        self._background, self._scheduler = background, scheduler
        self._static = scheduler.limits.batching == "static"
        self._parked: list[Sequence] = []
        self._count = 0
        self._warm_start(start_ns)

    @property
    def until_ns(self) -> int:
        """Until when the number that is wanted stays what it was at the last ``balance``."""
        return self._background.until_ns

    def balance(self, now_ns: int) -> None:
        """Bring the number of decoding sequences to what the hidden load should make it now."""
        scheduler, desired = self._scheduler, self._background.desired(now_ns)
        if self._static:
            if scheduler.stands_empty:
                self._start(desired - scheduler.hidden_pending, now_ns)
            return
        batch = scheduler.batch
        while batch.size > desired and batch.hidden:
            sequence = batch.hidden[self._background.pick(len(batch.hidden))]
            batch.leave(sequence)
            scheduler.memory.release(sequence)
            self._parked.append(sequence)
        while batch.size < desired and self._parked and scheduler.rejoin(self._parked[-1]):
            self._parked.pop()
        self._start(desired - batch.size - scheduler.hidden_pending - len(self._parked), now_ns)

    def _start(self, count: int, now_ns: int) -> None:
        for _ in range(count):
            prompt, output = self._background.draw()
            self._scheduler.arrive(self._new(prompt, output, now_ns))

    def _warm_start(self, start_ns: int) -> None:
        """Fill the batch to its target with sequences in the middle of their decode, as far as they fit."""
        scheduler = self._scheduler
        for _ in range(self._background.desired(start_ns)):
            prompt, output, generated = self._background.draw_running()
            sequence = self._new(prompt, output, start_ns)
            sequence.prefilled, sequence.generated = prompt, generated
            scheduler.enlist(sequence)
            if not scheduler.rejoin(sequence):
                return

    def _new(self, prompt_tokens: int, output_tokens: int, now_ns: int) -> Sequence:
        self._count += 1
        return Sequence(Job(-self._count, prompt_tokens, output_tokens), now_ns, now_ns, hidden=True)
