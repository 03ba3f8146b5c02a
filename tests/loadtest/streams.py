"""Events that servers send and events that they should not, for the tests of this folder."""

import itertools
import json
import re
from typing import Any

from hypothesis import strategies as st

from loadtest.exchange import Exchange
from loadtest.plan import Api

MS = 1_000_000


def chat(delta: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": more.pop("finish", None)}], **more}


def usage(output_tokens: int) -> dict[str, Any]:
    return {"prompt_tokens": 5, "completion_tokens": output_tokens}


CHAT: list[object] = [
    chat({"role": "assistant", "content": ""}),
    *(chat({"content": word}) for word in ("a", " b", '"\\', "快\u2028", "\n")),
    chat({"content": "x"}, service_tier="default"),
    chat({"content": "x"}, service_tier="flex"),
    chat({"reasoning": "hm"}),
    chat({"reasoning_content": "hm"}),
    chat({"refusal": "no"}),
    chat({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}),
    chat({"content": "x"}, usage=usage(3)),
    chat({"content": "x"}, usage=usage(5)),
    chat({"content": "x"}, finish="stop"),
    chat({}, finish="length"),
    chat({}, finish=""),
    {"choices": [], "usage": usage(9)},
    {"choices": [chat({"content": "p"})["choices"][0], chat({"content": "q"})["choices"][0]]},
    {"choices": [{"text": "plain", "finish_reason": None}]},
    {"error": {"message": "gone"}},
    {"object": "error", "message": "gone"},
    {"odd": 1},
]
ANTHROPIC: list[object] = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 4}}},
    {"type": "content_block_start", "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f"}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": ""}},
    {"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}},
    {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "x"}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
    {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
    {"type": "ping"},
    {"delta": {"text": "nameless"}},
]
RESPONSES: list[object] = [
    {"type": "response.created", "response": {"status": "in_progress", "service_tier": "auto"}},
    {"type": "response.output_text.delta", "delta": "a"},
    {"type": "response.output_text.delta", "delta": ""},
    {"type": "response.output_text.delta", "delta": {"odd": 1}},
    {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
    {"type": "response.function_call_arguments.delta", "delta": "{"},
    {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f"}},
    {"type": "response.output_text.done", "text": "a"},
    {"type": "response.completed", "response": {"status": "completed", "usage": {"output_tokens": 4}}},
    {"type": "response.failed", "response": {"status": "failed", "error": {"code": "x"}}},
    {"type": "error", "message": "gone"},
    {"delta": "nameless"},
]
DOCUMENTS: dict[Api, list[object]] = {
    "openai": CHAT, "completions": CHAT, "responses": RESPONSES, "anthropic": ANTHROPIC,
}  # fmt: skip
DAMAGED = [b"{", b"{}{}", b'{"choices":[{}', b"]}", b'{"a":[{}', b"{}]}", b"[DONE]", b"", b" ", b"1", b"\xff"]


def read_whole(text: bytes) -> list[tuple[bytes, bytes]]:
    """The standard's algorithm on a whole stream, in its own order, line by line."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    *lines, _ = re.split(rb"\r\n|\n|\r", text)
    events: list[tuple[bytes, bytes]] = []
    data: list[bytes] = []
    name = b""
    for line in lines:
        if line == b"":
            if data:
                events.append((name, b"\n".join(data)))
            data, name = [], b""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


def streams(api: Api) -> st.SearchStrategy[bytes]:
    """Bodies of one of the two usual shapes, many with something odd or broken in them."""
    document = st.sampled_from(DOCUMENTS[api])
    sound = st.lists(document.map(lambda one: json.dumps(one).encode()), max_size=12)
    broken = st.lists(
        st.sampled_from(DAMAGED) | document.map(lambda one: json.dumps(one).encode()), max_size=6
    )
    data = st.one_of(sound, broken, sound.map(lambda events: [*events, b"[DONE]"]))
    lines = st.one_of(data.map(_unnamed), data.flatmap(_named), st.tuples(data, data).map(_mixed))
    return lines | lines.map(lambda body: body.replace(b"\n", b"\r\n"))


def _unnamed(data: list[bytes]) -> bytes:
    return b"".join(b"data: " + one + b"\n\n" for one in data)


def _named(data: list[bytes]) -> st.SearchStrategy[bytes]:
    names = st.lists(
        st.sampled_from([b"ping", b"error", b"content_block_delta", b"response.output_text.delta"]),
        min_size=len(data),
        max_size=len(data),
    )
    return names.map(
        lambda given: b"".join(
            b"event: " + n + b"\ndata: " + d + b"\n\n" for n, d in zip(given, data, strict=True)
        )
    )


def _mixed(parts: tuple[list[bytes], list[bytes]]) -> bytes:
    return _unnamed(parts[0]) + b"event: ping\n" + _unnamed(parts[1])


def cut(body: bytes, places: set[int]) -> list[tuple[int, bytes]]:
    """The body in as many pieces as the places make of it, each stamped with its number in milliseconds."""
    edges = [0, *sorted(place for place in places if place < len(body)), len(body)]
    return [(k * MS, body[a:b]) for k, (a, b) in enumerate(itertools.pairwise(edges)) if b > a]


def exchange(pieces: list[tuple[int, bytes]], kind: str = "text/event-stream") -> Exchange:
    """A response that was wholly received."""
    return Exchange(
        stamp_source="kernel",
        sent_ns=0,
        ended_ns=10**9,
        status=200,
        headers={"content-type": kind},
        pieces=pieces,
    )
