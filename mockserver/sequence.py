"""One request on its way through an engine, of ours or of the hidden load. Pure."""

from typing import TYPE_CHECKING, Literal

from mockserver.job import Job, Started

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

State = Literal["arriving", "waiting", "prefilling", "decoding", "parked", "gone"]
"""Parked: out of the batch with its tokens, as a hidden sequence is that our own displace."""


class Sequence:
    """A job and how far it has come. Steps are counted by the engine, decode steps by its batch."""

    __slots__ = (
        "admitted_ns",
        "blocks",
        "cached_tokens",
        "decode_steps",
        "decoded_with",
        "first_number",
        "first_token_ns",
        "generated",
        "hidden",
        "job",
        "job_id",
        "joined_step",
        "kept_blocks",
        "last_step",
        "order",
        "output_tokens",
        "pattern",
        "place",
        "preemptions",
        "prefilled",
        "priority",
        "prompt_tokens",
        "ready_ns",
        "served_before",
        "state",
        "stints",
        "submitted_ns",
    )

    def __init__(self, job: Job, submitted_ns: int, ready_ns: int, *, hidden: bool) -> None:
        self.job = job
        self.job_id, self.priority = job.id, job.priority
        self.prompt_tokens, self.output_tokens = job.prompt_tokens, job.output_tokens
        self.submitted_ns, self.ready_ns = submitted_ns, ready_ns  # ready: a step may see it
        self.hidden = hidden
        self.state: State = "arriving"
        self.order = 0  # in which it began to wait; kept when it is preempted
        self.blocks: tuple[object, ...] = ()  # keys of the prefix cache
        self.kept_blocks = 0  # leading ones that the cache knows from it, or holds for it
        self.cached_tokens = 0  # of its prompt, found when it was admitted first
        self.prefilled = 0
        self.generated = 0  # tokens it had when it last joined or left the batch
        self.admitted_ns = -1
        self.first_number = -1  # of the step whose end brought its first token
        self.first_token_ns: int | None = None
        self.joined_step = -1  # decode step from which on it took part, ...
        self.last_step = -1  # ... and the one that will bring its last token
        self.pattern: bytes | None = None  # tokens of each decode step since; None: one each
        self.served_before = 0  # what the batch had served when it joined
        self.decode_steps = 0  # in which it took part, in all its stints
        self.decoded_with = 0  # sequences that decoded in them, itself included, summed
        self.stints: list[NDArray[np.int64]] = []  # instants of tokens from before it was preempted
        self.preemptions = 0
        self.place = -1  # index among the hidden ones of the batch

    @property
    def to_prefill(self) -> int:
        """Tokens whose KV must be there before the next one comes: the prompt, and all it had generated."""
        return self.prompt_tokens + self.generated

    @property
    def mean_batch(self) -> float:
        """Sequences that decoded in a step, mean over those in which it did; 0 before the first."""
        return self.decoded_with / self.decode_steps if self.decode_steps else 0.0

    def started(self, ended_ns: int) -> Started:
        """What is told of a job of ours when a step's end brings its first token."""
        return Started(
            job_id=self.job_id,
            submitted_ns=self.submitted_ns,
            admitted_ns=self.admitted_ns,
            first_token_ns=ended_ns,
            cached_tokens=self.cached_tokens,
        )
