"""Words put into JSON of a schema, judged by a validator that others wrote."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import speech
from mockserver.ask import Answer
from mockserver.json_frame import ANY, frame_of

NAMES = st.sampled_from(["a", "b", "c d", 'e"f', "ü"])


def interval(kind: str | list[str], low: float, low_open: bool, high_open: bool) -> dict[str, Any]:
    """A narrow one of numbers, or one with an integer in it."""
    keys = "exclusiveMinimum" if low_open else "minimum", "exclusiveMaximum" if high_open else "maximum"
    return {"type": kind, keys[0]: low, keys[1]: low + (0.01 if kind == "number" else 2.5)}


LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({"type": "string"}),
    st.integers(0, 5).map(lambda least: {"type": "string", "minLength": least, "maxLength": 9}),
    st.integers(0, 3).map(lambda least: {"type": "string", "minLength": least}),
    st.builds(
        interval,
        st.sampled_from(["integer", "number", ["integer", "null"]]),
        st.floats(-9, 9),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda of, least: {"type": "integer", "multipleOf": of, "exclusiveMinimum": least},
        st.integers(1, 7),
        st.integers(-9, 9),
    ),
    st.integers(-9, 9).map(lambda most: {"type": "number", "multipleOf": 0.5, "maximum": most}),
    st.just({"anyOf": [{"type": "null"}]}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.integers(-5, 5).map(lambda least: {"type": "integer", "minimum": least}),
    st.integers(-5, 5).map(lambda most: {"type": "number", "exclusiveMaximum": most}),
    st.just({"enum": ["one two", 2]}),
    st.just({"const": {"x": 1}}),
    st.just({"$ref": "#/$defs/leaf"}),
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def made(members: dict[str, Any], required: set[str]) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": members,
            "required": sorted(required & set(members)),
            "additionalProperties": False,
        }

    return st.builds(made, st.dictionaries(NAMES, inner, max_size=4), st.sets(NAMES))


SCHEMAS = objects(
    st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            objects(inner),
            st.builds(lambda of, n: {"type": "array", "items": of, "minItems": n}, inner, st.integers(0, 2)),
            inner.map(lambda of: {"anyOf": [{"type": "null"}, of]}),
        ),
        max_leaves=6,
    )
)


def said(schema: object, tokens: int) -> str:
    answer = Answer(
        key=5, prompt_tokens=1, output_tokens=tokens, tool="f", frame=frame_of(schema), finish="tool"
    )
    (run,) = speech.runs(answer)
    assert len(run.pieces) == tokens
    return run.said


@given(SCHEMAS, st.integers(1, 9))
@settings(deadline=None)
def test_what_is_said_obeys_its_schema_however_many_tokens_it_has(
    schema: dict[str, Any], tokens: int
) -> None:
    whole = schema | {"$defs": {"leaf": {"type": "integer", "minimum": 3}}}
    jsonschema.validate(json.loads(said(whole, tokens)), whole)


@given(LEAVES, st.integers(1, 9))
@settings(deadline=None)
def test_what_is_no_object_obeys_its_schema_too(schema: dict[str, Any], tokens: int) -> None:
    whole = schema | {"$defs": {"leaf": {"type": "string", "minLength": 3}}}
    jsonschema.validate(json.loads(said(whole, tokens)), whole)


@pytest.mark.parametrize(
    ("schema", "frame"),
    [
        (None, ANY),
        ({}, ANY),
        ({"type": "object"}, ANY),
        ({"type": "object", "additionalProperties": False}, ("{}", "")),
        ({"type": "object", "properties": {}, "additionalProperties": False}, ("{}", "")),
        ({"type": "string"}, ('"', '"')),
        (
            {
                "properties": {"n": {"type": "integer"}, "q": {"type": "string"}, "r": {"type": "string"}},
                "required": ["n", "q"],
            },
            ('{"n":0,"q":"', '"}'),
        ),
        ({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, ('{"n":0}', "")),
        ({"properties": {"q": {"type": "string"}}}, ('{"q":"', '"}')),
    ],
)
def test_words_go_into_the_first_string_that_is_free(schema: object, frame: tuple[str, str]) -> None:
    assert frame_of(schema) == frame


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/nowhere"},
        {"properties": {"again": {"$ref": "#"}}, "required": ["again"]},
        {"properties": {c: {"$ref": "#"} for c in "abcdefgh"}, "required": list("abcdefgh")},
        {
            "properties": {"a": {"type": "array", "minItems": 10**12, "items": {"$ref": "#"}}},
            "required": ["a"],
        },
        {"properties": {"a": {"type": "string", "minLength": 10**12}}, "required": ["a"]},
        {"type": ["object"], "properties": 5, "required": [1, None], "enum": 3},
        {"anyOf": []},
        {"allOf": [5]},
        [],
        "x",
    ],
)
def test_a_schema_that_is_odd_or_endless_still_gives_short_json(schema: object) -> None:
    told = said(schema, 3)
    json.loads(told)
    assert len(told) < 40_000
