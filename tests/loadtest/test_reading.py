"""Reading a stream at once gives what reading it event by event gives, for every API and any cut."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import reading, sse
from loadtest.delta import skimmed
from loadtest.plan import Api
from loadtest.regular import regular
from loadtest.sse import EventReader
from loadtest.unreadable import UNREADABLE
from loadtest.wire import WIRES
from tests.loadtest.streams import DOCUMENTS, chat, cut, exchange, streams

CUTS = st.sets(st.integers(1, 3000), max_size=30)
APIS = pytest.mark.parametrize("api", WIRES)


@APIS
@given(data=st.data(), places=CUTS)
@settings(deadline=None)
def test_at_once_or_one_by_one_is_the_same(api: Api, data: st.DataObject, places: set[int]) -> None:
    body = data.draw(streams(api))
    pieces = cut(body, places)
    at_once = reading.read(exchange(pieces), WIRES[api])
    # A comment changes nothing and is of no regular shape, so that everything is read one by one.
    stamp_ns, first = pieces[0] if pieces else (0, b"")
    one_by_one = reading.read(exchange([(stamp_ns, b":\n" + first), *pieces[1:]]), WIRES[api])
    assert at_once == one_by_one


@given(body=st.sampled_from(list(WIRES)).flatmap(streams))
def test_a_body_taken_apart_at_once_has_the_events_of_the_standard(body: bytes) -> None:
    found = regular(body)
    if found is None:
        return
    events = EventReader().receive(body)
    assert [data for _, data in events] == found.data
    for end, data in zip(found.ends, found.data, strict=True):
        assert body[:end].endswith((b"data: " + data + b"\n\n", b"data: " + data + b"\r\n\r"))


@pytest.mark.parametrize("body", [
    b"data: {}\n\n" * 3 + b"data: [DONE]\n\n",
    b"event: a\ndata: {}\n\nevent: b\ndata: {}\n\n",
])  # fmt: skip
def test_the_two_usual_shapes_are_known_with_either_line_end(body: bytes) -> None:
    assert regular(body) is not None
    assert regular(body.replace(b"\n", b"\r\n")) is not None


@pytest.mark.parametrize("body", [
    b"", b"\n\n", b"data: {}", b"data: {}\n", b"data:{}\n\n", b"data: {}\r\n\r", b"data: {}\r\n\n",
    b"data: {}\r\r", b"data: {}\r\n\r\ndata: {}\n\n", b"data: {}\r\r\n\n",
    b"\xef\xbb\xbfdata: {}\n\n", b"data: {}\n\nevent: a\ndata: {}\n\n",
    b"data: {\ndata: }\n\n", b"data: {}\n\n\ndata: {}\n\n", b"data: {}\n\n:\n\n",
    b"event: error\ndata: {}\n\n", b"event: a\nevent: error\ndata: {}\n\n", b"event: a\n\ndata: {}\n\n",
    b"event: a\nid: 1\ndata: {}\n\n",
])  # fmt: skip
def test_any_other_shape_is_left_to_the_general_reader(body: bytes) -> None:
    assert regular(body) is None


def test_an_event_too_large_is_left_to_the_general_reader() -> None:
    assert regular(b"data: " + b"x" * (sse.MAX_EVENT_BYTES - 8) + b"\n\n") is not None
    assert regular(b"data: " + b"x" * sse.MAX_EVENT_BYTES + b"\n\n") is None


@APIS
def test_skimming_leaves_out_what_was_generated_and_nothing_else(api: Api) -> None:
    wire, compared = WIRES[api], 0
    for document in DOCUMENTS[api]:
        data = json.dumps(document).encode()
        try:
            deltas = wire.skim([data])
        except UNREADABLE:
            with pytest.raises(UNREADABLE):
                wire.read_event(b"", data)
            continue
        if deltas is not None:
            assert deltas == [skimmed(wire.read_event(b"", data))]
            compared += 1
    assert compared > len(DOCUMENTS[api]) / 2


def test_an_event_too_large_loses_no_event_before_it() -> None:
    small = b"data: " + json.dumps(chat({"content": "a"})).encode() + b"\n\n"
    huge = b"data: " + b"x" * (sse.MAX_EVENT_BYTES + 1)
    seen = reading.read(exchange([(1, small), (2, small + small + huge), (3, small)]), WIRES["openai"])
    assert seen.event_ns == [1, 2, 2]
    assert seen.damage == f"unreadable event: an event is larger than {sse.MAX_EVENT_BYTES} bytes"


@pytest.mark.parametrize("bad", [b'data: {"error":"gone"}\n\n', b"data: {]\n\n"])
def test_nothing_after_an_error_or_damage_counts_even_in_the_same_read(bad: bytes) -> None:
    good = b"data: " + json.dumps(chat({"content": "a"})).encode() + b"\n\n"
    seen = reading.read(exchange([(1, good + bad + good + good), (2, good)]), WIRES["openai"])
    assert (seen.event_ns, seen.terminal) == ([1], False)


ANSWERS: list[tuple[Api, list[dict[str, Any]], dict[str, Any]]] = [
    (
        "openai",
        [
            chat({"reasoning": "hm"}),
            chat({"content": "快 "}),
            chat({"content": "cat"}),
            chat({}, finish="stop"),
        ],
        {"choices": [{"message": {"content": "快 cat", "reasoning": "hm"}}]},
    ),
    (
        "completions",
        [{"choices": [{"text": "快 "}]}, {"choices": [{"text": "cat"}]}],
        {"choices": [{"text": "快 cat"}]},
    ),
    (
        "responses",
        [{"type": "response.output_text.delta", "delta": word} for word in ("快 ", "cat")],
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": "快 cat"}]}]},
    ),
    (
        "anthropic",
        [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": w}} for w in ("快 ", "cat")],
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "快 cat"}]},
    ),
]


@pytest.mark.parametrize(("api", "events", "whole"), ANSWERS, ids=WIRES)
@given(places=CUTS)
def test_an_answer_is_its_visible_text_streamed_or_not(
    api: Api, events: list[dict[str, Any]], whole: dict[str, Any], places: set[int]
) -> None:
    stream = b"".join(b"data: " + json.dumps(one, ensure_ascii=False).encode() + b"\n\n" for one in events)
    document = json.dumps(whole).encode()
    assert reading.answer(exchange(cut(stream, places)), WIRES[api]) == "快 cat"
    assert reading.answer(exchange(cut(document, places), "application/json"), WIRES[api]) == "快 cat"


def test_an_answer_that_breaks_off_is_what_came_before() -> None:
    good = b"data: " + json.dumps(chat({"content": "a"})).encode() + b"\n\n"
    for bad in (b"data: {]\n\n", b'data: {"error":"x"}\n\n', b"data: {"):
        assert reading.answer(exchange([(1, good + good + bad + good)]), WIRES["openai"]) == "aa"
    assert reading.answer(exchange([(1, b'{"choi')], "application/json"), WIRES["openai"]) == ""
    assert reading.answer(exchange([]), WIRES["openai"]) == ""
