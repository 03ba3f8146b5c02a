"""Anthropic Messages: request bodies out, event JSON in. Pure.

Field names after the ``anthropic`` Python SDK's types (2026). Rules for whoever edits this file:

1. ``input_tokens`` counts uncached input only; the prompt is it plus cache reads and cache writes.
2. Usage of ``message_delta`` is cumulative and tells no speed: the served speed is that of ``message_start``.
3. Pings, signatures, block starts and stops, and event types not known here are no output.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from loadtest.delta import NOTHING, Count, Delta, Usage, error_line, kind_of
from loadtest.plan import Plan
from loadtest.workload import Message, Request

PATH = "/v1/messages"


def headers(key: str) -> dict[str, str]:
    """HTTP headers of this API."""
    version = {"anthropic-version": "2023-06-01"}
    return version | {"x-api-key": key} if key else version


def body(_plan: Plan, request: Request, *, model: str, messages: Sequence[Message]) -> bytes:
    """The body of one request: all messages, streamed. The tier's own fields come last and win.

    There is no way to ask this API for an exact output length, so ``ignore_eos`` has no effect.
    """
    fields: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": [{"role": message.role, "content": message.text} for message in messages],
        "stream": True,
    }
    return msgspec.json.encode(fields | request.tier.body)


def read_event(name: bytes, data: bytes) -> Delta:
    """Read one event of a stream. Raises msgspec.DecodeError on what is not JSON of this API."""
    if not data or data.isspace():
        return NOTHING
    event = _decode_event(data)
    kind = event.type or name.decode("utf-8", "replace")
    if event.error or kind == "error":
        return Delta(error=error_line(event.error or data.decode()))
    if kind == "content_block_delta" and event.delta:
        return _output(event.delta)
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
    called = any(block.type == "tool_use" for block in message.content)
    return Delta(
        kind=kind_of(text, reasoning, called),
        text=text,
        reasoning=reasoning,
        terminal=True,
        finish_reason=message.stop_reason,
        usage=_usage(message.usage) if message.usage else None,
        echoed_tier=_tier(message.usage) if message.usage else None,
    )


def _output(delta: "_Part") -> Delta:
    text, reasoning, tool = delta.text or "", delta.thinking or "", delta.partial_json or ""
    return Delta(kind=kind_of(text, reasoning, bool(tool)), text=text, reasoning=reasoning, tool=tool)


def _usage(usage: "_Usage") -> Usage:
    prompt = None
    if usage.input_tokens is not None:
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        prompt = usage.input_tokens + cached
    return Usage(
        prompt_tokens=prompt,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_input_tokens,
        cache_write_tokens=usage.cache_creation_input_tokens,
    )


def _tier(usage: "_Usage") -> str | None:
    return usage.speed or usage.service_tier


class _Usage(msgspec.Struct):
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    service_tier: str | None = None
    speed: str | None = None


class _Part(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    content: list[_Part] | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None
    error: Any = None


class _Event(msgspec.Struct):
    type: str | None = None
    message: _Message | None = None
    delta: _Part | None = None
    usage: _Usage | None = None
    error: Any = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_message = msgspec.json.Decoder(_Message).decode
