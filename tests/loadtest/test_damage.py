"""Damaged responses: never a hang, never growth without bound, and never a success.

The judge is the standard library: ``http.client`` takes the response apart, a reader written from the
standard's text finds the events, ``json`` reads them. What the judge cannot read, or finds an error in, must
not be called ok; and what is called ok must hold as many output events and tokens as the judge finds.

Not every damage can be seen: letters changed inside a JSON string, a field of an event renamed to one that
nobody knows, an event lost or doubled as a whole all leave a response that is well-formed. Only the network's
own checksums, or TLS, keep those out.
"""

import http.client
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import reading, timeline
from loadtest.exchange import Exchange
from loadtest.framing import ResponseFramer
from loadtest.plan import Api, Tier
from loadtest.wire import WIRES
from loadtest.workload import Request
from tests.loadtest.streams import ANTHROPIC, RESPONSES, chat, cut, read_whole, usage

REQUEST = Request(index=0, stage="s", warmup=False, tier=Tier(name="t"), prompt_tokens=9, max_tokens=5)
WORDS = [" a", " quick", '"x"', "快"]


@dataclass
class Finding:
    """What the judge made of a response. ``sound`` is False for what it cannot read and for errors."""

    sound: bool = True
    ended: bool = False
    outputs: int = 0
    output_tokens: int | None = None


def judge_chat(event: dict[str, Any], found: Finding) -> None:
    if told := event.get("usage"):
        found.output_tokens = told.get("completion_tokens", found.output_tokens)
    parts = event.get("choices") or []
    said = [choice.get("delta") or choice.get("message") or {} for choice in parts]
    names = ("content", "refusal", "reasoning", "reasoning_content")
    calls = [call.get("function") or {} for part in said for call in part.get("tool_calls") or []]
    texts = [part.get(name) for part in said for name in names] + [choice.get("text") for choice in parts]
    found.outputs += any(texts) or any(call.get("name") or call.get("arguments") for call in calls)
    found.ended |= any(choice.get("finish_reason") for choice in parts)
    found.sound &= not event.get("error") and "error" not in (event.get("object"), event.get("type"))


def judge_anthropic(event: dict[str, Any], found: Finding) -> None:
    kind = event.get("type")
    start = event.get("message") or {}
    told = (start if kind == "message_start" else event if kind == "message_delta" else {}).get("usage") or {}
    found.output_tokens = told.get("output_tokens", found.output_tokens)
    part = (
        event.get(
            {"content_block_delta": "delta", "content_block_start": "content_block"}.get(kind or "", "")
        )
        or {}
    )
    found.outputs += bool(
        part.get("text") or part.get("thinking") or part.get("partial_json") or part.get("name")
    )
    found.ended |= kind == "message_stop"
    found.sound &= kind != "error" and not event.get("error")


def judge_responses(event: dict[str, Any], found: Finding) -> None:
    kind, response = event.get("type") or "", event.get("response") or {}
    told = response.get("usage") or {}
    found.output_tokens = told.get("output_tokens", found.output_tokens)
    deltas = ("output_text", "refusal", "reasoning_summary_text", "reasoning_text", "function_call_arguments")
    found.outputs += kind in [f"response.{name}.delta" for name in deltas] and bool(event.get("delta"))
    item = event.get("item") or {}
    found.outputs += kind == "response.output_item.added" and bool(item.get("name"))
    found.ended |= response.get("status") in ("completed", "incomplete")
    found.sound &= (
        kind not in ("error", "response.failed") and not event.get("error") and not response.get("error")
    )


JUDGES: dict[Api, Callable[[dict[str, Any], Finding], None]] = {
    "openai": judge_chat, "completions": judge_chat, "responses": judge_responses,
    "anthropic": judge_anthropic,
}  # fmt: skip


class Wrapped(io.BytesIO):
    """Bytes that ``http.client`` takes for a socket."""

    def makefile(self, *_: object) -> io.BytesIO:
        return self


def judged(api: Api, response: bytes) -> Finding:
    """What the standard library finds in a response, status and framing included."""
    found = Finding()
    try:
        # An empty line before the status line is passed over (RFC 9112, section 2.2, says so of requests).
        answer = http.client.HTTPResponse(Wrapped(response.lstrip(b"\r\n")))  # type: ignore[arg-type]
        answer.begin()
        body = answer.read()
        found.sound = 200 <= answer.status < 300
        for name, data in read_whole(body):
            if data == b"[DONE]" and api != "anthropic":
                found.ended = True
            elif data.strip():
                event = json.loads(data.decode("utf-8", "replace"), strict=False)
                found.sound &= isinstance(event, dict)
                JUDGES[api](
                    event | ({"type": name.decode()} if name and not event.get("type") else {}), found
                )
    except (http.client.HTTPException, ValueError, AttributeError, TypeError):
        found.sound = False
    return found


LAST: dict[Api, list[object]] = {
    "openai": [chat({}, finish="length"), {"choices": [], "usage": usage(7)}],
    "completions": [{"choices": [{"text": "", "finish_reason": "length"}], "usage": usage(7)}],
    "responses": [RESPONSES[8]],
    "anthropic": ANTHROPIC[8:10],
}


@st.composite
def responses(draw: st.DrawFn, api: Api) -> bytes:
    """A whole response that is as it should be, in chunked transfer coding."""
    word = st.sampled_from(WORDS)
    texts: dict[Api, Callable[[str], object]] = {
        "openai": lambda text: chat({"content": text}),
        "completions": lambda text: {"choices": [{"text": text, "finish_reason": None}]},
        "responses": lambda text: {"type": "response.output_text.delta", "delta": text},
        "anthropic": lambda text: {
            "type": "content_block_delta",
            "delta": {"type": "text_delta", "text": text},
        },
    }
    documents = [texts[api](draw(word)) for _ in range(draw(st.integers(1, 4)))] + LAST[api]
    named = draw(st.booleans()) and api in ("responses", "anthropic")
    names = [b"event: " + str(one["type"]).encode() + b"\n" if named else b"" for one in documents]  # type: ignore[index]
    parts = [
        name + b"data: " + json.dumps(one).encode() + b"\n\n"
        for name, one in zip(names, documents, strict=True)
    ]
    if api in ("openai", "completions"):
        parts.append(b"data: [DONE]\n\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])


@st.composite
def damaged(draw: st.DrawFn, api: Api) -> bytes:
    """A response with one to three things done to it."""
    response = draw(responses(api))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(response) - 1)))
        size = draw(st.integers(1, 30))
        what = draw(st.sampled_from(["flip", "drop", "insert", "truncate", "duplicate", "swap"]))
        head, taken, tail = response[:at], response[at : at + size], response[at + size :]
        if what == "flip":
            response = (
                head
                + bytes([response[at] ^ (1 << draw(st.integers(0, 7)))] if response else [])
                + response[at + 1 :]
            )
        elif what == "drop":
            response = head + tail
        elif what == "insert":
            strange = draw(
                st.binary(min_size=1, max_size=6) | st.sampled_from([b"\n", b"\r\n", b"}", b"\n\n", b'"'])
            )
            response = head + strange + taken + tail
        elif what == "truncate":
            response = head
        elif what == "duplicate":
            response = head + taken + taken + tail
        else:
            response = head + tail[:size] + taken + tail[size:]
    return response


def received(pieces: list[tuple[int, bytes]]) -> Exchange:
    """Frame a response; the server then hangs up."""
    exchange = Exchange(stamp_source="virtual", sent_ns=0)
    framer = ResponseFramer(exchange)
    for stamp_ns, piece in pieces:
        if not framer.done:
            framer.receive(piece, stamp_ns)
    framer.closed("the server closed the connection")
    return exchange


APIS = pytest.mark.parametrize("api", WIRES)
CUTS = st.sets(st.integers(1, 1500), max_size=12)


@APIS
@given(data=st.data(), places=CUTS)
@settings(max_examples=25)
def test_what_is_not_damaged_is_a_success_and_judged_alike(
    api: Api, data: st.DataObject, places: set[int]
) -> None:
    response = data.draw(responses(api))
    made = timeline.record(REQUEST, received(cut(response, places)), WIRES[api], model="m", scheduled_ns=0)
    found = judged(api, response)
    assert (made.outcome, found.sound, found.ended) == ("ok", True, True)
    assert (len(made.event_ns), made.output_tokens) == (found.outputs, found.output_tokens)


@APIS
@given(data=st.data(), places=CUTS)
@settings(max_examples=250, deadline=2000)
def test_damage_is_never_a_success_never_hangs_and_never_grows(
    api: Api, data: st.DataObject, places: set[int]
) -> None:
    response = data.draw(damaged(api))
    exchange = received(cut(response, places))
    made = timeline.record(REQUEST, exchange, WIRES[api], model="m", scheduled_ns=0)
    assert sum(len(piece) for _, piece in exchange.pieces) <= len(response)
    assert len(made.event_ns) <= len(response) / 8
    assert len(made.detail) <= 300
    assert len(reading.answer(exchange, WIRES[api])) <= len(response)
    if made.outcome != "ok":
        assert made.detail
        return
    found = judged(api, response)
    assert found.sound
    assert found.ended
    assert len(made.event_ns) == found.outputs > 0
    if made.tokens_source == "usage":
        assert made.output_tokens == found.output_tokens
