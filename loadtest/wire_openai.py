"""OpenAI-compatible chat completions: request bodies out, event JSON in. Pure.

Answers of the older completions API are read here too: they differ in ``choices[].text`` alone.

Field names after the ``openai`` Python SDK's types (2026) and the servers that speak them: vLLM sends
``reasoning``, SGLang, llama.cpp and DeepSeek ``reasoning_content``. Rules for whoever edits this file:

1. ``choices`` may be empty or null; a role-only or empty delta is not a token.
2. Any non-empty text, refusal, reasoning or tool-call delta is generated output.
3. What is not JSON of the expected shape raises msgspec.DecodeError: damage, never a silent zero.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from loadtest.body import turns, with_tier
from loadtest.delta import DONE, END_MARK, NOTHING, Count, Delta, Usage, error_line, kind_of, output, skimmed
from loadtest.plan import Plan
from loadtest.records import EventKind
from loadtest.workload import Message, Request

PATH = "/v1/chat/completions"


def headers(key: str) -> dict[str, str]:
    """HTTP headers of this API; without a key (a server of one's own) there is no authorization."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def body(plan: Plan, request: Request, *, model: str, messages: Sequence[Message]) -> bytes:
    """The body of one request: all messages, and usage asked for where the answer is streamed.

    A tier that sets ``max_completion_tokens`` (which some models demand) drops the older ``max_tokens``.
    """
    fields = {"model": model, "messages": turns(messages)} | how(plan, request, length="max_tokens")
    fields = with_tier(fields, request)
    if "max_completion_tokens" in fields:
        del fields["max_tokens"]
    return msgspec.json.encode(fields)


def how(plan: Plan, request: Request, *, length: str) -> dict[str, Any]:
    """How to answer, said alike in two APIs of OpenAI; ``length`` is the name of the output's bound."""
    work = plan.workload
    fields: dict[str, Any] = {length: request.max_tokens, "stream": work.stream}
    if work.stream:
        fields["stream_options"] = {"include_usage": True}
    if work.stop:
        fields["stop"] = work.stop
    if work.ignore_eos:
        fields["ignore_eos"] = True
    return fields


def read_event(name: bytes, data: bytes) -> Delta:
    """Read one event of a stream. Raises msgspec.DecodeError on what is not a chunk of this API."""
    if data == DONE:
        return END_MARK
    if not data or data.isspace():
        return NOTHING
    chunk = _decode_chunk(data)
    if chunk.error or name == b"error":
        return Delta(error=error_line(chunk.error or data.decode("utf-8", "replace")))
    if chunk.choices is None and chunk.usage is None and (found := _bare_error(data)):
        return Delta(error=error_line(found))
    return _choices(chunk.choices or [], chunk.usage, chunk.service_tier)


def skim(events: list[bytes]) -> list[Delta] | None:
    """Read the data of many events, less their output; None if one needs a closer look.

    Raises msgspec.DecodeError as ``read_event`` does.
    """
    deltas: list[Delta] = []
    for data in events:
        chunk = _decode_chunk(data)
        choices, usage, tier = chunk.choices, chunk.usage, chunk.service_tier
        if choices and len(choices) == 1 and not chunk.error and (kind := _only_kind(choices[0])):
            told = Delta(kind=kind, usage=_usage(usage), echoed_tier=tier) if usage else output(kind, tier)
            deltas.append(told)
            continue
        if chunk.error or (choices is None and usage is None):
            return None
        deltas.append(skimmed(_choices(choices or [], usage, tier)))
    return deltas


def _only_kind(choice: "_Choice") -> EventKind | None:
    """Which kind of output a choice has; None if it has none, or says something else too."""
    part = choice.delta
    if part is None or choice.finish_reason or part.tool_calls:
        return None
    if part.content or part.refusal or choice.text:
        return "text"
    return "reasoning" if part.reasoning or part.reasoning_content else None


def _bare_error(data: bytes) -> dict[str, Any] | None:
    """An error object that stands by itself, as older vLLM sends it: ``{"object": "error", …}``."""
    document = msgspec.json.decode(data)
    return document if document.get("object") == "error" or document.get("type") == "error" else None


def read_body(data: bytes) -> Delta:
    """Read a whole response that was not streamed. Raises msgspec.DecodeError if it is none."""
    whole = _decode_chunk(data)
    if whole.error:
        return Delta(error=error_line(whole.error))
    if whole.choices is None:
        raise msgspec.ValidationError("a response without choices")
    return msgspec.structs.replace(_choices(whole.choices, whole.usage, whole.service_tier), terminal=True)


def _choices(choices: "list[_Choice]", usage: "_Usage | None", tier: str | None) -> Delta:
    """The choices of one event, most often one or none: their output taken together."""
    text = reasoning = tool = ""
    called, finish = False, None
    for choice in choices:
        part = choice.delta or choice.message or _EMPTY
        text += part.content or part.refusal or choice.text or ""
        reasoning += part.reasoning or part.reasoning_content or ""
        finish = finish or choice.finish_reason
        if part.tool_calls:
            arguments, any_called = _tool(part.tool_calls)
            tool, called = tool + arguments, called or any_called
    return Delta(
        kind=kind_of(text, reasoning, called),
        text=text,
        reasoning=reasoning,
        tool=tool,
        terminal=bool(finish),  # some servers send "" until the end
        finish_reason=finish or None,
        usage=_usage(usage) if usage else None,
        echoed_tier=tier,
    )


def _tool(calls: "list[_ToolCall]") -> tuple[str, bool]:
    """Arguments of tool calls, and whether anything (a name counts) was generated."""
    functions = [call.function for call in calls if call.function]
    arguments = "".join(function.arguments or "" for function in functions)
    return arguments, bool(arguments) or any(function.name for function in functions)


def _usage(usage: "_Usage") -> Usage:
    details = usage.prompt_tokens_details or _NO_DETAILS
    cached = details.cached_tokens
    return Usage(
        prompt_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=usage.prompt_cache_hit_tokens if cached is None else cached,
        cache_write_tokens=details.cache_write_tokens,
    )


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class _Message(msgspec.Struct, gc=False):
    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: Count | None = None
    """DeepSeek's name for cached tokens."""


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    service_tier: str | None = None
    error: Any = None


_EMPTY = _Message()
_NO_DETAILS = _PromptDetails()
_decode_chunk = msgspec.json.Decoder(_Chunk).decode
