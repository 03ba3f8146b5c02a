"""What an event means in OpenAI's chat and Anthropic's messages, after the vendors' published types."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import wire_anthropic, wire_openai
from loadtest.delta import Delta, Usage
from loadtest.wire import WIRES


def openai(document: object) -> Delta:
    return wire_openai.read_event(b"", json.dumps(document).encode())


def anthropic(document: object, name: bytes = b"") -> Delta:
    return wire_anthropic.read_event(name, json.dumps(document).encode())


def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None} | more]}


# OpenAI, in


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"content": "a"}, "text"),
        ({"content": " "}, "text"),
        ({"refusal": "no"}, "text"),
        ({"reasoning": "a"}, "reasoning"),
        ({"reasoning_content": "a"}, "reasoning"),
        ({"content": "a", "reasoning": "b"}, "text"),
        ({"tool_calls": [{"function": {"arguments": "{"}}]}, "tool"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}, "tool"),
        ({"tool_calls": [{"index": 0}]}, None),
        ({"role": "assistant", "content": ""}, None),
        ({"role": "assistant", "content": None}, None),
        ({"obfuscation": "xxxx"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_output_is_any_text_reasoning_or_tool_call_that_is_not_empty(delta: Any, kind: str | None) -> None:
    assert openai(chunk(delta)).kind == kind


@pytest.mark.parametrize("choices", [[], None])
def test_choices_may_be_missing_beside_usage(choices: Any) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}
    delta = openai({"choices": choices, "usage": usage})
    assert delta.kind is None
    assert delta.usage is not None
    assert (delta.usage.prompt_tokens, delta.usage.output_tokens, delta.usage.cached_tokens) == (5, 7, 2)


@pytest.mark.parametrize(
    ("usage", "cached", "written"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 9}}, 4, 9),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 7}, 0, None),
        ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 1}, 7, None),
        ({}, None, None),
    ],
)
def test_cached_tokens_are_found_under_each_name(usage: Any, cached: int | None, written: int | None) -> None:
    told = openai({"choices": [], "usage": usage}).usage
    assert told is not None
    assert (told.cached_tokens, told.cache_write_tokens) == (cached, written)


def test_usage_details_may_be_null() -> None:
    delta = openai({"choices": [], "usage": {"completion_tokens": 1, "prompt_tokens_details": None}})
    assert delta.usage is not None
    assert delta.usage.cached_tokens is None


def test_several_choices_in_one_event_are_read_together() -> None:
    two = {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}, "finish_reason": "stop"}]}
    delta = openai(two)
    assert (delta.text, delta.terminal, delta.finish_reason) == ("ab", True, "stop")


def test_a_finish_reason_or_the_end_mark_ends_a_stream() -> None:
    assert openai(chunk({}, finish_reason="length")).terminal
    assert wire_openai.read_event(b"", b"[DONE]").terminal
    assert not openai(chunk({"content": "a"})).terminal
    assert openai(chunk({"content": "a"}, finish_reason="")) == Delta(kind="text", text="a")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            {"message": "engine\nstopped", "type": "InternalServerError"},
            "InternalServerError: engine stopped",
        ),
        ({"message": "slow down", "code": 429}, "429: slow down"),
        ("plain words", "plain words"),
        ({"odd": 1}, "{'odd': 1}"),
    ],
)
def test_an_error_object_is_an_error_in_one_line(error: Any, line: str) -> None:
    assert openai({"error": error}).error == line


def test_an_error_may_stand_by_itself() -> None:
    alone = {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}
    assert openai(alone).error == "BadRequestError: too long"
    assert openai({"object": "chat.completion.chunk"}) == Delta()


def test_an_error_event_is_an_error_whatever_it_holds() -> None:
    assert wire_openai.read_event(b"error", b'{"detail":"x"}').error is not None


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"[1]",
        b'"x"',
        b"\xff\xfe",
        b'{"choices":5}',
        b'{"usage":{"completion_tokens":-1}}',
        b'{"usage":{"completion_tokens":1e99}}',
        b'{"choices":[{"delta":{"content":5}}]}',
    ],
)
def test_what_is_not_a_chunk_is_damage(data: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        wire_openai.read_event(b"", data)


def test_a_whole_response_is_read_like_a_stream_of_one_event() -> None:
    message = {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    document = {
        "choices": [message],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
        "service_tier": "flex",
    }
    delta = wire_openai.read_body(json.dumps(document).encode())
    assert (delta.kind, delta.text, delta.terminal, delta.echoed_tier) == ("text", "hi", True, "flex")


# Anthropic


def test_the_prompt_is_uncached_input_plus_cache_reads_and_writes() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300}
    delta = anthropic({"type": "message_start", "message": {"usage": usage | {"output_tokens": 1}}})
    assert delta.usage is not None
    assert delta.usage.whole_prompt_tokens == 325
    assert (delta.usage.cached_tokens, delta.usage.cache_write_tokens) == (300, 20)


def test_a_later_usage_without_cache_counts_does_not_shrink_the_prompt() -> None:
    before = Usage(uncached_tokens=5, cached_tokens=300, cache_write_tokens=20, output_tokens=1)
    end = anthropic({"type": "message_delta", "delta": {}, "usage": {"input_tokens": 5, "output_tokens": 9}})
    assert end.usage is not None
    assert before.then(end.usage).whole_prompt_tokens == 325
    assert before.then(end.usage).output_tokens == 9


@pytest.mark.parametrize(
    ("before", "after", "whole"),
    [
        (Usage(prompt_tokens=7), Usage(), 7),
        (Usage(), Usage(prompt_tokens=7), 7),
        (Usage(prompt_tokens=7), Usage(prompt_tokens=0), 7),
        (Usage(), Usage(prompt_tokens=0), 0),
        (Usage(uncached_tokens=0, cached_tokens=6), Usage(uncached_tokens=2), 8),
        (Usage(uncached_tokens=2, cached_tokens=6), Usage(uncached_tokens=0, cached_tokens=0), 8),
        (Usage(), Usage(), None),
    ],
)
def test_a_later_figure_replaces_an_earlier_one_and_silence_leaves_it(
    before: Usage, after: Usage, whole: int | None
) -> None:
    assert before.then(after).whole_prompt_tokens == whole


def test_output_tokens_are_those_told_last() -> None:
    assert Usage(output_tokens=5).then(Usage(output_tokens=3)).output_tokens == 3
    assert Usage(output_tokens=5).then(Usage()).output_tokens == 5


def test_a_tool_that_a_block_names_is_output_as_a_name_in_a_chat_is() -> None:
    start = {"type": "content_block_start", "content_block": {"type": "tool_use", "name": "f", "input": {}}}
    assert anthropic(start).kind == "tool"


def test_the_served_speed_is_that_of_message_start() -> None:
    started = {"type": "message_start", "message": {"usage": {"speed": "standard", "service_tier": "x"}}}
    ended = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"speed": "fast"}}
    assert anthropic(started).echoed_tier == "standard"
    assert anthropic(ended).echoed_tier is None


@pytest.mark.parametrize(
    ("delta", "kind"),
    [
        ({"type": "text_delta", "text": "a"}, "text"),
        ({"type": "thinking_delta", "thinking": "a"}, "reasoning"),
        ({"type": "input_json_delta", "partial_json": "{"}, "tool"),
        ({"type": "input_json_delta", "partial_json": ""}, None),
        ({"type": "signature_delta", "signature": "c2ln"}, None),
    ],
)
def test_a_block_delta_is_output_if_it_carries_any(delta: Any, kind: str | None) -> None:
    assert anthropic({"type": "content_block_delta", "index": 0, "delta": delta}).kind == kind


@pytest.mark.parametrize("kind", ["ping", "content_block_start", "content_block_stop", "something_new"])
def test_events_that_carry_nothing_say_nothing(kind: str) -> None:
    assert anthropic({"type": kind, "content_block": {"type": "text", "text": ""}}) == Delta()


def test_only_message_stop_ends_a_message() -> None:
    assert anthropic({"type": "message_stop"}).terminal
    assert anthropic({}, b"message_stop").terminal
    assert not anthropic({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}).terminal


def test_a_whole_message_is_read_like_a_stream_of_one_event() -> None:
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}]
    delta = wire_anthropic.read_body(
        json.dumps({"content": blocks, "stop_reason": "end_turn", "usage": {"output_tokens": 4}}).encode()
    )
    assert (delta.kind, delta.text, delta.reasoning, delta.terminal) == ("text", "hi", "hm", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "usage", "error", "content", "type", "message", "tool_calls", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@given(document=JSON)
def test_any_json_is_read_or_called_damage(wire: Any, document: object) -> None:
    data = json.dumps(document).encode()
    for read, arguments in ((wire.read_event, (b"", data)), (wire.read_body, (data,))):
        try:
            assert isinstance(read(*arguments), Delta)
        except msgspec.DecodeError:
            continue
