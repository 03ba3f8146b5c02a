"""Completions as the mock speaks them, read by the rules of WHATWG and by the vendor's own types."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.completion_create_params import CompletionCreateParamsBase

from mockserver import wire_completions
from mockserver.ask import Ask, RefusedError
from mockserver.wire_completions import DIALECT
from mockserver.wire_config import Wire
from tests.mockserver import openai_wire
from tests.mockserver.openai_wire import cut_at, events_of, extras, placed, stream, usage_of, voice

WIRES = st.builds(
    Wire, role_first=st.booleans(), obfuscation=st.booleans(), reasoning_ratio=st.sampled_from([0.0, 0.5])
)


def asked(**fields: Any) -> dict[str, Any]:
    return {"model": "mock", "prompt": "a b c", **fields}


def parsed(wire: Wire | None = None, **fields: Any) -> Ask:
    return DIALECT.parse(openai_wire.body(asked(**fields)), {}, wire or Wire())


@given(
    wire=WIRES,
    tokens=st.integers(1, 20),
    prompts=st.lists(st.text("ab ", max_size=6), min_size=1, max_size=3),
    n=st.integers(1, 2),
    usage=st.booleans(),
    gathered=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 20_000), max_size=20),
)
@settings(deadline=None, max_examples=60)
def test_a_stream_cut_anywhere_adds_up_to_the_whole_answer(
    wire: Wire, tokens: int, prompts: list[str], n: int, usage: bool, gathered: int, cuts: list[int]
) -> None:
    how = {"include_usage": usage}
    to = placed(
        DIALECT, asked(prompt=prompts, n=n, max_tokens=tokens, stream=True, stream_options=how), wire=wire
    )
    events = events_of(cut_at(b"".join(stream(DIALECT, to, wire, gathered=gathered)), cuts))
    assert events.pop() == ("", "[DONE]")
    chunks = [json.loads(data) for _, data in events]
    usages = [chunk.get("usage") for chunk in chunks if not chunk["choices"]]
    ends = [one["index"] for chunk in chunks for one in chunk["choices"] if one["finish_reason"] == "length"]
    # All servers send null before the end, which the vendor's type forgets.
    filled = [data.replace('"finish_reason":null', '"finish_reason":"stop"') for _, data in events]
    parts = [Completion.model_validate_json(data, strict=True) for data in filled]
    whole = Completion.model_validate_json(voice(DIALECT, to, wire).body(usage_of(to)), strict=True)
    assert extras(whole) == {"service_tier"}
    assert [choice.index for choice in whole.choices] == list(range(len(prompts) * n))
    for choice in whole.choices:
        said = "".join(one.text for part in parts for one in part.choices if one.index == choice.index)
        assert said == choice.text
        assert len(said.split()) == tokens
    assert sorted(ends) == list(range(len(prompts) * n))
    assert [counted["completion_tokens"] for counted in usages] == [tokens * len(prompts) * n] * usage


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("one two", [2]),
        (["one two", "three"], [2, 1]),
        ([5, 6, 7], [3]),
        ([[5, 6, 7], [8]], [3, 1]),
        (None, [1]),
    ],
)
def test_a_prompt_is_text_or_token_ids_or_several_of_either(prompt: object, words: list[int]) -> None:
    assert [len(one.split()) for one in parsed(prompt=prompt).prompts] == words


def test_token_ids_that_differ_are_different_prompts() -> None:
    assert len({parsed(prompt=ids).prompts for ids in ([1, 2], [12], [2, 1], [[1], [2]])}) == 4


def test_padding_can_be_refused() -> None:
    wire = Wire(obfuscation=True)
    for padded in (True, False):
        fields = asked(stream=True, stream_options={"include_obfuscation": padded})
        sent = b"".join(stream(DIALECT, placed(DIALECT, fields, wire=wire), wire))
        assert (b"obfuscation" in sent) == padded


def test_there_is_no_reasoning_here() -> None:
    to = placed(DIALECT, asked(max_tokens=8), wire=Wire(reasoning_ratio=0.5))
    assert to.answers[0].reasoning_tokens == 0


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"prompt": []}, "prompt", "length >= 1"),
        ({"prompt": [1, "two"]}, "prompt", "a list of token ids"),
        ({"prompt": [[]]}, "prompt", "a list of token ids"),
        ({"prompt": [-1]}, "prompt", "a list of token ids"),
        ({"prompt": ["x"] * 100, "n": 30}, "prompt", "more than 2048 answers"),
        ({"prompt": 5}, "prompt", "expected str"),
        ({"logprobs": 0}, "logprobs", "Unsupported"),
        ({"echo": True}, "echo", "Unsupported"),
        ({"suffix": "x"}, "suffix", "Unsupported"),
        ({"best_of": 2}, "best_of", "Unsupported"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
    ],
)
def test_a_bad_request_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        parsed(**fields)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert says in refused.value.message


def test_a_request_without_a_prompt_is_refused() -> None:
    with pytest.raises(RefusedError, match="Missing required parameter: 'prompt'"):
        DIALECT.parse(b'{"model": "mock"}', {}, Wire())


def test_what_a_strict_server_knows_is_what_the_vendors_types_know() -> None:
    assert set(CompletionCreateParamsBase.__annotations__) | {"stream"} == wire_completions.FIELDS
    with pytest.raises(RefusedError, match="Unknown parameter: 'service_tier'"):
        parsed(Wire(refuse_unknown=True), service_tier="default")
    assert parsed(service_tier="priority").service_tier == "priority"
