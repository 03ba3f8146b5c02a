"""What is counted of one engine, a step at a time: the numbers behind ``/metrics``. Pure.

Adding a step costs a few µs whatever the batch: a step that brings B tokens is B observations of one value.
Times are those of every sequence, hidden ones included, as a real server counts all its users; numbers that
only a request of ours has (``finished``) are counted of those.
"""

from mockserver import histogram
from mockserver.histogram import Histogram
from mockserver.job import Finished, StepDone


class EngineCounts:
    """Totals and distributions since the start."""

    def __init__(self, kv_capacity_tokens: int, longest_tokens: int) -> None:
        self.kv_capacity_tokens = kv_capacity_tokens
        self.last: StepDone | None = None
        self.generated_tokens = self.computed_tokens = self.preemptions = 0
        self.queried_tokens = self.hit_tokens = 0
        self.drafts = self.drafted_tokens = self.accepted_tokens = 0
        self.steps_by_bound: dict[str, int] = {}
        sizes = histogram.one_two_five(longest_tokens)
        self.prompt_tokens, self.output_tokens = Histogram(sizes), Histogram(sizes)
        self.tpot_s, self.inference_s = Histogram(histogram.ITL_S), Histogram(histogram.REQUEST_S)
        self.ttft_s, self.itl_s = Histogram(histogram.TTFT_S), Histogram(histogram.ITL_S)
        self.queue_s, self.prefill_s = Histogram(histogram.REQUEST_S), Histogram(histogram.REQUEST_S)
        self.decode_s, self.e2e_s = Histogram(histogram.REQUEST_S), Histogram(histogram.REQUEST_S)
        self.iteration_tokens = Histogram(histogram.ITERATION_TOKENS)
        self.step_s, self.lag_s = Histogram(histogram.STEP_S), Histogram(histogram.LAG_S)
        self.batch = Histogram(histogram.BATCH)
        self._decoded_ns: int | None = None  # end of the last step that decoded
        self._joined: list[tuple[int, int]] = []  # instant and number of first tokens since then

    @property
    def found_or_computed_tokens(self) -> int:
        """Prompt tokens that were prefilled or found in the prefix cache."""
        return self.computed_tokens + self.hit_tokens

    def add(self, step: StepDone, lag_ns: int, bound: str = "") -> None:
        """Count one step; ``bound`` is what its duration came from, where that is known."""
        self.last = step
        self.generated_tokens += step.generated_tokens
        self.computed_tokens += step.prefill_tokens
        self.preemptions += step.preempted
        self.queried_tokens += step.queried_tokens
        self.hit_tokens += step.hit_tokens
        if step.drafted_tokens:
            self.drafts += step.decode_sequences
            self.drafted_tokens += step.drafted_tokens
            self.accepted_tokens += step.accepted_tokens
        if bound:
            self.steps_by_bound[bound] = self.steps_by_bound.get(bound, 0) + 1
        self.iteration_tokens.add(step.prefill_tokens + step.generated_tokens)
        self.step_s.add((step.ended_ns - step.started_ns) / 1e9)
        self.batch.add(step.decode_sequences)
        if step.emitted:
            self.lag_s.add(lag_ns / 1e9)
        self._add_gaps(step)
        if step.ttft_ns or step.e2e_ns:
            self._add_sequences(step)
        for finished in step.finished:
            self._add_finished(finished)

    def _add_gaps(self, step: StepDone) -> None:
        """Time since its last token, of each sequence that decoded.

        That was the end of the last step that decoded, or of the one since then that brought its first token:
        between the two lie steps that only prefilled, while decoding stood still.
        """
        decoding, ended_ns = step.decode_sequences, step.ended_ns
        if not decoding:
            joined = len(step.ttft_ns) - step.decode_ns.count(0)  # who wants one token waits for no more
            if joined:
                self._joined.append((ended_ns, joined))
            return
        for instant_ns, joined in self._joined:
            count = min(joined, decoding)  # some may have been cancelled
            self.itl_s.add((ended_ns - instant_ns) / 1e9, count)
            decoding -= count
        if decoding:
            since_ns = step.started_ns if self._decoded_ns is None else self._decoded_ns
            self.itl_s.add((ended_ns - since_ns) / 1e9, decoding)
        self._joined.clear()
        self._decoded_ns = ended_ns

    def _add_sequences(self, step: StepDone) -> None:
        for ttft_ns in step.ttft_ns:
            self.ttft_s.add(ttft_ns / 1e9)
        for ttft_ns, queue_ns in zip(step.ttft_ns, step.queue_ns, strict=False):
            self.queue_s.add(queue_ns / 1e9)
            self.prefill_s.add((ttft_ns - queue_ns) / 1e9)
        for e2e_ns in step.e2e_ns:
            self.e2e_s.add(e2e_ns / 1e9)
        for decode_ns in step.decode_ns:
            self.decode_s.add(decode_ns / 1e9)

    def _add_finished(self, finished: Finished) -> None:
        job, first_ns, ended_ns = finished.job, finished.first_token_ns, finished.ended_ns
        self.prompt_tokens.add(job.prompt_tokens)
        self.output_tokens.add(job.output_tokens)
        self.inference_s.add((ended_ns - finished.admitted_ns) / 1e9)
        self.tpot_s.add((ended_ns - first_ns) / 1e9 / max(1, job.output_tokens - 1))
