"""OpenAI's Responses on the wire: ``POST /v1/responses``. Pure.

Names and shapes are those of the vendor's SDK types (openai 3.57, 2026). Nothing is stored, so what builds on
an earlier response is not found. ``stop`` and ``ignore_eos`` are engines' own.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mockserver import openai_errors
from mockserver.ask import Ask, Dialect, Placed, RefusedError
from mockserver.json_frame import frame_of
from mockserver.openai_request import (
    Content,
    Effort,
    Format,
    Limit,
    Probability,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    ToolChoice,
    forced_tool,
    frame,
    options,
    stops,
    words_of,
)
from mockserver.responses_voice import ResponsesVoice
from mockserver.wire_config import Wire

FIELDS = frozenset(
    {
        "access_programs",
        "background",
        "background_options",
        "context_management",
        "conversation",
        "image",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""All that the vendor's API takes (openai 3.57, 2026)."""
STREAM_FIELDS = frozenset({"include_obfuscation"})
_REPEATED: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
"""What a response repeats of its request, with the vendor's defaults."""


class Item(msgspec.Struct, frozen=True):
    """One item of the input; one without a type is a message."""

    type: str = "message"
    role: str | None = None
    content: Content = None
    arguments: str | None = None
    output: Content = None


class Tool(msgspec.Struct, frozen=True):
    """A tool; only functions can be called here."""

    type: str
    name: str | None = None
    parameters: dict[str, Any] | None = None


class Reasoning(msgspec.Struct, frozen=True):
    """How much to think."""

    effort: Effort | None = None


class TextConfig(msgspec.Struct, frozen=True):
    """What a text must be."""

    format: Format | None = None


class ResponseRequest(msgspec.Struct, frozen=True):
    """What of a request has a meaning here, or a type that is looked at."""

    model: str
    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: Limit | None = None
    service_tier: str | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    ignore_eos: bool | None = None
    tools: list[Tool] | None = None
    tool_choice: str | ToolChoice | None = None
    text: TextConfig | None = None
    reasoning: Reasoning | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None


def _parse(body: bytes, _headers: Mapping[str, str], wire: Wire) -> Ask:
    """Read a request; raises RefusedError (400) that names the field for whatever is wrong with it."""
    request = openai_errors.decode(_DECODER, body)
    if wire.refuse_unknown:
        openai_errors.refuse_unknown(body, FIELDS, {"stream_options": STREAM_FIELDS})
    _refuse_unsupported(request)
    schemas = {
        tool.name: tool.parameters for tool in request.tools or () if tool.type == "function" and tool.name
    }
    called = forced_tool(request.tool_choice, list(schemas))
    text_frame = frame(request.text.format) if request.text else None
    how = options(request.stream_options, request.stream)
    effort = request.reasoning.effort if request.reasoning else None
    return Ask(
        model=request.model,
        prompts=(_prompt(request),),
        max_tokens=request.max_output_tokens,
        stream=bool(request.stream),
        obfuscation=how.include_obfuscation is not False,
        service_tier=request.service_tier,
        seed=request.seed,
        stop=stops(request.stop, strict=wire.refuse_unknown),
        ignore_eos=bool(request.ignore_eos),
        tool=called,
        frame=text_frame if called is None else frame_of(schemas[called]),
        reasoning=None if effort is None else effort != "none",
        repeated=_repeated(body),
    )


def _voice(placed: Placed, *, wire: Wire, request_id: str, created_unix_s: int) -> ResponsesVoice:
    """The answer to a placed request."""
    return ResponsesVoice(placed, wire=wire, request_id=request_id, created_unix_s=created_unix_s)


def _refuse_unsupported(request: ResponseRequest) -> None:
    if request.previous_response_id is not None:
        raise RefusedError(
            400,
            f"Previous response with id {request.previous_response_id!r} not found: nothing is stored here",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if request.background:
        raise openai_errors.unsupported("background", "nothing is stored that could be asked for later")
    if request.conversation is not None:
        raise openai_errors.unsupported("conversation", "nothing is stored here")
    if request.prompt is not None:
        raise openai_errors.unsupported("prompt", "there are no templates here")
    if request.top_logprobs:
        raise openai_errors.unsupported("top_logprobs", "this server has no probabilities to tell")
    for place, item in enumerate(request.input if isinstance(request.input, list) else ()):
        if item.type == "message" and item.role not in ("user", "assistant", "system", "developer"):
            raise RefusedError(
                400,
                f"Invalid value for 'input[{place}].role': {item.role!r} is not allowed; expected one of: "
                "user, assistant, system, developer",
                param=f"input[{place}].role",
            )


def _prompt(request: ResponseRequest) -> str:
    """The words of instructions and input: messages, arguments of calls, and what calls gave."""
    parts = [request.instructions or ""]
    if isinstance(request.input, str):
        parts.append(request.input)
    else:
        for item in request.input:
            parts += [words_of(item.content), item.arguments or "", words_of(item.output)]
    return "\n".join(parts)


def _repeated(body: bytes) -> bytes:
    fields = openai_errors.fields_of(body)
    given = {key: fields[key] for key in _REPEATED if fields.get(key) is not None}
    return msgspec.json.encode({**_REPEATED, **given})


_DECODER = msgspec.json.Decoder(ResponseRequest)
DIALECT = Dialect(
    parse=_parse, voice=_voice, refusal_body=openai_errors.refusal_body, headers=openai_errors.headers
)
