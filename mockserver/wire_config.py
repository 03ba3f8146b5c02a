"""How a mock server speaks, and how it misbehaves, as a file says it. Typed, pure."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mockserver.tier_config import Name, Ratio, Seconds

FaultKind = Literal[
    "http_error",  # answers `status` in the API's error shape
    "delay",  # waits `wait_s` before the head of the answer
    "stream_error",  # an error event or object inside a 200 stream, then its end
    "cut",  # closes the connection in an orderly way in the middle of the body
    "reset",  # closes it with RST
    "stall",  # sends nothing for `wait_s`, then goes on
    "garbage",  # an event that is no JSON
    "drip",  # sends what is due in pieces of one byte with `wait_s` between them
    "no_usage",  # leaves usage out
    "no_end",  # ends the body well and leaves finish reason and terminal event out
    "gzip",  # compresses the body, whatever the client accepts
]


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of misbehaviour, and whom it strikes. Drawn from the seed and the request's number."""

    kind: FaultKind
    ratio: Ratio = 1.0
    """Probability for each request that the rest lets through."""
    tiers: Annotated[tuple[Name, ...], Meta(max_length=16)] = ()
    """Only requests of these tiers; empty: of all."""
    from_s: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """Only requests that arrive so long after the start, or later ..."""
    until_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """... and before this."""
    every: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """Only each so-manieth request of the server: the first, the (every + 1)-th ..."""
    after_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 4
    """Faults of a stream come after so many tokens of it, or before its last one if it is shorter."""
    status: Annotated[int, Meta(ge=400, le=599)] = 500
    """Of ``http_error``; for ``stream_error`` it chooses the error's type."""
    wait_s: Seconds = 1.0
    """Of ``delay`` and ``stall``; of ``drip`` between any two bytes."""


class Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What providers do differently in a stream that says the same."""

    tokens_per_event: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Tokens that are gathered into one event; what is left at the end goes in a shorter one."""
    split_bytes: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    """Events are written in pieces of so many bytes, each in a write of its own."""
    role_first: bool = True
    """A first chunk with a role and no token (OpenAI chat)."""
    obfuscation: bool = False
    """Random padding in each event (OpenAI; Responses too unless ``include_obfuscation`` is false)."""
    running_usage: bool = False
    """Usage so far in every chunk, asked for or not (else with ``continuous_usage_stats``)."""
    refuse_unknown: bool = False
    """Refuse request fields that the strict API does not have, like ``ignore_eos``."""
    reasoning_ratio: Ratio = 0.0
    """Share of the output that is reasoning, before the text."""
    reasoning_field: Literal["reasoning", "reasoning_content"] = "reasoning_content"
    """OpenAI chat: the delta's key for it."""
    ping_s: Annotated[float, Meta(gt=0, le=3600)] | None = 15.0
    """Anthropic: a ping right after ``message_start`` and each time so long passes; None: none."""
    fast_needs_beta: bool = False
    """Anthropic: refuse ``speed`` without the header ``anthropic-beta: fast-mode-2026-02-01``."""
    truth: bool = False
    """Usage carries ``mockserver``: what really happened to the request (queue, prefill, batch, steps)."""
