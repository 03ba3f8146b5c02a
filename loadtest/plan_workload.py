"""What the requests of a plan ask, as the plan says it. Pure types; ``workload`` makes requests of them.

Token counts here are aimed at; what the server counts is the truth and is in the records.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from loadtest.quantities import Count, FilePath, Name, NonNegativeSeconds, Ratio, Tokens
from tierscope.errors import BadInputError

Classes = Annotated[tuple[Tokens, ...], Meta(min_length=1, max_length=64)]


class Lognormal(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="lognormal", tag_field="kind"
):
    """Lengths with a given median and shape ``sigma`` (of the logarithm), drawn again outside the bounds.

    The median is that of the law before bounds, and lies within them.
    """

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
    groups: Annotated[int, Meta(ge=1, le=100_000)] = 1
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


def check(work: Workload, tiers: Sequence[str], *, where: str) -> None:
    """Refuse what types cannot: no source of prompts or two, and parts that contradict each other.

    ``tiers`` are the names of the plan's tiers.
    """
    given = [name for name in ("prompt_tokens", "prompts", "trace") if getattr(work, name) is not None]
    if len(given) != 1:
        raise BadInputError(
            f"{where}: {' and '.join(given) or 'nothing'} {'say' if given else 'says'} what to ask; "
            "expected one of prompt_tokens, prompts and trace"
        )
    if work.output_tokens is None and work.prompt_tokens is not None:
        raise BadInputError(f"{where}.output_tokens: is missing; only a file or a trace tells it by itself")
    if work.tokenizer is not None and work.tokens_per_word is not None:
        raise BadInputError(f"{where}: tokenizer and tokens_per_word both say how to count; keep one")
    if work.shared_prefix is not None and work.prompts is not None:
        raise BadInputError(f"{where}.shared_prefix: prompts of a file are sent as they are; leave it out")
    for name in ("prompt_tokens", "output_tokens"):
        _check_lengths(getattr(work, name), where=f"{where}.{name}")
    if work.trace is not None:
        _check_trace(work, work.trace, where=where)
    if work.sessions is not None:
        _check_sessions(work.sessions, tiers, where=f"{where}.sessions")


def _check_lengths(asked: object, *, where: str) -> None:
    match asked:
        case Lognormal(median=median, minimum=minimum, maximum=maximum):
            if not minimum <= median <= maximum:
                raise BadInputError(
                    f"{where}.median: {median} is not allowed; expected minimum to maximum, "
                    f"{minimum} to {maximum}"
                )
        case Uniform(minimum=minimum, maximum=maximum):
            if minimum > maximum:
                raise BadInputError(
                    f"{where}.minimum: {minimum} is not allowed; expected at most maximum, {maximum}"
                )
        case Empirical(values=values, file=file):
            if bool(values) == (file is not None):
                raise BadInputError(f"{where}: expected one of values and file")


def _check_trace(work: Workload, trace: Trace, *, where: str) -> None:
    if work.output_tokens is not None:
        raise BadInputError(f"{where}.output_tokens: a trace tells its own; leave it out")
    if work.sessions is not None:
        raise BadInputError(f"{where}.sessions: a trace tells its own histories; leave sessions out")
    if trace.format in ("azure", "burstgpt"):
        if trace.block_tokens is not None:
            raise BadInputError(f"{where}.trace.block_tokens: {trace.format} traces have no blocks")
    elif work.shared_prefix is not None:
        raise BadInputError(
            f"{where}.shared_prefix: a {trace.format} trace tells what is shared; leave it out"
        )


def _check_sessions(sessions: Sessions, tiers: Sequence[str], *, where: str) -> None:
    turn, tier = sessions.switch_turn, sessions.switch_tier
    if (turn is None) != (tier is None):
        raise BadInputError(f"{where}: switch_turn and switch_tier go together")
    if tier is not None and tier not in tiers:
        raise BadInputError(f"{where}.switch_tier: {tier!r} is no tier; expected {' or '.join(tiers)}")
    if turn is not None and turn >= sessions.turns:
        raise BadInputError(
            f"{where}.switch_turn: {turn} is not allowed; expected less than turns, {sessions.turns}"
        )
