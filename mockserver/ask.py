"""A request and its answer in words that all APIs share: ``wire_*`` modules read into and render them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mockserver.tier_config import TierConfig
from mockserver.wire_config import Wire

RefusalKind = Literal[
    "invalid", "not_found", "too_large", "timeout", "rate_limited", "overloaded", "server", "method"
]


class RefusedError(Exception):
    """A request that is not served. Each API renders it in its own shape; ``status`` is HTTP's."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: RefusalKind = "invalid",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param, self.code = status, message, kind, param, code
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request asks, whatever its API."""

    model: str
    prompts: tuple[str, ...]
    """The words of each prompt, in order; several only where the API has lists of prompts."""
    choices: int = 1
    """Answers to each prompt."""
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = True
    running_usage: bool = False
    obfuscation: bool = True
    """Whether padding would be accepted, where the server pads at all."""
    service_tier: str | None = None
    speed: str | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    tool: str | None = None
    """The tool that the answer must call."""
    frame: tuple[str, str] | None = None
    """JSON before and after the words of a call's arguments, or of a text that must be JSON
    (``json_frame.frame_of``)."""
    reasoning: bool | None = None
    """Asked for, refused, or left to the server."""
    reasoning_limit_tokens: int | None = None
    """Reasoning may take so many of the answer's tokens at most."""
    reasoning_shown: bool = True
    """Whether the words of reasoning are sent; if not, its tokens make no bytes."""
    cacheable_tokens: int | None = None
    """So many of the prompt's first tokens may be found in a prefix cache and kept there; None: all."""
    cacheable_1h_tokens: int = 0
    """The part of them that is to be kept for an hour instead of five minutes."""
    repeated: bytes = b""
    """A JSON object of those fields of the request that a response repeats (OpenAI's Responses)."""


Finish = Literal["length", "stop", "stop_sequence", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One choice: which words, how many, why it ends. Reasoning comes first, then text or a tool call."""

    key: int
    """Chooses the words (``speech.runs``); equal for equal prompt, seed and choice."""
    prompt_tokens: int
    output_tokens: int
    reasoning_tokens: int = 0
    tool: str | None = None
    """All that is not reasoning is the arguments of a call of this tool."""
    frame: tuple[str, str] | None = None
    """The ask's."""
    finish: Finish = "length"
    stop_sequence: str | None = None
    """The one that was met; it is not part of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """An ask that is served: by whom, what is answered, what the response calls it."""

    ask: Ask
    tier: TierConfig
    """The one that serves."""
    requested: TierConfig
    """The one that was asked for."""
    answers: tuple[Answer, ...]
    """Prompts times choices, the choices of the first prompt first."""
    wait_ns: int = 0
    """How long a limit holds it back before it may be submitted."""
    echoed_service_tier: str | None = None
    """What the response names; None: nothing."""
    echoed_speed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request, over all its answers. ``prompt_tokens`` holds the other two kinds of input."""

    prompt_tokens: int
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    truth: Mapping[str, float] = field(default_factory=dict)
    """What really happened, where the profile's ``wire.truth`` asks for it; else empty."""


Limited = Literal["requests", "input", "output"]
"""What a bucket counts: requests, tokens of prompts, tokens of answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a tier's bucket has left, for the headers of a response."""

    what: Limited
    limit: int
    """Per minute."""
    remaining: int
    reset_s: float
    """Until it is full again."""


class Voice(Protocol):
    """The answer to one request in the words of its API. Makes bytes and sends none.

    A stream is ``greeting``, ``opening``, then ``tokens`` of every choice and its ``choice_end``, then
    ``closing``. An answer that is not streamed is ``body`` alone.
    """

    def greeting(self) -> bytes:
        """What follows the head at once, before anything was computed; may be empty."""

    def opening(self, usage: Usage) -> bytes:
        """What comes right before the first token of all; ``usage`` knows the prompt's side."""

    def tokens(self, choice: int, count: int) -> bytes:
        """The event of the next ``count`` tokens of a choice (several where a kind ends within them)."""

    def choice_end(self, choice: int) -> bytes:
        """What follows the last token of a choice."""

    def closing(self, usage: Usage, *, with_usage: bool = True, with_end: bool = True) -> bytes:
        """What follows the last choice. Faults leave usage out, or the terminal events."""

    def error(self, refusal: RefusedError) -> bytes:
        """An error inside the stream."""

    def ping(self) -> bytes:
        """What keeps a silent connection open; empty where the API has none."""

    def body(self, usage: Usage) -> bytes:
        """The whole answer to a request that did not ask for a stream."""


class MakesVoice(Protocol):
    """How an API answers."""

    def __call__(self, placed: Placed, *, wire: Wire, request_id: str, created_unix_s: int) -> Voice:
        """The answer to a placed request. ``request_id`` is 24 hexadecimal digits, unique in the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One API: how it is asked, how it answers and refuses."""

    parse: Callable[[bytes, Mapping[str, str], Wire], Ask]
    """(body, headers with names in lower case, wire) → ask; RefusedError names the field that is wrong."""
    voice: MakesVoice
    refusal_body: Callable[[RefusedError, str], bytes]
    """(refusal, request's id) → its JSON."""
    headers: Callable[[str, tuple[Quota, ...], str | None, int], dict[str, str]]
    """(request's id, what limits leave, requested speed, UNIX time) → headers of every response."""
