"""OpenAI's Responses API: request bodies out, event JSON in. Pure.

Field and event names after the ``openai`` Python SDK's types (2026). Rules for whoever edits this file:

1. Deltas carry output; the ``…done`` events repeat it and count for nothing.
2. ``response.completed`` and ``response.incomplete`` (the output bound was reached, or a filter struck) end a
   stream well, as "length" ends a chat; ``response.failed`` and ``error`` do not.
3. A tier of "auto" is what was asked, not what served: no echo.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from loadtest.body import with_tier
from loadtest.delta import (
    DONE,
    END_MARK,
    NOTHING,
    Count,
    Delta,
    Usage,
    error_line,
    kind_of,
    output,
    skimmed,
)
from loadtest.plan import Plan
from loadtest.records import EventKind
from loadtest.workload import Message, Request

PATH = "/v1/responses"

_DELTAS: dict[str, EventKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "tool",
    "response.custom_tool_call_input.delta": "tool",
    "response.mcp_call_arguments.delta": "tool",
    "response.code_interpreter_call_code.delta": "tool",
}
_CALLS = ("function_call", "custom_tool_call", "mcp_call")


def body(plan: Plan, request: Request, *, model: str, messages: Sequence[Message]) -> bytes:
    """The body of one request: all messages as input. Usage comes with the last event unasked.

    ``stop`` and ``ignore_eos`` are sent where the plan has them; engines know them here, OpenAI refuses them.
    """
    work = plan.workload
    fields: dict[str, Any] = {
        "model": model,
        "input": [_turn(message) for message in messages],
        "max_output_tokens": request.max_tokens,
        "stream": work.stream,
    }
    if work.stop:
        fields["stop"] = work.stop
    if work.ignore_eos:
        fields["ignore_eos"] = True
    return msgspec.json.encode(with_tier(fields, request))


def _turn(message: Message) -> dict[str, Any]:
    """One message of the input; llama.cpp's server takes an answer of before only as typed output (2026)."""
    if message.role != "assistant":
        return {"role": message.role, "content": message.text}
    said = [{"type": "output_text", "text": message.text}]
    return {"type": "message", "role": message.role, "content": said}


def read_event(name: bytes, data: bytes) -> Delta:
    """Read one event of a stream. Raises msgspec.DecodeError on what is not JSON of this API."""
    if data == DONE:
        return END_MARK
    if not data or data.isspace():
        return NOTHING
    event = _decode_event(data)
    if event.type is None:
        event.type = name.decode("utf-8", "replace")
    if event.error or event.type == "error":
        told = event.error or {"type": event.code, "message": event.message or "an error without a message"}
        return Delta(error=error_line(told))
    return _read(event)


def skim(events: list[bytes]) -> list[Delta] | None:
    """Read the data of many events, less their output; None if one needs a closer look.

    Raises msgspec.DecodeError as ``read_event`` does.
    """
    deltas: list[Delta] = []
    for data in events:
        event = _decode_event(data)
        if event.error or event.type is None or event.type == "error":
            return None
        kind = _DELTAS.get(event.type)
        if kind is not None and isinstance(event.delta, str) and event.delta:
            deltas.append(output(kind))
        else:
            deltas.append(skimmed(_read(event)))
    return deltas


def _read(event: "_Event") -> Delta:
    kind = _DELTAS.get(event.type or "")
    if kind is not None:
        return _output(kind, event.delta)
    if event.type == "response.output_item.added" and event.item is not None:
        return output("tool") if event.item.type in _CALLS and event.item.name else NOTHING
    if event.type == "response.failed" and event.response is None:
        return Delta(error=event.type)
    return _state(event.response) if event.response is not None else NOTHING


def read_body(data: bytes) -> Delta:
    """Read a whole response that was not streamed. Raises msgspec.DecodeError if it is none."""
    response = _decode_response(data)
    if response.error:
        return Delta(error=error_line(response.error))
    if response.output is None:
        raise msgspec.ValidationError("a response without output")
    parts = [part for item in response.output for part in item.content or ()]
    thoughts = [part for item in response.output for part in item.summary or ()]
    text = "".join(part.text or part.refusal or "" for part in parts if part.type != "reasoning_text")
    thoughts += [part for part in parts if part.type == "reasoning_text"]
    reasoning = "".join(part.text or "" for part in thoughts)
    calls = [item for item in response.output if item.type in _CALLS]
    return msgspec.structs.replace(
        _state(response),
        kind=kind_of(text, reasoning, bool(calls)),
        text=text,
        reasoning=reasoning,
        tool="".join(call.arguments or call.input or "" for call in calls),
    )


def _output(kind: EventKind, delta: object) -> Delta:
    if not delta:
        return NOTHING
    if not isinstance(delta, str):
        raise msgspec.ValidationError(f"a {kind} delta that is no text")
    if kind == "text":
        return Delta(kind=kind, text=delta)
    return Delta(kind=kind, reasoning=delta) if kind == "reasoning" else Delta(kind=kind, tool=delta)


def _state(response: "_Response") -> Delta:
    """What a response says of itself, at its start, in between or at its end."""
    tier = None if response.service_tier == "auto" else response.service_tier
    if response.error or response.status in ("failed", "cancelled"):
        return Delta(
            error=error_line(response.error or f"the response was {response.status}"), echoed_tier=tier
        )
    ended = response.status in ("completed", "incomplete")
    why = response.incomplete_details.reason if response.incomplete_details else None
    return Delta(
        terminal=ended,
        finish_reason=(why or response.status) if ended else None,
        usage=_usage(response.usage) if response.usage else None,
        echoed_tier=tier,
    )


def _usage(usage: "_Usage") -> Usage:
    details = usage.input_tokens_details
    return Usage(
        prompt_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=details.cached_tokens if details else None,
        cache_write_tokens=details.cache_write_tokens if details else None,
    )


class _InputDetails(msgspec.Struct, gc=False):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    input_tokens_details: _InputDetails | None = None


class _Part(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct, gc=False):
    type: str | None = None
    name: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    arguments: str | None = None
    input: str | None = None


class _IncompleteDetails(msgspec.Struct, gc=False):
    reason: str | None = None


class _Response(msgspec.Struct, gc=False):
    status: str | None = None
    service_tier: str | None = None
    usage: _Usage | None = None
    output: list[_Item] | None = None
    incomplete_details: _IncompleteDetails | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    response: _Response | None = None
    item: _Item | None = None
    delta: Any = None
    """A text for the events in ``_DELTAS``; others may hold anything there."""
    error: Any = None
    code: Any = None
    message: str | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_response = msgspec.json.Decoder(_Response).decode
