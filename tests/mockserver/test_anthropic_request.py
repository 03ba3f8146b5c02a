"""What Anthropic's Messages API is asked: prompts and their marks, and what is refused."""

import json
import typing
from typing import Any

import pytest
from anthropic.types import beta, message_create_params
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import wire_anthropic
from mockserver.ask import RefusedError
from mockserver.wire_anthropic import DIALECT
from mockserver.wire_config import Wire
from tests.mockserver.messages_in_memory import (
    CHOICE,
    PLAIN,
    TOOL,
    VERSION,
    body,
    parsed,
    placed,
)


def test_a_mark_of_the_request_is_one_at_its_end() -> None:
    assert parsed().cacheable_tokens == 0
    assert parsed(cache_control={"type": "ephemeral"}).cacheable_tokens == 3


@given(texts=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=5), system=st.text(max_size=20))
@settings(deadline=None)
def test_tokens_are_counted_as_usage_counts_them(texts: list[str], system: str) -> None:
    content = [{"type": "text", "text": piece} for piece in texts]
    tools = [TOOL, {"type": "web_search_20250305", "name": "web_search"}]
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "system": system}
    fields["tools"] = tools
    counted = wire_anthropic.count_tokens(
        body(max_tokens=..., **fields), VERSION, wire=PLAIN, models=["mock"]
    )
    assert json.loads(counted) == {"input_tokens": placed(parsed(**fields)).answers[0].prompt_tokens}


def test_what_is_no_text_counts_nothing() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aaaa bbbb"}
    content = [
        {"type": "image", "source": source},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "a b"}},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "one two"},
            "title": "t",
        },
        {
            "type": "search_result",
            "source": "s",
            "title": "t",
            "content": [{"type": "text", "text": "three"}],
        },
        {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "four"}]},
        {"type": "tool_result", "tool_use_id": "y", "content": "five"},
    ]
    calls = [
        {"type": "thinking", "thinking": "six", "signature": "x y"},
        {"type": "redacted_thinking", "data": "x y"},
        {"type": "tool_use", "id": "x", "name": "seven", "input": {}},
    ]
    messages = [{"role": "assistant", "content": calls}, {"role": "user", "content": content}]
    assert parsed(messages=messages).prompts[0].split() == [
        *("six", "seven", "{}", "t", "one", "two", "s", "t", "three", "four", "five")
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"model": ...}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]},
            "messages.0.content.0.text",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages.0.content.0.type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
        ({"stream": "yes"}, "stream"),
        ({"stop_sequences": ["a", "\n"]}, "stop_sequences.1"),
        ({"tools": [{"name": "t"}]}, "tools.0.input_schema"),
        ({"tools": [TOOL, {"name": "t", "input_schema": "s"}]}, "tools.1.input_schema"),
        ({"stop_sequences": ["a" * 1001]}, "stop_sequences.0"),
        ({"max_tokens": 1024, "thinking": {"type": "enabled", "budget_tokens": 1024}}, "max_tokens"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, "tool_choice.name"),
        ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 8}}, "thinking.enabled.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "max_tokens"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        (
            {
                "max_tokens": 4000,
                "tools": [TOOL],
                "tool_choice": CHOICE,
                "thinking": {"type": "enabled", "budget_tokens": 1024},
            },
            "thinking",
        ),
        ({"cache_control": {"type": "eternal"}}, "cache_control.type"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parsed(**fields)
    assert (caught.value.status, caught.value.kind, caught.value.param) == (400, "invalid", param)
    assert "\n" not in caught.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "role", "content", "name", "source", "input", "ttl"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "speed"]
)


@given(fields=st.dictionaries(NAMES, JSON, min_size=1, max_size=2), strict=st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_request_does_worse_than_be_refused(fields: dict[str, Any], strict: bool) -> None:
    said = None
    try:
        parsed(Wire(refuse_unknown=strict), **fields)
    except RefusedError as refusal:
        said = refusal
    assert said is None or (said.status, said.kind) == (400, "invalid")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"t","input_schema":"\xff"}]}',
        b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        DIALECT.parse(data, VERSION, PLAIN)
    assert caught.value.status == 400


def test_a_version_of_the_api_must_be_named() -> None:
    for headers in ({}, {"anthropic-version": "2020-01-01"}, {"anthropic-version": ""}):
        with pytest.raises(RefusedError, match="anthropic-version") as caught:
            parsed(PLAIN, headers)
        assert caught.value.status == 400


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1},
        {"top_k": None},
        {"top_p": 0.5},
        {
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"type": "document", "source": {"type": "text", "data": "a"}}],
                }
            ]
        },
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "citations": [{}]}]}]},
    ],
)
def test_a_version_refuses_what_it_has_removed(fields: dict[str, Any]) -> None:
    assert parsed(PLAIN, {"anthropic-version": "2023-06-01"}, **fields).model == "mock"
    with pytest.raises(RefusedError) as caught:
        parsed(PLAIN, {"anthropic-version": "2026-10-21"}, **fields)
    assert caught.value.status == 400


def test_a_speed_needs_its_beta_where_the_wire_says_so() -> None:
    strict = Wire(fast_needs_beta=True)
    beta_header = {**VERSION, "anthropic-beta": "other-2025-01-01, fast-mode-2026-02-01"}
    assert parsed(strict, beta_header, speed="fast").speed == "fast"
    assert parsed(PLAIN, VERSION, speed="fast").speed == "fast"
    assert parsed(strict, VERSION).speed is None
    for value in ("fast", "standard"):
        with pytest.raises(RefusedError, match="speed"):
            parsed(strict, VERSION, speed=value)


@pytest.mark.parametrize(
    "kind",
    [message_create_params.MessageCreateParamsBase, beta.message_create_params.MessageCreateParamsBase],
)
def test_a_strict_server_knows_every_field_of_the_vendors_client(kind: type) -> None:
    strict = Wire(refuse_unknown=True)
    names = set(typing.get_type_hints(kind)) - {"betas"}  # sent as a header
    for name in sorted(names):
        value = json.loads(body()).get(name)
        assert parsed(strict, **{name: value}).model == "mock"


def test_a_strict_server_refuses_fields_that_the_api_does_not_have() -> None:
    assert parsed(ignore_eos=True, seed=3).ignore_eos
    for name in ("ignore_eos", "seed", "n"):
        with pytest.raises(RefusedError, match=name):
            DIALECT.parse(body(**{name: True}), VERSION, Wire(refuse_unknown=True))


def test_an_empty_answer_to_go_on_from_is_the_last_message_only() -> None:
    user, empty = {"role": "user", "content": "a"}, {"role": "assistant", "content": ""}
    assert parsed(messages=[user, empty]).prompts[0].split() == ["a"]
    with pytest.raises(RefusedError, match=r"messages\.1\.content"):
        parsed(messages=[user, empty, user])


def test_any_tool_means_the_first_that_the_client_runs() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    tools = [search, TOOL, {**TOOL, "name": "other"}]
    assert parsed(tools=tools, tool_choice={"type": "any"}).tool == "look_up"
    assert parsed(tools=[search], tool_choice={"type": "any"}).tool == "web_search"


def test_a_prompt_without_text_is_one_token() -> None:
    image = {"type": "image", "source": {"type": "url", "url": "http://h/i.png"}}
    messages = [{"role": "user", "content": [image]}]
    counted = wire_anthropic.count_tokens(body(messages=messages), VERSION, wire=PLAIN, models=["mock"])
    assert json.loads(counted) == {"input_tokens": placed(parsed(messages=messages)).answers[0].prompt_tokens}
