"""What is known of a request's answers while they are made: tokens so far, cache, truth, usage. Pure."""

from mockserver import request_truth
from mockserver.ask import Placed, Usage
from mockserver.job import Finished, Started


class Answering:
    """The bookkeeping of one placed request, whose answers are jobs of the engine."""

    def __init__(self, placed: Placed, *, caches: bool, truth: bool) -> None:
        self.placed = placed
        self.generated_tokens = 0
        """Over all answers, so far."""
        self.total_tokens = sum(answer.output_tokens for answer in placed.answers)
        self._caches, self._truth = caches, truth
        self._cached = [0] * len(placed.answers)
        self._starts: list[Started] = []
        self._ends: list[Finished] = []

    @property
    def over(self) -> bool:
        """Whether every answer is complete."""
        return len(self._ends) == len(self.placed.answers)

    @property
    def cached_tokens(self) -> int:
        """Of the prompts, each counted once: those that were found in the prefix cache."""
        return sum(self._cached[:: self.placed.ask.choices])

    def started(self, place: int, job: Started) -> None:
        """Answer ``place`` is about to get its first token."""
        self._cached[place] = job.cached_tokens
        if self._truth:
            self._starts.append(job)

    def finished(self, job: Finished) -> None:
        """An answer has all its tokens."""
        self._ends.append(job)

    def usage(self) -> Usage:
        """Tokens as they stand, or as they are once it is over."""
        placed, cached = self.placed, self.cached_tokens
        prompts = [answer.prompt_tokens for answer in placed.answers[:: placed.ask.choices]]
        may = placed.ask.cacheable_tokens
        kept = sum(prompt if may is None else min(prompt, may) for prompt in prompts) if self._caches else 0
        return Usage(
            prompt_tokens=sum(prompts),
            cached_tokens=cached,
            cache_write_tokens=max(0, kept - cached),
            output_tokens=self.total_tokens if self.over else self.generated_tokens,
            reasoning_tokens=sum(answer.reasoning_tokens for answer in placed.answers),
            truth=self._told() if self._truth else {},
        )

    def _told(self) -> dict[str, float]:
        """What really happened, as far as it has."""
        wait_ns = self.placed.wait_ns
        if self.over:
            return request_truth.of_finished(self._ends, wait_ns=wait_ns)
        return request_truth.of_started(self._starts, wait_ns=wait_ns) if self._starts else {}
