"""Chat completions as the mock speaks them, read by the rules of WHATWG and by the vendor's own types."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam
from openai.types.chat.completion_create_params import CompletionCreateParamsBase

from mockserver import openai_errors, wire_chat
from mockserver.ask import Ask, RefusedError, Usage
from mockserver.wire_chat import DIALECT
from mockserver.wire_config import Wire
from tests.mockserver import openai_wire
from tests.mockserver.openai_wire import cut_at, events_of, extras, placed, stream, usage_of, voice

MESSAGES = [{"role": "user", "content": "a b c"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("see", "say")]
WIRES = st.builds(
    Wire,
    role_first=st.booleans(),
    obfuscation=st.booleans(),
    running_usage=st.booleans(),
    reasoning_ratio=st.sampled_from([0.0, 0.4, 1.0]),
    reasoning_field=st.sampled_from(["reasoning", "reasoning_content"]),
)


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "mock", "messages": MESSAGES, **fields}


def parsed(wire: Wire | None = None, **fields: Any) -> Ask:
    return DIALECT.parse(openai_wire.body(asked(**fields)), {}, wire or Wire())


def chunks_of(writes: list[bytes]) -> list[ChatCompletionChunk]:
    events = events_of(writes)
    assert events.pop() == ("", "[DONE]")
    return [ChatCompletionChunk.model_validate_json(data, strict=True) for _, data in events]


def told(chunks: list[ChatCompletionChunk], index: int, field: str) -> str:
    """What the chunks of one choice add up to."""
    choices = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
    if field != "tool":
        return "".join(getattr(choice.delta, field, None) or "" for choice in choices)
    calls = [call for choice in choices for call in choice.delta.tool_calls or []]
    return "".join((call.function and call.function.arguments) or "" for call in calls)


@given(
    wire=WIRES,
    tokens=st.integers(1, 30),
    n=st.integers(1, 3),
    tool=st.booleans(),
    usage=st.booleans(),
    gathered=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 20_000), max_size=20),
)
@settings(deadline=None, max_examples=60)
def test_a_stream_cut_anywhere_adds_up_to_the_whole_answer(
    wire: Wire, tokens: int, n: int, tool: bool, usage: bool, gathered: int, cuts: list[int]
) -> None:
    fields = asked(max_tokens=tokens, n=n, stream=True, stream_options={"include_usage": usage})
    if tool:
        fields |= {"tools": TOOLS, "tool_choice": "required"}
    to = placed(DIALECT, fields, wire=wire)
    sent = b"".join(stream(DIALECT, to, wire, gathered=gathered))
    chunks = chunks_of(list(cut_at(sent, cuts)))
    whole = ChatCompletion.model_validate_json(voice(DIALECT, to, wire).body(usage_of(to)), strict=True)
    for chunk in chunks:
        assert (chunk.id, chunk.created, chunk.model) == (whole.id, whole.created, "mock")
        assert chunk.service_tier == whole.service_tier == "default"
        assert extras(chunk) <= {wire.reasoning_field}
    assert whole.choices[0].finish_reason == ("tool_calls" if tool else "length")
    for choice in whole.choices:
        message, index = choice.message, choice.index
        assert told(chunks, index, "content") == (message.content or "")
        assert told(chunks, index, wire.reasoning_field) == getattr(message, wire.reasoning_field, "")
        calls = json.loads(openai_wire.body(message.model_dump()))["tool_calls"] or []
        assert told(chunks, index, "tool") == "".join(call["function"]["arguments"] for call in calls)
        ends = [
            one.finish_reason
            for chunk in chunks
            for one in chunk.choices
            if one.index == index and one.finish_reason
        ]
        assert ends == [choice.finish_reason]
    if usage:
        assert chunks[-1].usage == whole.usage
        assert [chunk.choices == [] for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


@given(tokens=st.integers(1, 60), gathered=st.integers(1, 7))
@settings(deadline=None, max_examples=50)
def test_a_token_is_an_event_unless_tokens_are_gathered(tokens: int, gathered: int) -> None:
    to = placed(DIALECT, asked(max_tokens=tokens, stream=True))
    chunks = chunks_of(stream(DIALECT, to, gathered=gathered))
    said = [chunk.choices[0].delta.content for chunk in chunks]
    assert said[0] == ""
    assert chunks[0].choices[0].delta.role == "assistant"
    assert said[-1] is None
    words = [len((piece or "").split()) for piece in said[1:-1]]
    assert words == [gathered] * (tokens // gathered) + [tokens % gathered] * bool(tokens % gathered)


def test_without_a_role_chunk_the_first_token_brings_the_role() -> None:
    wire = Wire(role_first=False, reasoning_ratio=0.5)
    to = placed(DIALECT, asked(max_tokens=4, stream=True), wire=wire)
    chunks = chunks_of(stream(DIALECT, to, wire))
    roles = [chunk.choices[0].delta.role for chunk in chunks]
    assert roles == ["assistant"] + [None] * 4
    assert told(chunks[:1], 0, "reasoning_content") != ""


def test_the_name_and_id_of_a_call_come_with_its_first_arguments_and_never_again() -> None:
    fields = asked(
        max_tokens=5, stream=True, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "say"}}
    )
    chunks = chunks_of(stream(DIALECT, placed(DIALECT, fields)))
    assert chunks[0].choices[0].delta.content is None
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert len(calls) == 5
    assert [(call.id is None, call.type, call.function and call.function.name) for call in calls] == [
        (False, "function", "say"),
        *[(True, None, None)] * 4,
    ]


@pytest.mark.parametrize(
    ("wire", "asks", "first", "last"),
    [
        (Wire(), {"include_usage": True}, None, None),
        (Wire(), {"include_usage": True, "continuous_usage_stats": True}, (3, 0), (3, 4)),
        (Wire(running_usage=True), {}, (3, 0), (3, 4)),
    ],
)
def test_running_usage_counts_the_tokens_of_all_choices_so_far(
    wire: Wire, asks: dict[str, bool], first: tuple[int, int] | None, last: tuple[int, int] | None
) -> None:
    to = placed(DIALECT, asked(max_tokens=2, n=2, stream=True, stream_options=asks), wire=wire)
    chunks = [chunk for chunk in chunks_of(stream(DIALECT, to, wire)) if chunk.choices]
    usages = [chunk.usage and (chunk.usage.prompt_tokens, chunk.usage.completion_tokens) for chunk in chunks]
    assert (usages[0], usages[-1]) == (first, last)
    assert usages == sorted(usages, key=lambda usage: usage or (0, 0))
    for usage in (chunk.usage for chunk in chunks if chunk.usage is not None):
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_padding_hides_lengths_is_reproducible_and_can_be_refused() -> None:
    wire = Wire(obfuscation=True)
    to = placed(DIALECT, asked(max_tokens=60, stream=True), wire=wire)
    first, again = stream(DIALECT, to, wire), stream(DIALECT, to, wire)
    assert first == again
    padding = [chunk.obfuscation for chunk in chunks_of(first)]
    assert all(padding)
    assert len({len(one or "") for one in padding}) > 8
    fields = asked(max_tokens=3, stream=True, stream_options={"include_obfuscation": False})
    refused = stream(DIALECT, placed(DIALECT, fields, wire=wire), wire)
    assert b"obfuscation" not in b"".join(refused)


@pytest.mark.parametrize("with_usage", [True, False])
@pytest.mark.parametrize("with_end", [True, False])
def test_a_fault_may_leave_out_usage_or_the_end(with_usage: bool, with_end: bool) -> None:
    to = placed(DIALECT, asked(stream=True, stream_options={"include_usage": True}))
    closing = voice(DIALECT, to).closing(usage_of(to), with_usage=with_usage, with_end=with_end)
    events = [data for _, data in events_of([closing])]
    assert ("[DONE]" in events) == with_end
    assert any("usage" in data for data in events) == with_usage


def test_what_really_happened_is_part_of_usage_where_it_is_told() -> None:
    to = placed(DIALECT, asked(stream=True, stream_options={"include_usage": True}))
    counted = Usage(
        prompt_tokens=3, output_tokens=20, cached_tokens=2, cache_write_tokens=1, truth={"queue_s": 0.5}
    )
    events = events_of([voice(DIALECT, to).closing(counted)])
    usage = json.loads(events[0][1])["usage"]
    assert usage["mockserver"] == {"queue_s": 0.5}
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2, "cache_write_tokens": 1}


def test_a_tier_that_echoes_nothing_is_not_named() -> None:
    to = placed(DIALECT, asked(stream=True), echo=None)
    assert b"service_tier" not in b"".join(stream(DIALECT, to)) + voice(DIALECT, to).body(usage_of(to))


@example("\0", "\0")
@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
@settings(deadline=None, max_examples=50)
def test_names_may_hold_anything_that_json_can(model: str, name: str) -> None:
    tools = [{"type": "function", "function": {"name": name}}]
    fields = asked(tools=tools, tool_choice="required", max_tokens=3, stream=True) | {"model": model}
    chunks = chunks_of(stream(DIALECT, placed(DIALECT, fields)))
    assert {chunk.model for chunk in chunks} == {model}
    json.loads(told(chunks, 0, "tool"))
    calls = chunks[1].choices[0].delta.tool_calls or []
    assert [call.function and call.function.name for call in calls] == [name]


def test_an_error_in_a_stream_is_an_error_object() -> None:
    to = placed(DIALECT, asked(stream=True))
    ((_, data),) = events_of([voice(DIALECT, to).error(RefusedError(500, "broken", kind="server"))])
    assert json.loads(data) == {
        "error": {"message": "broken", "type": "server_error", "param": None, "code": None}
    }


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([{"role": "user", "content": "one two  three\nfour"}], 4),
        ([{"role": "system", "content": "be brief"}, {"role": "user", "content": "why"}], 3),
        ([{"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]}], 3),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], 0),
        ([{"role": "assistant", "content": None}, {"role": "user", "content": "x y"}], 2),
        ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "no thanks"}]}], 2),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}]}], 2),
        ([{"role": "tool", "tool_call_id": "c", "content": "it is so"}], 3),
    ],
)
def test_a_prompt_is_the_words_of_all_messages(messages: list[dict[str, Any]], words: int) -> None:
    (prompt,) = parsed(messages=messages).prompts
    assert len(prompt.split()) == words


def test_an_answer_that_is_sent_back_is_as_many_tokens_of_the_next_prompt() -> None:
    to = placed(DIALECT, asked(max_tokens=9))
    message = json.loads(voice(DIALECT, to).body(usage_of(to)))["choices"][0]["message"]
    following = placed(DIALECT, {"model": "mock", "messages": [*MESSAGES, message, *MESSAGES]})
    assert following.answers[0].prompt_tokens == 3 + 9 + 3


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, Ask(model="mock", prompts=("a b c",), include_usage=False)),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_completion_tokens": 6, "max_tokens": 5}, {"max_tokens": 6}),
        ({"n": 3, "seed": -4, "ignore_eos": True}, {"choices": 3, "seed": -4, "ignore_eos": True}),
        ({"stop": "x"}, {"stop": ("x",)}),
        ({"stop": ["x", "y"]}, {"stop": ("x", "y")}),
        ({"stop": None, "n": None, "stream": None, "ignore_eos": None}, {}),
        ({"service_tier": "priority"}, {"service_tier": "priority"}),
        ({"reasoning_effort": "none"}, {"reasoning": False}),
        ({"reasoning_effort": "low"}, {"reasoning": True}),
        ({"tools": TOOLS}, {"tool": None}),
        ({"tools": TOOLS, "tool_choice": "auto"}, {"tool": None}),
        ({"tools": TOOLS, "tool_choice": "none"}, {"tool": None}),
        ({"tools": TOOLS, "tool_choice": "required"}, {"tool": "see"}),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "say"}}},
            {"tool": "say"},
        ),
        (
            {
                "tools": TOOLS,
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {"mode": "required", "tools": TOOLS[1:]},
                },
            },
            {"tool": "say"},
        ),
        ({"temperature": 0.1, "user": "u", "logit_bias": {"1": 2}, "of_my_own": 1}, {}),
    ],
)
def test_fields_mean_what_the_vendor_says(fields: dict[str, Any], expected: Ask | dict[str, Any]) -> None:
    found = parsed(**fields)
    for name, value in expected.items() if isinstance(expected, dict) else [("prompts", expected.prompts)]:
        assert getattr(found, name) == value
    if not isinstance(expected, dict):
        assert found == expected


@pytest.mark.parametrize(
    ("sent", "param", "says"),
    [
        (b"{", None, "not valid JSON"),
        (b"\xff\xfe", None, "not valid JSON"),
        (b'{"model": ' + b"[" * 100_000, "model", "expected str"),
        (b'{"of_my_own": ' + b"[" * 100_000, None, "not valid JSON"),
        (b"[]", None, "expected object"),
        (b'{"model": "mock"}', "messages", "Missing required parameter"),
        (asked(messages=[]), "messages", "length >= 1"),
        (asked(messages=[{"content": "x"}]), "messages[0].role", "Missing required parameter"),
        (asked(messages=[{"role": "pope", "content": "x"}]), "messages[0].role", "'pope'"),
        (asked(messages=[{"role": "user", "content": 5}]), "messages[0].content", "expected str"),
        (asked(max_tokens=0), "max_tokens", ">= 1"),
        (asked(max_tokens=1.5), "max_tokens", "expected int"),
        (asked(stream="yes"), "stream", "expected bool"),
        (asked(n=0), "n", ">= 1"),
        (asked(n=129), "n", "<= 128"),
        (asked(stop=["a"] * 65), "stop", "length <= 64"),
        (asked(stop=""), "stop", "length >= 1"),
        (asked(seed="x"), "seed", "expected int"),
        (asked(temperature=3), "temperature", "<= 2"),
        (asked(logprobs=True), "logprobs", "Unsupported parameter"),
        (asked(reasoning_effort="huge"), "reasoning_effort", "'huge'"),
        (asked(stream_options={"include_usage": True}), "stream_options", "only allowed when 'stream'"),
        (asked(function_call={"name": "see"}), "function_call", "Unsupported parameter"),
        (asked(response_format={"type": "xml"}), "response_format.type", "'xml'"),
        (asked(tool_choice="required"), "tool_choice", "'tools' holds none"),
        (asked(tools=TOOLS, tool_choice="perhaps"), "tool_choice", "'perhaps'"),
        (
            asked(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "sing"}}),
            "tool_choice",
            "'sing' is not among",
        ),
        (
            asked(tools=TOOLS, tool_choice={"type": "custom", "custom": {"name": "x"}}),
            "tool_choice",
            "'custom'",
        ),
    ],
)
def test_a_bad_request_is_refused_by_the_name_of_its_field(
    sent: bytes | dict[str, Any], param: str | None, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        DIALECT.parse(sent if isinstance(sent, bytes) else openai_wire.body(sent), {}, Wire())
    error = json.loads(DIALECT.refusal_body(refused.value, ""))["error"]
    assert (refused.value.status, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert says in error["message"]
    assert "\n" not in error["message"]


def test_a_strict_server_refuses_what_the_vendor_does_not_have() -> None:
    strict = Wire(refuse_unknown=True)
    for field in ("ignore_eos", "of_my_own"):
        with pytest.raises(RefusedError, match=f"Unknown parameter: '{field}'") as refused:
            parsed(strict, **{field: True})
        assert (refused.value.param, refused.value.code) == (field, "unknown_parameter")
    with pytest.raises(RefusedError, match=r"Unknown parameter: 'stream_options\.continuous_usage_stats'"):
        parsed(strict, stream=True, stream_options={"continuous_usage_stats": True})
    with pytest.raises(RefusedError, match="5 sequences; expected at most 4"):
        parsed(strict, stop=list("abcde"))
    assert parsed(stop=list("abcde")).stop == tuple("abcde")
    parsed(
        strict, stop=list("abcd"), temperature=1, seed=1, stream=True, stream_options={"include_usage": True}
    )


def test_what_a_strict_server_knows_is_what_the_vendors_types_know() -> None:
    assert set(CompletionCreateParamsBase.__annotations__) | {"stream"} == wire_chat.FIELDS
    assert set(ChatCompletionStreamOptionsParam.__annotations__) == wire_chat.STREAM_FIELDS


def test_tokens_beyond_the_answer_are_a_fault_of_the_caller() -> None:
    speaks = voice(DIALECT, placed(DIALECT, asked(max_tokens=3)))
    speaks.tokens(0, 2)
    with pytest.raises(ValueError, match="4 tokens asked for, it has 3"):
        speaks.tokens(0, 2)


def test_a_refusal_says_the_same_in_the_body_and_in_a_stream() -> None:
    refusal = RefusedError(529, "full", kind="overloaded")
    told_in = json.loads(voice(DIALECT, placed(DIALECT, asked())).error(refusal).removeprefix(b"data: "))
    assert told_in == msgspec.json.decode(openai_errors.refusal_body(refusal))
