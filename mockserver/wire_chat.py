"""OpenAI's chat completions on the wire: ``POST /v1/chat/completions``. Pure.

Names and shapes are those of the vendor's SDK types (openai 3.57, 2026), reasoning and running usage those of
vLLM, SGLang and DeepSeek. Unless the profile is strict, fields that nobody knows are accepted, as servers do
that many clients speak to; a known field of the wrong type is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from mockserver import openai_errors
from mockserver.ask import Answer, Ask, Dialect, Placed
from mockserver.chunks import ChunkVoice
from mockserver.json_frame import frame_of
from mockserver.openai_request import (
    Choices,
    Content,
    Effort,
    Format,
    Limit,
    Name,
    Named,
    Penalty,
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
from mockserver.speech import Kind, Run
from mockserver.wire_config import Wire

FIELDS = frozenset(
    {
        "messages",
        "model",
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "modalities",
        "moderation",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    }
)
"""All that the vendor's API takes (openai 3.57, 2026)."""
STREAM_FIELDS = frozenset(("include_usage", "include_obfuscation"))
_FINISH = {"length": "length", "stop": "stop", "stop_sequence": "stop", "tool": "tool_calls"}


class CalledFunction(msgspec.Struct, frozen=True):
    """A call's function in a message of before."""

    name: str = ""
    arguments: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A call in a message of before."""

    function: CalledFunction = CalledFunction()


class Message(msgspec.Struct, frozen=True):
    """One message of the prompt."""

    role: Literal["developer", "system", "user", "assistant", "tool", "function"]
    content: Content = None
    tool_calls: list[ToolCall] | None = None


class FunctionTool(msgspec.Struct, frozen=True):
    """What a function tool says of its function that matters here."""

    name: Name
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct, frozen=True):
    """A tool; only functions can be called here."""

    type: str
    function: FunctionTool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """What of a request has a meaning here, or a type that is looked at."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    service_tier: str | None = None
    n: Choices | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    tools: list[Tool] | None = None
    tool_choice: str | ToolChoice | None = None
    function_call: str | Named | None = None
    response_format: Format | None = None
    reasoning_effort: Effort | None = None
    ignore_eos: bool | None = None
    logprobs: bool | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None


def _parse(body: bytes, _headers: Mapping[str, str], wire: Wire) -> Ask:
    """Read a request; raises RefusedError (400) that names the field for whatever is wrong with it."""
    request = openai_errors.decode(_DECODER, body)
    if wire.refuse_unknown:
        openai_errors.refuse_unknown(body, FIELDS, {"stream_options": STREAM_FIELDS})
    if request.logprobs:
        raise openai_errors.unsupported("logprobs", "this server has no probabilities to tell")
    if request.function_call not in (None, "none", "auto"):
        raise openai_errors.unsupported("function_call", "expected 'tool_choice' in its place")
    schemas = {tool.function.name: tool.function.parameters for tool in request.tools or () if tool.function}
    called = forced_tool(request.tool_choice, list(schemas))
    how = options(request.stream_options, request.stream)
    return Ask(
        model=request.model,
        prompts=("\n".join(_text(message) for message in request.messages),),
        choices=request.n or 1,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stream=bool(request.stream),
        include_usage=bool(how.include_usage),
        running_usage=bool(how.continuous_usage_stats),
        obfuscation=how.include_obfuscation is not False,
        service_tier=request.service_tier,
        seed=request.seed,
        stop=stops(request.stop, strict=wire.refuse_unknown),
        ignore_eos=bool(request.ignore_eos),
        tool=called,
        frame=frame(request.response_format) if called is None else frame_of(schemas[called]),
        reasoning=None if request.reasoning_effort is None else request.reasoning_effort != "none",
    )


def _voice(placed: Placed, *, wire: Wire, request_id: str, created_unix_s: int) -> ChunkVoice:
    """The answer to a placed request."""
    shape = ChatShape(wire.reasoning_field, request_id)
    return ChunkVoice(shape, placed, wire=wire, request_id=request_id, created_unix_s=created_unix_s)


@dataclass(frozen=True, slots=True)
class ChatShape:
    """How chat tells a choice (``chunks.Shape``)."""

    reasoning_field: str
    request_id: str
    chunk_object: str = "chat.completion.chunk"
    whole_object: str = "chat.completion"
    id_prefix: str = "chatcmpl-"

    def role(self, index: int, answer: Answer) -> dict[str, Any]:
        """The choice that brings the role."""
        content = "" if answer.tool is None else None
        return _chunk(index, {"role": "assistant", "content": content})

    def delta(
        self, index: int, answer: Answer, kind: Kind, piece: str, *, first_of_run: bool, first_of_all: bool
    ) -> dict[str, Any]:
        """The choice that brings tokens."""
        said: dict[str, Any] = {"role": "assistant"} if first_of_all else {}
        if kind == "reasoning":
            said[self.reasoning_field] = piece
        elif kind == "text":
            said["content"] = piece
        elif first_of_run:
            said["tool_calls"] = [{"index": 0, **self._call(index, answer, piece)}]
        else:
            said["tool_calls"] = [{"index": 0, "function": {"arguments": piece}}]
        return _chunk(index, said)

    def end(self, index: int, answer: Answer) -> dict[str, Any]:
        """The choice that brings the finish reason."""
        return _chunk(index, {}, _FINISH[answer.finish])

    def whole(self, index: int, answer: Answer, runs: tuple[Run, ...]) -> dict[str, Any]:
        """A whole choice."""
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        for run in runs:
            if run.kind == "reasoning":
                message[self.reasoning_field] = run.said
            elif run.kind == "text":
                message["content"] = run.said
            else:
                message["tool_calls"] = [self._call(index, answer, run.said)]
        finish = _FINISH[answer.finish]
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish}

    def _call(self, index: int, answer: Answer, arguments: str) -> dict[str, Any]:
        function = {"name": answer.tool, "arguments": arguments}
        return {"id": f"call_{self.request_id}{index}", "type": "function", "function": function}


def _chunk(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _text(message: Message) -> str:
    calls = [call.function.arguments for call in message.tool_calls or ()]
    return "\n".join([words_of(message.content), *calls])


_DECODER = msgspec.json.Decoder(ChatRequest)
DIALECT = Dialect(
    parse=_parse, voice=_voice, refusal_body=openai_errors.refusal_body, headers=openai_errors.headers
)
