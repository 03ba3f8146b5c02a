"""What the mock puts on the wire, read back with the standard library and the rules of WHATWG."""

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver import config, text, wire_openai
from mockserver.wire_openai import ApiError, Reply

CONFIG = config.load("fast-tier")


class SpecReader:
    """Server-sent events by the letter of the specification: field, colon, one space or none, blank line."""

    def __init__(self) -> None:
        self._line, self._data, self.events = bytearray(), [""][:0], [""][:0]

    def feed(self, piece: bytes) -> None:
        for byte in piece:
            if byte != ord("\n"):
                self._line.append(byte)
                continue
            self._end_line(self._line.decode("utf-8"))
            self._line.clear()

    def _end_line(self, line: str) -> None:
        if line:
            name, _, value = line.partition(":")
            assert name == "data"
            self._data.append(value.removeprefix(" "))
        elif self._data:
            self.events.append("\n".join(self._data))
            self._data.clear()


def events_of(pieces: Iterable[bytes]) -> list[str]:
    reader = SpecReader()
    for piece in pieces:
        reader.feed(piece)
    return reader.events


def body(**fields: Any) -> bytes:
    return json.dumps(
        {"model": "mock", "messages": [{"role": "user", "content": "a b c"}], **fields}
    ).encode()


def reply(job_id: int = 7, **fields: Any) -> Reply:
    admitted = wire_openai.admit(wire_openai.parse(body(**fields)), CONFIG)
    return Reply(admitted, CONFIG, job_id=job_id, created_unix_s=1_700_000_000)


def stream(sent: Reply) -> bytes:
    tokens = b"".join(sent.token_event() for _ in range(sent.admitted.output_tokens))
    return sent.role_event() + tokens + sent.last_events()


@given(
    tokens=st.integers(1, 40),
    job_id=st.integers(0, 10**9),
    usage=st.booleans(),
    cuts=st.lists(st.integers(0, 12_000), max_size=20),
)
def test_a_stream_cut_anywhere_reads_back_as_what_was_meant(
    tokens: int, job_id: int, usage: bool, cuts: list[int]
) -> None:
    sent = reply(job_id, max_tokens=tokens, stream=True, stream_options={"include_usage": usage})
    wire = stream(sent)
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    events = events_of(wire[a:b] for a, b in pairwise(edges))
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert {chunk["id"] for chunk in chunks} == {sent.request_id}
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["service_tier"] for chunk in chunks} == {"default"}
    if usage:
        counted = chunks.pop()
        assert counted["choices"] == []
        assert counted["usage"]["completion_tokens"] == tokens
        assert counted["usage"]["prompt_tokens"] == 3
        assert counted["usage"]["total_tokens"] == tokens + 3
        assert all(chunk["usage"] is None for chunk in chunks)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert [choice["finish_reason"] for choice in choices] == [None] * (tokens + 1) + ["length"]
    pieces = [choice["delta"]["content"] for choice in choices[1:-1]]
    assert len(pieces) == tokens
    assert "".join(pieces) == text.output(job_id, tokens)
    assert len("".join(pieces).split()) == tokens


def test_a_whole_answer_says_the_same_as_a_stream() -> None:
    whole = json.loads(reply(max_tokens=12).body())
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": text.output(7, 12)}
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == 12


def test_the_model_name_may_hold_anything_that_json_can() -> None:
    odd = msgspec.structs.replace(CONFIG, model_name='a "quoted"\u2028\\name\n')
    request = wire_openai.parse(body(model=odd.model_name, max_tokens=2))
    sent = Reply(wire_openai.admit(request, odd), odd, job_id=1, created_unix_s=1)
    (event,) = events_of([sent.token_event()])
    assert json.loads(event)["model"] == odd.model_name


@pytest.mark.parametrize(
    ("fields", "tokens", "reason"),
    [
        ({"max_tokens": 5}, 5, "length"),
        ({"max_completion_tokens": 6}, 6, "length"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, 6, "length"),
        ({}, CONFIG.default_output_tokens, "stop"),
    ],
)
def test_the_output_is_as_long_as_was_asked(fields: dict[str, int], tokens: int, reason: str) -> None:
    admitted = wire_openai.admit(wire_openai.parse(body(**fields)), CONFIG)
    assert (admitted.output_tokens, admitted.finish_reason) == (tokens, reason)


@pytest.mark.parametrize(
    ("messages", "tokens"),
    [
        ([{"role": "user", "content": "one two  three\nfour"}], 4),
        ([{"role": "system", "content": "be brief"}, {"role": "user", "content": "why"}], 3),
        ([{"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]}], 3),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], 1),
        ([{"role": "assistant", "content": None}, {"role": "user", "content": "x y"}], 2),
    ],
)
def test_prompt_tokens_are_the_words_of_all_messages(messages: list[dict[str, Any]], tokens: int) -> None:
    admitted = wire_openai.admit(wire_openai.parse(body(messages=messages)), CONFIG)
    assert admitted.prompt_tokens == tokens


def test_fields_that_mean_nothing_here_are_accepted() -> None:
    wire_openai.parse(body(temperature=0.1, ignore_eos=True, tools=[], seed=4, user="u", logit_bias={"1": 2}))


@pytest.mark.parametrize(
    ("sent", "status", "param", "says"),
    [
        (b"{", 400, None, "not valid JSON"),
        (b"\xff\xfe", 400, None, "not valid JSON"),
        (b"[]", 400, None, "expected object"),
        (b'{"model": "mock"}', 400, "messages", "Missing required parameter"),
        (body(messages=[]), 400, "messages", "length >= 1"),
        (body(messages=[{"content": "x"}]), 400, "messages[0].role", "Missing required parameter"),
        (body(messages=[{"role": "user", "content": 5}]), 400, "messages[0].content", "expected str"),
        (body(max_tokens=0), 400, "max_tokens", ">= 1"),
        (body(max_tokens=1.5), 400, "max_tokens", "expected int"),
        (body(stream="yes"), 400, "stream", "expected bool"),
        (body(n=2), 400, "n", "2 is not supported"),
        (body(service_tier="flex"), 400, "service_tier", "expected one of: auto, default, priority, fast"),
        (body(model="gpt"), 404, "model", "'gpt' does not exist"),
        (body(max_tokens=131_070), 400, "messages", "maximum context length is 131072 tokens"),
    ],
)
def test_a_bad_request_is_refused_by_the_name_of_its_field(
    sent: bytes, status: int, param: str | None, says: str
) -> None:
    with pytest.raises(ApiError) as refused:
        wire_openai.admit(wire_openai.parse(sent), CONFIG)
    error = json.loads(wire_openai.error_body(refused.value))["error"]
    assert (refused.value.status, error["param"]) == (status, param)
    assert says in error["message"]
    assert error["type"] == "invalid_request_error"


def test_no_word_comes_twice_before_all_have_come() -> None:
    words = [text.word(3, position).strip() for position in range(128)]
    assert len(set(words)) == 128
    assert all(word.isascii() and word.isalpha() for word in words)
