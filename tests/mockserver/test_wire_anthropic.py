"""Anthropic's Messages as bytes, read back by the vendor's client and types over a transport in memory."""

import json
from functools import cache
from typing import Any

import anthropic
import pydantic
import pytest
from anthropic.types import Message, RawMessageStreamEvent, beta
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.wire import WIRES
from mockserver import speech, text
from mockserver.ask import RefusedError, Usage
from mockserver.wire_config import Wire
from tests.mockserver.messages_in_memory import (
    CHOICE,
    TOOL,
    events_of,
    extras,
    parsed,
    placed,
    served,
    streamed,
    usage_of,
    voice,
)

FIELDS = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 40)},
    optional={
        "thinking": st.sampled_from([{"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}]),
        "stop_sequences": st.lists(st.sampled_from(["work", "e ", "xyz", "a", "er wa"]), max_size=2),
        "system": st.sampled_from(["be brief", [{"type": "text", "text": "be long"}]]),
    },
)
RATIOS = st.sampled_from([0.0, 0.3, 0.9])
PIECES = st.lists(st.integers(1, 7), min_size=1, max_size=5)


@given(fields=FIELDS, ratio=RATIOS, at_once=PIECES, calls=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_stream_adds_up_to_the_message_that_is_not_streamed(
    fields: dict[str, Any], ratio: float, at_once: list[int], calls: bool
) -> None:
    wire = Wire(reasoning_ratio=ratio)
    call: dict[str, Any] = {"tools": [TOOL], "tool_choice": CHOICE} if calls else {}
    says: Any = [{"role": "user", "content": "a b"}]
    asked: dict[str, Any] = {"model": "mock", "messages": says, "speed": "standard", **fields, **call}
    client = served(wire, at_once)
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        added = stream.get_final_message()
    assert Message.model_validate(added.model_dump()).model_dump() == whole.model_dump()
    assert whole.usage.output_tokens <= fields["max_tokens"]


@cache
def adapters() -> list[pydantic.TypeAdapter[Any]]:
    """The vendor's events of a stream, as its client and its client for betas have them."""
    kinds: list[Any] = [RawMessageStreamEvent, beta.BetaRawMessageStreamEvent]
    return [pydantic.TypeAdapter(kind) for kind in kinds]


@given(fields=FIELDS, ratio=RATIOS)
@settings(max_examples=40, deadline=None)
def test_every_event_is_of_the_vendors_types_and_has_no_field_that_they_lack(
    fields: dict[str, Any], ratio: float
) -> None:
    wire = Wire(reasoning_ratio=ratio)
    one = placed(parsed(wire, **fields), wire, echoed_service_tier="default", echoed_speed="standard")
    for adapter in adapters():
        for name, data in events_of(b"".join(streamed(one, wire))):
            if name == b"ping":
                assert json.loads(data) == {"type": "ping"}
                continue
            event = adapter.validate_json(data, strict=True)
            assert event.type.encode() == name
            assert not extras(event)
    message = Message.model_validate_json(voice(one, wire).body(usage_of(one)), strict=True)
    assert not extras(message)


@given(fields=FIELDS, ratio=RATIOS, at_once=PIECES)
@settings(max_examples=40, deadline=None)
def test_events_come_in_the_order_that_the_vendor_documents(
    fields: dict[str, Any], ratio: float, at_once: list[int]
) -> None:
    wire = Wire(reasoning_ratio=ratio)
    one = placed(parsed(wire, **fields), wire)
    events = [json.loads(data) for _, data in events_of(b"".join(streamed(one, wire, at_once)))]
    names = [event["type"] for event in events if event["type"] != "ping"]
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    blocks = [event for event in events if event["type"].startswith("content_block")]
    index, opened = -1, False
    for event in blocks:
        if event["type"] == "content_block_start":
            assert not opened
            index, opened = index + 1, True
        assert opened
        assert event["index"] == index
        opened = event["type"] != "content_block_stop"
    assert not opened


def test_an_event_without_thinking_or_stop_sequence_is_a_token() -> None:
    one = placed(parsed(max_tokens=30))
    events = [json.loads(data) for _, data in events_of(b"".join(streamed(one)))]
    said = [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
    assert [len(word.split()) for word in said] == [1] * 30
    assert "".join(said).split() == b"".join(text.spaced(one.answers[0].key, 0, 30)).decode().split()


@pytest.mark.parametrize("ratio", [0.0, 0.5])
@pytest.mark.parametrize("calls", [False, True])
def test_our_own_client_reads_a_token_from_each_write_of_one(ratio: float, calls: bool) -> None:
    wire, client = Wire(reasoning_ratio=ratio, ping_s=None), WIRES["anthropic"]
    call: dict[str, Any] = {"tools": [TOOL], "tool_choice": CHOICE} if calls else {}
    one = placed(parsed(wire, max_tokens=20, **call), wire)
    for number, write in enumerate(streamed(one, wire)):
        kinds = {client.read_event(name, data).kind for name, data in events_of(write)} - {None}
        is_token = 2 <= number < 22
        assert len(kinds) == (1 if is_token else 0) or (calls and ratio == 0 and number == 1)
        if is_token:
            assert kinds == {"reasoning" if number - 2 < 20 * ratio else "tool" if calls else "text"}


def test_thinking_that_is_omitted_makes_no_bytes_and_is_counted() -> None:
    wire = Wire(reasoning_ratio=0.5)
    one = placed(parsed(wire, max_tokens=20, thinking={"type": "adaptive", "display": "omitted"}), wire)
    writes = list(streamed(one, wire))
    assert writes[2:11] == [b""] * 9
    assert b"signature_delta" in writes[11]
    assert b"thinking_delta" not in b"".join(writes)
    message = Message.model_validate_json(voice(one, wire).body(usage_of(one)))
    assert message.usage.output_tokens_details is not None
    assert message.usage.output_tokens_details.thinking_tokens == 10


def test_a_thinking_budget_bounds_what_is_thought() -> None:
    wire = Wire(reasoning_ratio=0.9)
    budget = {"type": "enabled", "budget_tokens": 1024}
    assert placed(parsed(wire, max_tokens=4000, thinking=budget), wire).answers[0].reasoning_tokens == 1024
    assert placed(parsed(wire, thinking={"type": "disabled"}), wire).answers[0].reasoning_tokens == 0


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "max_tokens"),
        ({"tools": [TOOL], "tool_choice": CHOICE}, "tool_use"),
        ({"tools": [TOOL], "tool_choice": {"type": "any"}}, "tool_use"),
        ({"tools": [TOOL], "tool_choice": {"type": "none"}}, "max_tokens"),
        ({"tools": [TOOL]}, "max_tokens"),
        ({"stop_sequences": ["zzz", " "], "max_tokens": 400}, None),
        ({"stop_sequences": ["e"], "max_tokens": 400}, "stop_sequence"),
    ],
)
def test_a_message_says_why_it_stopped(fields: dict[str, Any], reason: str | None) -> None:
    if reason is None:
        with pytest.raises(RefusedError, match="stop_sequences"):
            parsed(**fields)
        return
    one = placed(parsed(**fields))
    message = Message.model_validate_json(voice(one).body(usage_of(one)))
    assert message.stop_reason == reason
    assert message.stop_sequence == ("e" if reason == "stop_sequence" else None)
    if reason == "stop_sequence":
        assert isinstance(message.content[0], anthropic.types.TextBlock)
        assert "e" not in message.content[0].text


@pytest.mark.parametrize("ping_s", [None, 15.0])
def test_pings_come_if_the_wire_has_them(ping_s: float | None) -> None:
    wire = Wire(ping_s=ping_s)
    names = [name for name, _ in events_of(b"".join(streamed(placed(parsed(wire), wire), wire)))]
    assert names.count(b"ping") == (ping_s is not None)
    assert events_of(voice(placed(parsed())).ping()) == [(b"ping", b'{"type":"ping"}')]


def test_faults_leave_out_usage_or_the_end() -> None:
    one = placed(parsed())
    silent = [json.loads(data) for _, data in events_of(voice(one).closing(usage_of(one), with_usage=False))]
    assert [event["type"] for event in silent] == ["message_delta", "message_stop"]
    assert "usage" not in silent[0]
    endless = [json.loads(data) for _, data in events_of(voice(one).closing(usage_of(one), with_end=False))]
    assert [event["type"] for event in endless] == ["message_delta"]
    assert endless[0]["delta"]["stop_reason"] is None
    assert endless[0]["usage"]["output_tokens"] == 8
    assert voice(one).closing(usage_of(one), with_usage=False, with_end=False) == b""


@given(
    words=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    marks=st.lists(st.sampled_from([None, None, {"type": "ephemeral"}]), min_size=6, max_size=6),
    cached=st.integers(0, 40),
    has_cache=st.booleans(),
)
@settings(deadline=None)
def test_a_prompt_falls_into_read_written_and_uncached_tokens(
    words: list[int], marks: list[dict[str, str] | None], cached: int, has_cache: bool
) -> None:
    blocks = [
        {"type": "text", "text": "w " * count + "end", "cache_control": mark}
        for count, mark in zip(words, marks, strict=False)
    ]
    given_marks = [block["cache_control"] for block in blocks if block["cache_control"]]
    if len(given_marks) > 4:
        with pytest.raises(RefusedError, match="at most 4"):
            parsed(messages=[{"role": "user", "content": blocks}])
        return
    one = placed(parsed(messages=[{"role": "user", "content": blocks}]))
    prompt = sum(count + 1 for count in words)
    last = max((place for place, block in enumerate(blocks) if block["cache_control"]), default=-1)
    cacheable = sum(count + 1 for count in words[: last + 1])
    cached = min(cached, prompt) if has_cache else 0
    write = prompt - cached if has_cache else 0
    told = voice(one).body(usage_of(one, cached_tokens=cached, cache_write_tokens=write))
    usage = Message.model_validate_json(told).usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    assert usage.input_tokens + read + written == prompt
    assert read == min(cached, cacheable)
    assert written == (cacheable - read if has_cache else 0)
    assert usage.cache_creation is not None
    assert usage.cache_creation.ephemeral_5m_input_tokens == written


def test_four_marks_are_taken_and_five_are_not() -> None:
    block = {"type": "text", "text": "w", "cache_control": {"type": "ephemeral"}}
    assert parsed(system=[block] * 4).cacheable_tokens == 4
    with pytest.raises(RefusedError, match="at most 4"):
        parsed(system=[block] * 3, cache_control=block["cache_control"], tools=[{**TOOL, **block}])


def test_tokens_of_a_stop_sequence_that_was_met_are_counted_and_not_sent() -> None:
    one = placed(parsed(max_tokens=400, stop_sequences=["e wa"]))
    answer = one.answers[0]
    assert answer.stop_sequence == "e wa"
    deltas = [data for name, data in events_of(b"".join(streamed(one))) if name == b"content_block_delta"]
    said = [json.loads(data)["delta"]["text"] for data in deltas]
    assert all(said)
    assert len(said) == answer.output_tokens - 1


def test_what_a_stream_begins_with_does_not_tell_what_will_be_thought() -> None:
    wire = Wire(reasoning_ratio=0.5)
    one = placed(parsed(wire, max_tokens=20), wire)
    start = json.loads(events_of(voice(one, wire).opening(usage_of(one)))[0][1])
    assert start["message"]["usage"]["output_tokens"] == 1
    assert start["message"]["usage"]["output_tokens_details"] == {"thinking_tokens": 0}


def test_what_is_kept_for_an_hour_is_told_apart() -> None:
    hour, minutes = {"type": "ephemeral", "ttl": "1h"}, {"type": "ephemeral"}
    system = [{"type": "text", "text": "one two", "cache_control": hour}]
    tools = [{**TOOL, "cache_control": None}]
    user = [
        {"type": "text", "text": "three four five", "cache_control": minutes},
        {"type": "text", "text": "six"},
    ]
    one = placed(parsed(system=system, messages=[{"role": "user", "content": user}], tools=tools))
    before = text.count_tokens("look_up finds it " + json.dumps(TOOL["input_schema"]))
    told = voice(one).body(
        usage_of(one, cached_tokens=1, cache_write_tokens=one.answers[0].prompt_tokens - 1)
    )
    usage = Message.model_validate_json(told).usage
    assert usage.cache_creation is not None
    assert usage.cache_creation.ephemeral_1h_input_tokens == before + 2 - 1
    assert usage.cache_creation.ephemeral_5m_input_tokens == 3
    assert usage.input_tokens == 1
    with pytest.raises(RefusedError, match="1h"):
        parsed(system=[{**system[0], "cache_control": minutes}], cache_control=hour)


def test_a_session_repeats_its_prefix() -> None:
    wire = Wire(reasoning_ratio=0.4)
    said: list[dict[str, Any]] = [{"role": "user", "content": "first question here"}]
    so_far: list[str] = []
    for turn in range(3):
        one = placed(parsed(wire, messages=said, system="be kind", max_tokens=12), wire)
        words = one.ask.prompts[0].split()
        assert words[: len(so_far)] == so_far
        message = Message.model_validate_json(voice(one, wire).body(usage_of(one)))
        so_far = [*words, *speech.said(one.answers[0]).split()]
        repeated = [block.model_dump(mode="json") for block in message.content]
        said = [*said, {"role": "assistant", "content": repeated}, {"role": "user", "content": f"and {turn}"}]


def test_truth_stands_beside_usage_and_only_where_it_is_asked_for() -> None:
    one = placed(parsed())
    silent = json.loads(voice(one).body(usage_of(one)))["usage"]
    assert "mockserver" not in silent
    told = Usage(prompt_tokens=3, output_tokens=8, truth={"queue_s": 0.25})
    assert json.loads(voice(one).body(told))["usage"]["mockserver"] == {"queue_s": 0.25}
    assert b'"mockserver":{"queue_s":0.25}' in voice(one).closing(told)


@pytest.mark.parametrize(
    ("echoed", "speed", "told"),
    [
        ("default", None, "standard"),
        ("priority", None, "priority"),
        ("priority", "fast", "standard"),
        (None, None, None),
    ],
)
def test_the_service_tier_is_told_in_the_vendors_words(
    echoed: str | None, speed: str | None, told: str | None
) -> None:
    one = placed(parsed(speed=speed), echoed_service_tier=echoed, echoed_speed=speed)
    usage = json.loads(voice(one).body(usage_of(one)))["usage"]
    assert usage.get("service_tier") == told
    assert usage.get("speed") == speed
