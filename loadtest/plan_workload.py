"""What the requests of a plan ask, as the plan says it. Pure types; ``workload`` makes requests of them.

Token counts here are aimed at; what the server counts is the truth and is in the records.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from loadtest.quantities import Count, FilePath, Name, NonNegativeSeconds, Ratio, Tokens

Classes = Annotated[tuple[Tokens, ...], Meta(min_length=1, max_length=64)]


class Lognormal(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="lognormal", tag_field="kind"
):
    """Lengths with a given median and shape ``sigma`` (of the logarithm), drawn again outside the bounds."""

    median: Tokens
    sigma: Annotated[float, Meta(ge=0, le=4)]
    minimum: Tokens = 1
    maximum: Tokens = 1_000_000


class Uniform(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="uniform", tag_field="kind"
):
    """Each length from ``minimum`` to ``maximum`` alike."""

    minimum: Tokens
    maximum: Tokens


class Empirical(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="empirical", tag_field="kind"
):
    """Lengths drawn with repetition from a list, or from a file with one whole number a line."""

    values: Annotated[tuple[Tokens, ...], Meta(max_length=100_000)] = ()
    file: FilePath | None = None


Lengths = Lognormal | Uniform | Empirical


class SharedPrefix(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A prefix that several prompts begin with, such as a system prompt: the rest of each stays fresh.

    ``requests_ratio`` of the requests begin with one of ``groups`` prefixes of ``tokens`` (or of as many as
    the prompt has, less one, if it is shorter).
    """

    tokens: Tokens
    groups: Count = 1
    requests_ratio: Ratio = 1.0


class Sessions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conversations: ``turns`` requests each, and each resends all that was said so far, answers included.

    The first prompt has the workload's prompt length, each later turn adds ``turn_tokens``. A closed stream
    holds one conversation after the other; in an open loop conversations, not requests, arrive. A turn that
    fails ends its conversation.
    """

    turns: Annotated[int, Meta(ge=1, le=10_000)]
    turn_tokens: Tokens
    think_s: NonNegativeSeconds = 0.0
    switch_turn: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """From this turn on (0 is the first) every conversation is asked of ``switch_tier``; one that began there
    does not change, so it is the control of a cache experiment."""
    switch_tier: Name | None = None


class Prompts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prompts from a JSONL file (``prompt``, or ``messages``) or a ShareGPT JSON file, in the file's order.

    Lines are used once each before any is used again; when they are used again a caution is recorded,
    because a prefix cache may then be hit, unless ``repeat`` says that this is meant.
    """

    file: FilePath
    format: Literal["jsonl", "sharegpt"] = "jsonl"
    repeat: bool = False


class Trace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths, instants and shared blocks from a published trace; text is made to fit.

    Equal ``hash_ids`` give equal text at the same place, ``block_tokens`` tokens each: by default 512 for
    Mooncake and 16 for Qwen-Bailian, as published.
    """

    file: FilePath
    format: Literal["azure", "mooncake", "qwen", "burstgpt"]
    block_tokens: Tokens | None = None
    limit: Count | None = None
    """Use the first so many rows only."""


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each request asks.

    One of ``prompt_tokens``, ``prompts`` and ``trace`` says where prompts come from. ``prompt_tokens`` is a
    list of exact prompt-length classes, or a distribution. Each class gets an equal share of the requests of
    each tier, in an order randomised per tier (docs/inference.md says why). Prompts are fresh: no two share
    a prefix, so no cache is hit by accident.
    """

    prompt_tokens: Classes | Lengths | None = None
    output_tokens: Tokens | Lengths | None = None
    """Output length asked for, in tokens; needed unless a trace or a file tells it."""
    prompts: Prompts | None = None
    trace: Trace | None = None
    shared_prefix: SharedPrefix | None = None
    sessions: Sessions | None = None
    stream: bool = True
    """Without streaming only the end of a response is seen: no TTFT and no gaps."""
    stop: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    ignore_eos: bool = True
    """Ask servers that know the field (vLLM, SGLang, llama.cpp, mock) for exactly ``output_tokens``."""
    tokens_per_word: Annotated[float, Meta(ge=0.1, le=100)] | None = None
    """How many of the server's tokens one of our prompt words costs; None: a few short requests before the
    run measure it (docs/measurement.md)."""
    tokenizer: FilePath | None = None
    """A local ``tokenizer.json`` that counts prompt tokens instead; never downloaded."""

    @property
    def classes(self) -> tuple[int, ...]:
        """The exact prompt-length classes; empty if lengths come from elsewhere."""
        return self.prompt_tokens if isinstance(self.prompt_tokens, tuple) else ()
