"""What the requests of OpenAI's APIs have in common: bounds, streaming options, content, tools. Pure."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mockserver.ask import RefusedError
from mockserver.json_frame import Frame, frame_of

Limit = Annotated[int, Meta(ge=1, le=10_000_000)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Choices = Annotated[int, Meta(ge=1, le=128)]
_Sequence = Annotated[str, Meta(min_length=1, max_length=1000)]
Stop = _Sequence | Annotated[list[_Sequence], Meta(max_length=64)]
_STRICT_STOPS = 4  # the vendor's bound; engines have none
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class StreamOptions(msgspec.Struct, frozen=True):
    """How to stream; ``continuous_usage_stats`` is known to vLLM and TensorRT-LLM."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message; only text counts as prompt."""

    type: str
    text: str | None = None
    refusal: str | None = None


Content = str | list[ContentPart] | None


def words_of(content: Content) -> str:
    """The text of a content, its parts one after the other."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text or part.refusal or "" for part in content)


def stops(stop: Stop | None, *, strict: bool) -> tuple[str, ...]:
    """The stop sequences, however they were given; a strict server raises RefusedError for more than four."""
    if stop is None:
        return ()
    found = (stop,) if isinstance(stop, str) else tuple(stop)
    if strict and len(found) > _STRICT_STOPS:
        message = f"Invalid value for 'stop': {len(found)} sequences; expected at most {_STRICT_STOPS}"
        raise RefusedError(400, message, param="stop")
    return found


def options(found: StreamOptions | None, stream: bool | None) -> StreamOptions:
    """The options of a stream; raises RefusedError if there are some and there is no stream."""
    if found is None:
        return StreamOptions()
    if not stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise RefusedError(400, message, param="stream_options")
    return found


class JsonSchema(msgspec.Struct, frozen=True):
    """A schema and its name; only the schema matters here."""

    schema: dict[str, Any] | None = None


class Format(msgspec.Struct, frozen=True):
    """What a text must be: chat nests the schema, Responses has it at the top."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None


def frame(found: Format | None) -> Frame | None:
    """The JSON around the words of a text; None for a text that may be anything."""
    if found is None or found.type == "text":
        return None
    return frame_of(found.json_schema.schema if found.json_schema else found.schema)


def forced_tool(choice: "str | ToolChoice | None", functions: Sequence[str]) -> str | None:
    """The function that an answer must call; None where it may as well be text.

    Left to choose (``auto``), the server answers in words. ``required`` means the first function there is.
    """
    if choice is None or choice in ("none", "auto"):
        return None
    if isinstance(choice, str):
        mode, named = choice, None
    elif choice.type == "allowed_tools":
        allowed = choice.allowed_tools or choice
        mode, named = allowed.mode or "", None
        functions = [_name(tool) for tool in allowed.tools or () if _name(tool) in functions]
        if mode == "auto":
            return None
    elif choice.type == "function":
        mode, named = "required", choice.function.name if choice.function else choice.name
    else:
        raise _bad_choice(f"a choice of type {choice.type!r} is not supported; expected 'function'")
    if mode != "required":
        raise _bad_choice(f"{mode!r} is not allowed; expected one of: none, auto, required")
    if not functions:
        raise _bad_choice("a function must be called and 'tools' holds none that may be")
    if named is not None and named not in functions:
        raise _bad_choice(f"the function {named!r} is not among 'tools'")
    return named or functions[0]


class Named(msgspec.Struct, frozen=True):
    """A function by its name."""

    name: Name


class Allowed(msgspec.Struct, frozen=True):
    """Tools of which some may be called."""

    mode: str
    tools: list[dict[str, Any]]


class ToolChoice(msgspec.Struct, frozen=True):
    """Which tool is to be called: chat nests what Responses has at the top."""

    type: str
    function: Named | None = None
    name: Name | None = None
    allowed_tools: Allowed | None = None
    mode: str | None = None
    tools: list[dict[str, Any]] | None = None


def _name(tool: dict[str, Any]) -> str:
    inner = tool.get("function", tool)
    return str(inner.get("name", "")) if isinstance(inner, dict) else ""


def _bad_choice(why: str) -> RefusedError:
    return RefusedError(400, f"Invalid value for 'tool_choice': {why}", param="tool_choice")
