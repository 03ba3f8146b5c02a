"""An answer as Anthropic's Messages API tells it: events of a stream, or one message. Pure.

Names and order of events are those of the ``anthropic`` SDK's types (2.14, 2026) and of the vendor's
documentation. Rules for whoever edits this file:

1. A block is opened right before its first token and closed right after its last; the start of the first one
   goes before all tokens, the end of the last one after them.
2. What a token adds is JSON already (``speech``); an event within a block costs one concatenation.
3. Usage at the start knows the prompt and one token; at the end it is cumulative, and tells no speed.
"""

import base64
import hashlib
from typing import Any

import msgspec

from mockserver import anthropic_errors, speech
from mockserver.ask import Placed, RefusedError, Usage
from mockserver.wire_config import Wire

_STOP_REASONS = {
    "length": "max_tokens",
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool": "tool_use",
}
_DELTAS = {
    "reasoning": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "tool": ("input_json_delta", "partial_json"),
}
_SERVICE_TIERS = ("standard", "priority", "batch")
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessageVoice:
    """One message, told as it is generated or at once. There is one choice: 0."""

    def __init__(self, placed: Placed, *, wire: Wire, request_id: str) -> None:
        self._placed, self._wire, self._id = placed, wire, request_id
        self._answer = placed.answers[0]
        self._runs = speech.runs(self._answer)
        self._signature = _signature(self._answer.key)
        self._number = self._at = self._last = 0
        self._pieces: list[bytes] = []
        self._before = self._after = b""
        self._enter(0)

    def greeting(self) -> bytes:
        """Nothing: this API says nothing before it knows the prompt's usage."""
        return b""

    def opening(self, usage: Usage) -> bytes:
        """The start of the message with the prompt's usage, and the start of its first block."""
        so_far = {"output_tokens": 1, "output_tokens_details": {"thinking_tokens": 0}}
        message = self._message([], None, None, self._usage(usage) | so_far)
        start = _event("message_start", {"message": message})
        return start + self._block_start() + (b"" if self._wire.ping_s is None else _PING)

    def tokens(self, choice: int, count: int) -> bytes:
        """The event of the next tokens; several where a block ends within them, none if they say nothing."""
        at = self._at
        if count == 1 and 0 < at < self._last:
            self._at = at + 1
            return self._before + self._pieces[at] + self._after
        return self._across(choice, count)

    def choice_end(self, choice: int) -> bytes:  # noqa: ARG002 (there is one)
        """The end of the last block."""
        return self._block_stop()

    def closing(self, usage: Usage, *, with_usage: bool = True, with_end: bool = True) -> bytes:
        """The message's end: why it stopped, all usage, and the terminal event."""
        delta: dict[str, str | None] = {"stop_reason": None, "stop_sequence": None, "stop_details": None}
        if with_end:
            delta |= {
                "stop_reason": _STOP_REASONS[self._answer.finish],
                "stop_sequence": self._answer.stop_sequence,
            }
        fields: dict[str, Any] = {"delta": delta}
        if with_usage:
            fields["usage"] = _cumulative(self._usage(usage))
        told = _event("message_delta", fields) if with_usage or with_end else b""
        return told + (_event("message_stop", {}) if with_end else b"")

    def error(self, refusal: RefusedError) -> bytes:
        """An error after a response of status 200 began."""
        return b"event: error\ndata: " + anthropic_errors.refusal_body(refusal, self._id) + b"\n\n"

    def ping(self) -> bytes:
        """A ping, which may come anywhere in a stream."""
        return _PING

    def body(self, usage: Usage) -> bytes:
        """The whole message."""
        answer = self._answer
        content = [self._block(run, said=run.said) for run in self._runs]
        reason = _STOP_REASONS[answer.finish]
        return msgspec.json.encode(self._message(content, reason, answer.stop_sequence, self._usage(usage)))

    def _enter(self, number: int) -> None:
        """Go on to a block: its tokens from the first on, and what surrounds each of them in an event."""
        run = self._runs[number]
        self._number, self._at, self._pieces = number, 0, run.pieces
        kind, key = _DELTAS[run.kind]
        delta = _event("content_block_delta", {"index": number, "delta": {"type": kind, key: "\0"}})
        self._before, self._after = delta.split(rb"\u0000")
        silent = self._answer.stop_sequence is not None or not self._shown(run)
        self._last = 0 if silent else len(run.pieces) - 1  # tokens from 1 to it are events like each other

    def _across(self, choice: int, count: int) -> bytes:
        """The events of tokens that need a closer look: at a block's edges, several at once, or silent."""
        said = []
        while count > 0 and self._at < len(self._pieces):
            run, at = self._runs[self._number], self._at
            if at == 0 and self._number:
                said.append(self._block_start())
            taken = self._pieces[at : at + count]
            self._at, count = at + len(taken), count - len(taken)
            piece = b"".join(taken)
            if piece and self._shown(run):
                said.append(self._before + piece + self._after)
            if self._at == len(self._pieces) and self._number + 1 < len(self._runs):
                said.append(self.choice_end(choice))
                self._enter(self._number + 1)
        return b"".join(said)

    def _shown(self, run: speech.Run) -> bool:
        return run.kind != "reasoning" or self._placed.ask.reasoning_shown

    def _block_start(self) -> bytes:
        run = self._runs[self._number]
        start = _event(
            "content_block_start",
            {"index": self._number, "content_block": self._block(run, said="", signature="")},
        )
        if run.kind != "tool":
            return start
        return start + self._before + self._after  # the arguments of a call begin with an empty piece

    def _block_stop(self) -> bytes:
        stop = _event("content_block_stop", {"index": self._number})
        if self._runs[self._number].kind != "reasoning":
            return stop
        delta = {"type": "signature_delta", "signature": self._signature}
        return _event("content_block_delta", {"index": self._number, "delta": delta}) + stop

    def _block(self, run: speech.Run, *, said: str, signature: str | None = None) -> dict[str, Any]:
        """A block of content that says ``said``; by default with the signature that a whole one has."""
        if run.kind == "reasoning":
            whole = self._signature if signature is None else signature
            return {"type": "thinking", "thinking": said if self._shown(run) else "", "signature": whole}
        if run.kind == "tool":
            call = {"type": "tool_use", "id": f"toolu_{self._id}", "name": self._answer.tool}
            return {**call, "input": msgspec.json.decode(said) if said else {}}
        return {"type": "text", "text": said}

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, sequence: str | None, usage: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "model": self._placed.ask.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "stop_details": None,
            "usage": usage,
        }

    def _usage(self, usage: Usage) -> dict[str, Any]:
        """Usage as a whole message tells it. The prompt falls into read, written and uncached tokens."""
        ask = self._placed.ask
        room = usage.prompt_tokens if ask.cacheable_tokens is None else ask.cacheable_tokens
        read = min(usage.cached_tokens, room)
        written = min(usage.cache_write_tokens, room - read)
        for_an_hour = min(written, max(0, ask.cacheable_1h_tokens - read))
        told: dict[str, Any] = {
            "input_tokens": usage.prompt_tokens - read - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - for_an_hour,
                "ephemeral_1h_input_tokens": for_an_hour,
            },
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        }
        if (tier := self._placed.echoed_service_tier) is not None:
            asked = ask.speed in (None, "standard")  # a speed is no service tier: the fast one is standard
            told["service_tier"] = tier if asked and tier in _SERVICE_TIERS else "standard"
        if self._placed.echoed_speed is not None:
            told["speed"] = self._placed.echoed_speed
        if usage.truth:
            told["mockserver"] = usage.truth
        return told


def _cumulative(usage: dict[str, Any]) -> dict[str, Any]:
    """The part of usage that the end of a stream repeats: counts, and no names."""
    left_out = ("cache_creation", "service_tier", "speed")
    return {name: value for name, value in usage.items() if name not in left_out}


def _signature(key: int) -> str:
    """An opaque signature of a thinking block: nothing but a digest, equal for equal answers."""
    digest = hashlib.blake2b(b"signature %d" % key).digest()
    return base64.b64encode(digest).decode("ascii")


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"type": name, **fields}))
