"""Responses as the mock speaks them, read by the rules of WHATWG and by the vendor's own types."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import BaseModel
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsBase, StreamOptions
from pydantic import TypeAdapter

from mockserver import wire_responses
from mockserver.ask import Ask, RefusedError, Usage
from mockserver.wire_config import Wire
from mockserver.wire_responses import DIALECT
from tests.mockserver import openai_wire
from tests.mockserver.openai_wire import cut_at, events_of, extras, placed, stream, usage_of, voice

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {}, "strict": False} for name in ("see", "say")
]
WIRES = st.builds(Wire, obfuscation=st.booleans(), reasoning_ratio=st.sampled_from([0.0, 0.4, 1.0]))


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "mock", "input": "a b c", **fields}


def parsed(wire: Wire | None = None, **fields: Any) -> Ask:
    return DIALECT.parse(openai_wire.body(asked(**fields)), {}, wire or Wire())


def typed(events: list[tuple[str, str]]) -> list[Any]:
    """The events as the vendor's types, which the name of each must lead to."""
    found = []
    for name, data in events:
        event = EVENT.validate_json(data, strict=True)
        assert isinstance(event, BaseModel)
        assert event.type == name  # type: ignore[attr-defined]
        found.append(event)
    return found


@given(
    wire=WIRES,
    tokens=st.none() | st.integers(1, 30),
    tool=st.booleans(),
    gathered=st.integers(1, 5),
    cuts=st.lists(st.integers(0, 30_000), max_size=20),
)
@settings(deadline=None, max_examples=50)
def test_a_stream_cut_anywhere_adds_up_to_the_whole_answer(
    wire: Wire, tokens: int | None, tool: bool, gathered: int, cuts: list[int]
) -> None:
    fields = asked(stream=True) | ({"max_output_tokens": tokens} if tokens else {})
    if tool:
        fields |= {"tools": TOOLS, "tool_choice": {"type": "function", "name": "say"}}
    to = placed(DIALECT, fields, wire=wire)
    events = typed(events_of(cut_at(b"".join(stream(DIALECT, to, wire, gathered=gathered)), cuts)))
    whole = Response.model_validate_json(voice(DIALECT, to, wire).body(usage_of(to)), strict=True)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
    assert events[-1].type == f"response.{whole.status}"
    assert events[-1].response == whole
    assert whole.status == ("incomplete" if tokens and not tool else "completed")
    assert set().union(*map(extras, events)) <= {"obfuscation"}
    for place, item in enumerate(whole.output):
        mine = [event for event in events if getattr(event, "output_index", None) == place]
        assert (mine[0].type, mine[-1].type) == ("response.output_item.added", "response.output_item.done")
        assert mine[-1].item == item
        assert all(event.item_id == item.id for event in mine[1:-1])
        said = "".join(event.delta for event in mine if event.type.endswith(".delta"))
        done = {event.type: event for event in mine if event.type.endswith(".done")}
        if item.type == "reasoning":
            assert said == item.summary[0].text == done["response.reasoning_summary_text.done"].text
        elif item.type == "message":
            assert item.content[0].type == "output_text"
            assert said == item.content[0].text == done["response.output_text.done"].text
        else:
            assert item.type == "function_call"
            assert item.name == "say"
            assert said == item.arguments == done["response.function_call_arguments.done"].arguments
            json.loads(said)
    last = whole.output[-1]
    assert last.type in ("message", "function_call")
    assert last.status == whole.status
    kinds = [item.type for item in whole.output]
    assert kinds[-1] == ("function_call" if tool else "message")
    assert (kinds[0] == "reasoning") == bool(to.answers[0].reasoning_tokens)


@given(tokens=st.integers(1, 60), gathered=st.integers(1, 7))
@settings(deadline=None, max_examples=50)
def test_a_token_is_a_delta_unless_tokens_are_gathered(tokens: int, gathered: int) -> None:
    to = placed(DIALECT, asked(max_output_tokens=tokens, stream=True))
    events = events_of(stream(DIALECT, to, gathered=gathered))
    deltas = [json.loads(data)["delta"] for name, data in events if name == "response.output_text.delta"]
    words = [len(delta.split()) for delta in deltas]
    assert words == [gathered] * (tokens // gathered) + [tokens % gathered] * bool(tokens % gathered)


def test_the_items_of_a_stream_do_not_overlap() -> None:
    wire = Wire(reasoning_ratio=0.5)
    events = events_of(stream(DIALECT, placed(DIALECT, asked(max_output_tokens=4), wire=wire), wire))
    assert [name.removeprefix("response.") for name, _ in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ]


def test_the_tier_that_served_is_told_at_the_end_and_before_it_the_one_asked_for() -> None:
    to = placed(DIALECT, asked(stream=True, service_tier="fast"), echo="priority")
    tiers = [
        json.loads(data).get("response", {}).get("service_tier") for _, data in events_of(stream(DIALECT, to))
    ]
    assert [tier for tier in tiers if tier] == ["fast", "fast", "priority"]
    unnamed = placed(DIALECT, asked(stream=True), echo=None)
    assert b"service_tier" not in b"".join(stream(DIALECT, unnamed))


def test_a_response_repeats_what_it_was_asked_for() -> None:
    fields = {
        "instructions": "be brief",
        "max_output_tokens": 9,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "top_p": 0.25,
        "tools": TOOLS,
        "tool_choice": "required",
        "truncation": "auto",
        "reasoning": {"effort": "low"},
        "user": "me",
    }
    to = placed(DIALECT, asked(**fields))
    whole = json.loads(voice(DIALECT, to).body(usage_of(to)))
    assert {key: whole[key] for key in fields} == fields
    assert to.answers[0].prompt_tokens == 5


def test_usage_tells_every_kind_of_token() -> None:
    to = placed(DIALECT, asked())
    counted = Usage(
        prompt_tokens=9,
        cached_tokens=4,
        cache_write_tokens=5,
        output_tokens=7,
        reasoning_tokens=2,
        truth={"q": 1.0},
    )
    usage = json.loads(voice(DIALECT, to).body(counted))["usage"]
    assert usage == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 16,
        "mockserver": {"q": 1.0},
    }


def test_faults_leave_out_usage_or_the_end() -> None:
    to = placed(DIALECT, asked(stream=True))
    ((name, data),) = events_of([voice(DIALECT, to).closing(usage_of(to), with_usage=False)])
    assert (name, json.loads(data)["response"]["usage"]) == ("response.completed", None)
    assert voice(DIALECT, to).closing(usage_of(to), with_end=False) == b""


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (RefusedError(500, "broken", kind="server"), "server_error"),
        (RefusedError(429, "slow down", kind="rate_limited"), "rate_limit_exceeded"),
    ],
)
def test_an_error_in_a_stream_is_told_and_fails_the_response(refusal: RefusedError, code: str) -> None:
    speaks = voice(DIALECT, placed(DIALECT, asked(stream=True)))
    events = typed(events_of([speaks.greeting(), speaks.tokens(0, 3), speaks.error(refusal)]))
    error, failed = events[-2:]
    assert (error.type, error.message, error.code) == ("error", refusal.message, code)
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert (failed.response.error.code, failed.response.error.message) == (code, refusal.message)
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input": "one two  three"}, 3),
        ({"input": "why", "instructions": "be brief"}, 3),
        ({"input": [{"role": "user", "content": "one two"}]}, 2),
        (
            {
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a b"}]}
                ]
            },
            2,
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, 0),
        (
            {
                "input": [
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
                    {"type": "function_call_output", "call_id": "c", "output": "it is so"},
                ]
            },
            5,
        ),
        ({"input": [{"type": "reasoning", "id": "r", "summary": []}]}, 0),
    ],
)
def test_a_prompt_is_the_words_of_instructions_and_all_items(fields: dict[str, Any], words: int) -> None:
    (prompt,) = parsed(**fields).prompts
    assert len(prompt.split()) == words


def test_an_answer_that_is_sent_back_is_as_many_tokens_of_the_next_prompt() -> None:
    to = placed(DIALECT, asked(max_output_tokens=9, tools=TOOLS, tool_choice="required"))
    output = json.loads(voice(DIALECT, to).body(usage_of(to)))["output"]
    following = placed(DIALECT, asked(input=[{"role": "user", "content": "a b c"}, *output]))
    assert following.answers[0].prompt_tokens == 3 + 9


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"input": []}, "input", "length >= 1"),
        ({"input": 5}, "input", "expected str"),
        ({"input": [{"content": "x"}]}, "input[0].role", "None is not allowed"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content", "expected str"),
        ({"max_output_tokens": 0}, "max_output_tokens", ">= 1"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "not found"),
        ({"background": True}, "background", "Unsupported"),
        ({"conversation": "c"}, "conversation", "Unsupported"),
        ({"prompt": {"id": "p"}}, "prompt", "Unsupported"),
        ({"top_logprobs": 3}, "top_logprobs", "Unsupported"),
        ({"metadata": {"a": 1}}, "metadata", "expected str"),
        ({"tool_choice": "required"}, "tool_choice", "'tools' holds none"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "sing"}}, "tool_choice", "'sing'"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "'huge'"),
    ],
)
def test_a_bad_request_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        parsed(**fields)
    assert refused.value.status == 400
    assert (refused.value.param or "").startswith(param)
    assert says in refused.value.message


def test_allowed_tools_stand_at_the_top_here() -> None:
    choice: dict[str, Any] = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "say"}],
    }
    assert parsed(tools=TOOLS, tool_choice=choice).tool == "say"
    unknown = choice | {"tools": [{"type": "function", "name": "sing"}, *choice["tools"]]}
    assert parsed(tools=TOOLS, tool_choice=unknown).tool == "say"
    assert parsed(tools=TOOLS, tool_choice=choice | {"mode": "auto"}).tool is None


def test_what_a_strict_server_knows_is_what_the_vendors_types_know() -> None:
    assert set(ResponseCreateParamsBase.__annotations__) | {"stream"} == wire_responses.FIELDS
    assert set(StreamOptions.__annotations__) == wire_responses.STREAM_FIELDS
    with pytest.raises(RefusedError, match="Unknown parameter: 'stop'"):
        parsed(Wire(refuse_unknown=True), stop="x")
    assert parsed(stop="x", ignore_eos=True).stop == ("x",)
