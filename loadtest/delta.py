"""What one event of a stream says, whichever API it came from. Pure."""

from functools import lru_cache
from typing import Annotated

import msgspec

from loadtest.records import EventKind

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A count of tokens a server may claim; anything else is damage."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Token counts as the server gave them; None where it said nothing. Cumulative, never added."""

    prompt_tokens: int | None = None
    """The whole prompt, where the server counts it whole."""
    uncached_tokens: int | None = None
    """The prompt less cache reads and writes, where the server counts that instead (Anthropic)."""
    output_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None

    @property
    def whole_prompt_tokens(self) -> int | None:
        """Tokens of the whole prompt, however they were counted."""
        if self.uncached_tokens is None:
            return self.prompt_tokens
        return self.uncached_tokens + (self.cached_tokens or 0) + (self.cache_write_tokens or 0)

    def then(self, later: "Usage") -> "Usage":
        """Both together: each later figure replaces the earlier one, and silence leaves it.

        A prompt does not shrink to nothing: the zeros that some servers fill in at the end are silence too.
        """
        return Usage(
            prompt_tokens=later.prompt_tokens or _first(self.prompt_tokens, later.prompt_tokens),
            uncached_tokens=later.uncached_tokens or _first(self.uncached_tokens, later.uncached_tokens),
            output_tokens=_first(later.output_tokens, self.output_tokens),
            cached_tokens=later.cached_tokens or _first(self.cached_tokens, later.cached_tokens),
            cache_write_tokens=later.cache_write_tokens
            or _first(self.cache_write_tokens, later.cache_write_tokens),
        )


def _first(count: int | None, otherwise: int | None) -> int | None:
    return otherwise if count is None else count


class Delta(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event, read. With every field at its default it said nothing of interest (a ping, a role)."""

    kind: EventKind | None = None
    """Set if the event carried generated output. Text wins over reasoning, reasoning over tool calls."""
    text: str = ""
    reasoning: str = ""
    tool: str = ""
    """Arguments of tool calls."""
    terminal: bool = False
    """The stream may end after this: a finish reason, a stop event, or the end mark."""
    finish_reason: str | None = None
    usage: Usage | None = None
    echoed_tier: str | None = None
    error: str | None = None
    """One line: the type and message of an error object."""


@lru_cache(maxsize=32)
def output(kind: EventKind, echoed_tier: str | None = None) -> Delta:
    """An event that brought output of one kind and said nothing else but, perhaps, its tier.

    The output itself is left out, so that a stream of such events is one value again and again.
    """
    return Delta(kind=kind, echoed_tier=echoed_tier)


def skimmed(delta: Delta) -> Delta:
    """The same event without its output."""
    if not (delta.text or delta.reasoning or delta.tool):
        return delta
    return msgspec.structs.replace(delta, text="", reasoning="", tool="")


NOTHING = Delta()
END_MARK = Delta(terminal=True)
DONE = b"[DONE]"
"""The data of the event that ends the streams of OpenAI's older APIs; it is no JSON."""


def kind_of(text: str, reasoning: str, tool: bool) -> EventKind | None:
    """Name the kind of output an event carried, None if it carried none."""
    if text:
        return "text"
    if reasoning:
        return "reasoning"
    return "tool" if tool else None


def error_line(error: object) -> str:
    """Put an error object (or string) of a server into one line: its type or code, and its message."""
    if not isinstance(error, dict):
        return folded(str(error))
    label = error.get("type") or error.get("code")
    message = error.get("message") or error.get("detail")
    return folded(": ".join(str(part) for part in (label, message) if part) or str(error))


def folded(text: str) -> str:
    """Put a text into one line that a terminal can be trusted with.

    Runs of white space become one blank, control characters the replacement character.
    """
    line = " ".join(text.split())
    return line if line.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in line)
