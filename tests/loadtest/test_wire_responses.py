"""What an event means in OpenAI's Responses API, after the published types of its Python SDK (2026)."""

import json
from typing import Any

import msgspec
import pytest

from loadtest import timeline, wire_responses
from loadtest.delta import Delta
from loadtest.plan import Tier
from loadtest.records import RequestRecord
from loadtest.unreadable import UNREADABLE
from loadtest.wire import WIRES
from loadtest.workload import Request
from tests.loadtest.streams import exchange

REQUEST = Request(index=0, stage="s", warmup=False, tier=Tier(name="t"), prompt_tokens=9, max_tokens=5)
USAGE = {"input_tokens": 36, "output_tokens": 87, "input_tokens_details": {"cached_tokens": 8}}


def event(kind: str, **more: Any) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": 1} | more).encode()
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


def read(kind: str, **more: Any) -> Delta:
    return wire_responses.read_event(kind.encode(), json.dumps({"type": kind} | more).encode())


def recorded(events: list[bytes]) -> RequestRecord:
    seen = exchange([(k, one) for k, one in enumerate(events)])
    return timeline.record(REQUEST, seen, WIRES["responses"], model="m", scheduled_ns=0)


CREATED = event("response.created", response={"status": "in_progress", "service_tier": "auto", "usage": None})
ADDED = event("response.output_item.added", output_index=0, item={"type": "message", "content": []})
TEXT = event("response.output_text.delta", item_id="i", output_index=0, content_index=0, delta="a")
THOUGHT = event("response.reasoning_summary_text.delta", delta="hm")
DONE = event("response.output_text.done", text="aa")


def ended(status: str, **more: Any) -> bytes:
    response = {"status": status, "service_tier": "priority", "usage": USAGE, "output": []} | more
    return event(f"response.{status}", response=response)


def test_a_stream_from_its_first_event_to_its_last() -> None:
    made = recorded([CREATED, ADDED, THOUGHT, TEXT, TEXT, DONE, ended("completed")])
    assert (made.outcome, made.detail, made.finish_reason) == ("ok", "", "completed")
    assert (made.event_ns, made.first_text_ns) == ([2, 3, 4], 3)
    assert made.event_kinds == [("reasoning", 1), ("text", 2)]
    assert (made.prompt_tokens, made.cached_tokens, made.output_tokens) == (36, 8, 87)
    assert (made.tokens_source, made.echoed_tier) == ("usage", "priority")


def test_an_answer_cut_off_at_its_bound_ended_well_and_says_why() -> None:
    made = recorded([TEXT, ended("incomplete", incomplete_details={"reason": "max_output_tokens"})])
    assert (made.outcome, made.finish_reason) == ("ok", "max_output_tokens")


@pytest.mark.parametrize(
    ("last", "detail"),
    [
        (ended("failed", error={"code": "server_error", "message": "it broke"}), "server_error: it broke"),
        (event("response.failed"), "response.failed"),
        (ended("cancelled"), "the response was cancelled"),
        (event("error", code="rate_limit_exceeded", message="slow down"), "rate_limit_exceeded: slow down"),
        (event("error", error={"type": "x", "message": "y"}), "x: y"),
        (event("error"), "an error without a message"),
    ],
)
def test_a_failure_inside_a_stream_is_an_error_in_one_line(last: bytes, detail: str) -> None:
    made = recorded([CREATED, TEXT, last, TEXT])
    assert (made.outcome, made.detail, made.event_ns) == ("stream_error", detail, [1])


def test_without_its_last_event_a_stream_is_truncated() -> None:
    made = recorded([CREATED, TEXT, DONE])
    assert (made.outcome, made.echoed_tier) == ("truncated", None)


@pytest.mark.parametrize(
    ("kind", "output"),
    [
        ("response.output_text.delta", "text"),
        ("response.refusal.delta", "text"),
        ("response.reasoning_summary_text.delta", "reasoning"),
        ("response.reasoning_text.delta", "reasoning"),
        ("response.function_call_arguments.delta", "tool"),
        ("response.custom_tool_call_input.delta", "tool"),
        ("response.output_text.done", None),
        ("response.output_text.annotation.added", None),
        ("something.new", None),
    ],
)
def test_a_delta_is_output_if_it_carries_any(kind: str, output: str | None) -> None:
    assert read(kind, delta="x").kind == output
    assert read(kind, delta="").kind is None
    assert read(kind).kind is None


@pytest.mark.parametrize(
    ("item", "kind"),
    [
        ({"type": "function_call", "name": "f"}, "tool"),
        ({"type": "function_call"}, None),
        ({"type": "message"}, None),
    ],
)
def test_the_name_of_a_function_is_output_too(item: dict[str, Any], kind: str | None) -> None:
    assert read("response.output_item.added", item=item).kind == kind


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"type":"response.output_text.delta","delta":5}', b"\xff"])
def test_what_is_not_an_event_is_damage(data: bytes) -> None:
    with pytest.raises(UNREADABLE):
        wire_responses.read_event(b"", data)


WHOLE: dict[str, Any] = {
    "status": "completed",
    "service_tier": "default",
    "usage": USAGE,
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "so"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "hi"}, {"refusal": "!"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"},
    ],
}


def test_a_whole_response_is_read_like_a_stream_of_one_event() -> None:
    delta = wire_responses.read_body(json.dumps(WHOLE).encode())
    assert (delta.kind, delta.text, delta.reasoning, delta.tool) == ("text", "hi!", "hmso", "{}")
    assert (delta.terminal, delta.finish_reason, delta.echoed_tier) == (True, "completed", "default")
    assert delta.usage is not None
    assert (delta.usage.whole_prompt_tokens, delta.usage.output_tokens) == (36, 87)


def test_a_whole_response_that_is_not_there_yet_has_not_ended() -> None:
    assert not wire_responses.read_body(json.dumps(WHOLE | {"status": "in_progress"}).encode()).terminal


def test_a_whole_response_that_failed_is_an_error() -> None:
    failed = WHOLE | {"status": "failed", "error": {"code": "server_error", "message": "x"}}
    assert wire_responses.read_body(json.dumps(failed).encode()).error == "server_error: x"
    with pytest.raises(msgspec.ValidationError, match="without output"):
        wire_responses.read_body(b"{}")
