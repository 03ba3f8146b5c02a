"""Steps of an imaginary engine and each sequence in them: what is counted by step must agree with it."""

import random
from dataclasses import dataclass, field

import numpy as np

from mockserver.job import Finished, Job, StepDone


@dataclass
class Sequence:
    """One sequence, hidden or ours, with the instant of each of its tokens."""

    number: int
    prompt_tokens: int
    output_tokens: int
    submitted_ns: int
    admitted_ns: int = -1
    prefilled: int = 0
    token_ns: list[int] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        return self.number % 2 == 0

    @property
    def ended(self) -> bool:
        return len(self.token_ns) == self.output_tokens

    def finished(self) -> Finished:
        return Finished(
            job=Job(self.number, self.prompt_tokens, self.output_tokens),
            submitted_ns=self.submitted_ns,
            admitted_ns=self.admitted_ns,
            token_ns=np.array(self.token_ns, dtype=np.int64),
            steps=len(set(self.token_ns)),
            mean_batch=1.0,
        )


def played(seed: int, *, pause: bool, draft_tokens: int = 0) -> tuple[list[StepDone], list[Sequence]]:
    """Steps until every sequence has ended. ``pause``: decoding stands still while prompts are prefilled."""
    rng = random.Random(seed)
    every: list[Sequence] = []
    steps: list[StepDone] = []
    now_ns = 1_000_000
    arrivals = [rng.randrange(3) for _ in range(60)]
    while arrivals or any(not one.ended for one in every):
        for _ in range(arrivals.pop() if arrivals else 0):
            submitted_ns = now_ns - rng.randrange(500_000_000)
            every.append(
                Sequence(len(every), rng.randint(1, 900), rng.choice((1, 1, 2, 9, 30)), submitted_ns)
            )
        step = _step(rng, every, len(steps), now_ns, pause=pause, draft_tokens=draft_tokens)
        if step is not None:
            steps.append(step)
            now_ns = step.ended_ns
        now_ns += rng.randrange(3) * 50_000_000 if step is None else 0
    return steps, every


def _step(
    rng: random.Random, every: list[Sequence], number: int, now_ns: int, *, pause: bool, draft_tokens: int
) -> StepDone | None:
    prefilling = [one for one in every if one.prefilled < one.prompt_tokens][:2]
    decoding = [one for one in every if one.token_ns and not one.ended]
    if pause and prefilling:
        decoding = []
    if not prefilling and not decoding:
        return None
    context = sum(one.prompt_tokens + len(one.token_ns) for one in decoding)
    ended_ns = now_ns + rng.randint(2_000_000, 300_000_000)
    chunks, first = 0, []
    for one in prefilling:
        one.admitted_ns = now_ns if one.admitted_ns < 0 else one.admitted_ns
        chunk = min(400, one.prompt_tokens - one.prefilled)
        one.prefilled += chunk
        chunks += chunk
        if one.prefilled == one.prompt_tokens:
            first.append(one)
    accepted = 0
    for one in decoding:
        taken = min(rng.randint(0, draft_tokens), one.output_tokens - len(one.token_ns) - 1)
        one.token_ns += [ended_ns] * (1 + taken)
        accepted += taken
    for one in first:
        one.token_ns.append(ended_ns)
    done = [one for one in (*decoding, *first) if one.ended]
    return StepDone(
        number=number,
        started_ns=now_ns,
        ended_ns=ended_ns,
        decode_sequences=len(decoding),
        context_tokens=context,
        prefill_tokens=chunks,
        generated_tokens=len(decoding) + accepted + len(first),
        running=len(decoding),
        waiting=number % 5,
        kv_tokens=context,
        emitted=tuple(one.number for one in (*decoding, *first) if one.ours),
        finished=tuple(one.finished() for one in done if one.ours),
        queried_tokens=10 * len(first),
        hit_tokens=4 * len(first),
        drafted_tokens=draft_tokens * len(decoding),
        accepted_tokens=accepted,
        preempted=int(number % 7 == 0),
        ttft_ns=tuple(ended_ns - one.submitted_ns for one in first),
        queue_ns=tuple(one.admitted_ns - one.submitted_ns for one in first),
        e2e_ns=tuple(ended_ns - one.submitted_ns for one in done),
        decode_ns=tuple(ended_ns - one.token_ns[0] for one in done),
    )
