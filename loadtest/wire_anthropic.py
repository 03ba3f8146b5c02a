"""Anthropic Messages: request bodies out, event JSON in. Pure.

Field names after the ``anthropic`` Python SDK's types (2026). Rules for whoever edits this file:

1. ``input_tokens`` counts uncached input only; the prompt is it plus cache reads and cache writes.
2. Usage of ``message_delta`` is cumulative and tells no speed: the served speed is that of ``message_start``.
3. Pings, signatures, block stops and event types not known here are no output. A block's start is, if it
   names a tool or has text already.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from loadtest.body import turns, with_tier
from loadtest.delta import NOTHING, Count, Delta, Usage, error_line, kind_of, output, skimmed
from loadtest.plan import Plan
from loadtest.records import EventKind
from loadtest.workload import Message, Request

PATH = "/v1/messages"
_CALLS = ("tool_use", "server_tool_use")


def headers(key: str) -> dict[str, str]:
    """HTTP headers of this API."""
    version = {"anthropic-version": "2023-06-01"}
    return version | {"x-api-key": key} if key else version


def body(plan: Plan, request: Request, *, model: str, messages: Sequence[Message]) -> bytes:
    """The body of one request: all messages; a system message goes where this API wants it.

    There is no way to ask this API for an exact output length, so ``ignore_eos`` has no effect.
    """
    system = "\n".join(message.text for message in messages if message.role == "system")
    fields: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": turns([message for message in messages if message.role != "system"]),
        "stream": plan.workload.stream,
    }
    if system:
        fields["system"] = system
    if plan.workload.stop:
        fields["stop_sequences"] = plan.workload.stop
    return msgspec.json.encode(with_tier(fields, request))


def read_event(name: bytes, data: bytes) -> Delta:
    """Read one event of a stream. Raises msgspec.DecodeError on what is not JSON of this API."""
    if not data or data.isspace():
        return NOTHING
    event = _decode_event(data)
    if event.type is None:
        event.type = name.decode("utf-8", "replace")
    if event.error or event.type == "error":
        return Delta(error=error_line(event.error or data.decode("utf-8", "replace")))
    return _delta(event)


def skim(events: list[bytes]) -> list[Delta] | None:
    """Read the data of many events, less their output; None if one needs a closer look.

    Raises msgspec.DecodeError as ``read_event`` does.
    """
    deltas: list[Delta] = []
    for data in events:
        event = _decode_event(data)
        part = event.delta
        if event.error or event.type is None or event.type == "error":
            return None
        if event.type == "content_block_delta" and part is not None:
            kind = _kind(part)
            deltas.append(NOTHING if kind is None else output(kind))
        else:
            deltas.append(skimmed(_delta(event)))
    return deltas


def _delta(event: "_Event") -> Delta:
    kind = event.type
    if kind == "content_block_delta" and event.delta:
        return _output(event.delta)
    if kind == "content_block_start" and event.content_block:
        return _output(event.content_block)
    if kind == "message_start" and event.message and event.message.usage:
        return Delta(usage=_usage(event.message.usage), echoed_tier=_tier(event.message.usage))
    if kind == "message_delta":
        return Delta(
            finish_reason=event.delta.stop_reason if event.delta else None,
            usage=_usage(event.usage) if event.usage else None,
        )
    return Delta(terminal=True) if kind == "message_stop" else NOTHING


def read_body(data: bytes) -> Delta:
    """Read a whole message that was not streamed. Raises msgspec.DecodeError if it is none."""
    message = _decode_message(data)
    if message.error:
        return Delta(error=error_line(message.error))
    if message.content is None:
        raise msgspec.ValidationError("a response without content")
    text = "".join(block.text or "" for block in message.content)
    reasoning = "".join(block.thinking or "" for block in message.content)
    called = any(block.type in _CALLS for block in message.content)
    return Delta(
        kind=kind_of(text, reasoning, called),
        text=text,
        reasoning=reasoning,
        terminal=True,
        finish_reason=message.stop_reason,
        usage=_usage(message.usage) if message.usage else None,
        echoed_tier=_tier(message.usage) if message.usage else None,
    )


def _output(part: "_Part") -> Delta:
    text, reasoning, tool = part.text or "", part.thinking or "", part.partial_json or ""
    return Delta(kind=_kind(part), text=text, reasoning=reasoning, tool=tool)


def _kind(part: "_Part") -> EventKind | None:
    called = part.type in _CALLS and bool(part.name)
    return kind_of(part.text or "", part.thinking or "", called or bool(part.partial_json))


def _usage(usage: "_Usage") -> Usage:
    return Usage(
        uncached_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
    )


def _tier(usage: "_Usage") -> str | None:
    return usage.speed or usage.service_tier


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    service_tier: str | None = None
    speed: str | None = None


class _Part(msgspec.Struct, gc=False):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    name: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct, gc=False):
    content: list[_Part] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Event(msgspec.Struct, gc=False):
    type: str | None = None
    message: _Message | None = None
    delta: _Part | None = None
    content_block: _Part | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_message = msgspec.json.Decoder(_Message).decode
