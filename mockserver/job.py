"""What goes into an engine and what comes out of it: jobs, first tokens, ends, steps. Pure."""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Job:
    """One request: ``id`` (not negative, unique in the engine), prompt length, tokens to generate (≥ 1)."""

    id: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    """The higher one is admitted first and preempted last."""
    blocks: tuple[int, ...] = ()
    """A number for each whole block of prompt and output, in order, equal for what begins alike and only for
    that (``prefix_blocks.of_words``). Empty: nothing to share."""
    namespace: str = ""
    """Whose cached blocks it may use."""


class Started(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job of ours that got its first token. Instants are those of the engine."""

    job_id: int
    submitted_ns: int
    admitted_ns: int
    """Beginning of the first step that worked on it; what lies before was queue (and ingest)."""
    first_token_ns: int
    cached_tokens: int
    """Of its prompt, found in the prefix cache."""


class Finished(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job that has all its tokens. Instants are those of emission by the engine."""

    job: Job
    submitted_ns: int
    token_ns: NDArray[np.int64]
    """Instant of each output token, ``job.output_tokens`` of them; the first one is TTFT's. An engine that
    does not keep tokens gives the first and the last instant only."""
    admitted_ns: int
    cached_tokens: int = 0
    steps: int
    """Steps from the one that brought its first token to the one that brought its last."""
    mean_batch: float
    """Sequences that decoded in a step, mean over those in which it did; 0 if one token was all it got."""
    preemptions: int = 0

    @property
    def first_token_ns(self) -> int:
        """Instant of the first token."""
        return int(self.token_ns[0])

    @property
    def ended_ns(self) -> int:
        """Instant of the last token."""
        return int(self.token_ns[-1])


class StepDone(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step, as it was. Hidden sequences count in every number; only own ones are named."""

    number: int
    started_ns: int
    ended_ns: int
    decode_sequences: int
    """B: sequences that it decodes; those that stand still while prompts are prefilled are not in it."""
    context_tokens: int
    """S: the sum of their contexts at that instant."""
    prefill_tokens: int
    prefill_cached_tokens: int = 0
    """c: the sum of what was in memory before each chunk."""
    prefill_pairs: float = 0.0
    """P: query-key pairs of the chunks."""
    generated_tokens: int
    """Tokens that its end brought, to decoding sequences and to those whose prompt it finished."""
    running: int
    """Sequences decoding or being prefilled, after it."""
    waiting: int
    kv_tokens: int
    """KV that running sequences hold or have reserved, after it; what they share counts once."""
    cached_kv_tokens: int = 0
    """KV beside that which the prefix cache keeps and would give up."""
    emitted: tuple[int, ...]
    """Own jobs that got tokens at ``ended_ns``, in the order they began to decode; none from an engine that
    does not keep tokens."""
    emitted_tokens: tuple[int, ...] | None = None
    """How many each of them got; None: one each, without speculation."""
    started: tuple[Started, ...] = ()
    """Own jobs that got their first token."""
    finished: tuple[Finished, ...]
    queried_tokens: int = 0
    """Prompt tokens of sequences that were admitted in it and looked for in the prefix cache."""
    hit_tokens: int = 0
    """Those of them that were found."""
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preempted: int = 0
    """Sequences thrown out of memory for it, to be computed again."""
    ttft_ns: tuple[int, ...] = ()
    """Time to first token of every sequence that got its first one, hidden ones included."""
    queue_ns: tuple[int, ...] = ()
    """The part of each of them that passed before its first step."""
    e2e_ns: tuple[int, ...] = ()
    """Time from submission to last token of every sequence that ended, hidden ones included."""
    decode_ns: tuple[int, ...] = ()
    """The part of each of them that passed after its first token."""
