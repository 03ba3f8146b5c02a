"""Both APIs: what a request says, and what an event means, after the vendors' published types."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import wire_anthropic, wire_openai
from loadtest.delta import Delta
from loadtest.plan import Arrivals, Closed, Plan, Stage, Tier, Workload
from loadtest.wire import WIRES
from loadtest.workload import Message, Request

ARRIVALS: Arrivals = Closed(streams=1)
PLAN = Plan(
    name="p",
    stages=(Stage(name="s", arrivals=ARRIVALS, requests=1),),
    workload=Workload(prompt_tokens=(4,), output_tokens=8),
)


def request(tier: Tier) -> Request:
    return Request(index=0, stage="s", warmup=False, tier=tier, prompt_tokens=4, max_tokens=8)


def openai_body(tier: Tier, plan: Plan = PLAN) -> Any:
    return json.loads(wire_openai.body(plan, request(tier), model="m", messages=[Message("user", "one two")]))


def openai(document: object) -> Delta:
    return wire_openai.read_event(b"", json.dumps(document).encode())


def anthropic(document: object, name: bytes = b"") -> Delta:
    return wire_anthropic.read_event(name, json.dumps(document).encode())


def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None} | more]}


# OpenAI, out


def test_a_chat_request_asks_for_a_stream_with_usage_and_an_exact_length() -> None:
    assert openai_body(Tier(name="a")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "one two"}],
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_a_strict_server_is_not_sent_a_field_it_does_not_know() -> None:
    strict = msgspec.structs.replace(PLAN, workload=msgspec.structs.replace(PLAN.workload, ignore_eos=False))
    assert "ignore_eos" not in openai_body(Tier(name="a"), strict)


def test_a_tier_adds_its_own_fields_and_wins() -> None:
    tier = Tier(
        name="fast",
        body={
            "service_tier": "priority",
            "stream_options": {"continuous_usage_stats": True},
            "max_tokens": 3,
        },
    )
    body = openai_body(tier)
    assert body["service_tier"] == "priority"
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["max_tokens"] == 3


def test_the_newer_name_of_the_output_bound_replaces_the_older_one() -> None:
    body = openai_body(Tier(name="a", body={"max_completion_tokens": 8}))
    assert body["max_completion_tokens"] == 8
    assert "max_tokens" not in body


def test_a_key_is_sent_and_no_key_is_not() -> None:
    assert wire_openai.headers("k") == {"Authorization": "Bearer k"}
    assert wire_openai.headers("") == {}
    assert wire_anthropic.headers("k")["x-api-key"] == "k"
    assert "x-api-key" not in wire_anthropic.headers("")


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


def test_a_message_request_has_the_fields_its_api_demands() -> None:
    body = json.loads(
        wire_anthropic.body(
            PLAN, request(Tier(name="f", body={"speed": "fast"})), model="m", messages=[Message("user", "hi")]
        )
    )
    assert body == {
        "model": "m",
        "max_tokens": 8,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "speed": "fast",
    }
    assert wire_anthropic.headers("k")["anthropic-version"] == "2023-06-01"


def test_the_prompt_is_uncached_input_plus_cache_reads_and_writes() -> None:
    usage = {"input_tokens": 5, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300}
    delta = anthropic({"type": "message_start", "message": {"usage": usage | {"output_tokens": 1}}})
    assert delta.usage is not None
    assert delta.usage.whole_prompt_tokens == 325
    assert (delta.usage.cached_tokens, delta.usage.cache_write_tokens) == (300, 20)


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
