"""OpenAI-compatible chat completions: request bodies out, event JSON in. Pure.

Field names after the ``openai`` Python SDK's types (2026) and the servers that speak them: vLLM sends
``reasoning``, SGLang, llama.cpp and DeepSeek ``reasoning_content``. Rules for whoever edits this file:

1. ``choices`` may be empty or null; a role-only or empty delta is not a token.
2. Any non-empty text, refusal, reasoning or tool-call delta is generated output.
3. What is not JSON of the expected shape raises msgspec.DecodeError: damage, never a silent zero.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from loadtest.delta import END_MARK, NOTHING, Count, Delta, Usage, error_line, kind_of
from loadtest.plan import Plan
from loadtest.workload import Message, Request

PATH = "/v1/chat/completions"


def headers(key: str) -> dict[str, str]:
    """HTTP headers of this API; without a key (a server of one's own) there is no authorization."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def body(plan: Plan, request: Request, *, model: str, messages: Sequence[Message]) -> bytes:
    """The body of one request: all messages, streamed, with usage asked for.

    The tier's own fields come last and win; tables in them are merged key by key, so that a tier can add to
    ``stream_options``. A tier that sets ``max_completion_tokens`` (which some models demand) drops the older
    ``max_tokens``.
    """
    fields: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": message.text} for message in messages],
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if plan.workload.ignore_eos:
        fields["ignore_eos"] = True
    for key, value in request.tier.body.items():
        present = fields.get(key)
        fields[key] = present | value if isinstance(present, dict) and isinstance(value, dict) else value
    if "max_completion_tokens" in fields:
        del fields["max_tokens"]
    return msgspec.json.encode(fields)


def read_event(name: bytes, data: bytes) -> Delta:
    """Read one event of a stream. Raises msgspec.DecodeError on what is not a chunk of this API."""
    if data == b"[DONE]":
        return END_MARK
    if not data or data.isspace():
        return NOTHING
    chunk = _decode_chunk(data)
    if chunk.error or name == b"error":
        return Delta(error=error_line(chunk.error or data.decode()))
    usage, choices = chunk.usage, chunk.choices
    if choices and len(choices) == 1 and usage is None:
        return _one_choice(choices[0].delta or _EMPTY, choices[0].finish_reason, None, chunk.service_tier)
    return _choices(choices or [], usage, chunk.service_tier)


def read_body(data: bytes) -> Delta:
    """Read a whole response that was not streamed. Raises msgspec.DecodeError if it is none."""
    whole = _decode_chunk(data)
    if whole.error:
        return Delta(error=error_line(whole.error))
    if whole.choices is None:
        raise msgspec.ValidationError("a response without choices")
    return msgspec.structs.replace(_choices(whole.choices, whole.usage, whole.service_tier), terminal=True)


def _choices(choices: "list[_Choice]", usage: "_Usage | None", tier: str | None) -> Delta:
    """Several choices, or none, in one event: their output taken together."""
    parts = [choice.delta or choice.message or _EMPTY for choice in choices]
    merged = _Message(
        content="".join(part.content or "" for part in parts),
        refusal="".join(part.refusal or "" for part in parts),
        reasoning="".join(part.reasoning or part.reasoning_content or "" for part in parts),
        tool_calls=[call for part in parts for call in part.tool_calls or ()],
    )
    finish = next((choice.finish_reason for choice in choices if choice.finish_reason), None)
    return _one_choice(merged, finish, usage, tier)


def _one_choice(part: "_Message", finish: str | None, usage: "_Usage | None", tier: str | None) -> Delta:
    text = part.content or part.refusal or ""
    reasoning = part.reasoning or part.reasoning_content or ""
    tool, called = _tool(part.tool_calls) if part.tool_calls else ("", False)
    return Delta(
        kind=kind_of(text, reasoning, called),
        text=text,
        reasoning=reasoning,
        tool=tool,
        terminal=finish is not None,
        finish_reason=finish,
        usage=_usage(usage) if usage else None,
        echoed_tier=tier,
    )


def _tool(calls: "list[_ToolCall]") -> tuple[str, bool]:
    """Arguments of tool calls, and whether anything (a name counts) was generated."""
    functions = [call.function for call in calls if call.function]
    arguments = "".join(function.arguments or "" for function in functions)
    return arguments, bool(arguments) or any(function.name for function in functions)


def _usage(usage: "_Usage") -> Usage:
    details = usage.prompt_tokens_details
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=details.cached_tokens if details else None,
    )


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    service_tier: str | None = None
    error: Any = None


_EMPTY = _Message()
_decode_chunk = msgspec.json.Decoder(_Chunk).decode
