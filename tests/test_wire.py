"""The two ends of the wire agree: what the mock says it sent is what the client's record holds.

Requests are made by the client and read by the mock; answers are made by the mock, framed as HTTP by this
file, cut anywhere, and read by the client. No socket, no clock: a read's stamp is its number.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import reading, timeline, workload
from loadtest.exchange import Exchange
from loadtest.framing import ResponseFramer
from loadtest.plan import Closed, Plan, Stage, Target, Tier, Workload
from loadtest.records import RequestRecord
from loadtest.request_bytes import RequestBuilder
from loadtest.wire import WIRES
from loadtest.workload import Request
from mockserver import config, text, wire_openai
from mockserver.wire_openai import ApiError, Reply

CONFIG = config.load("fast-tier")
WIRE = WIRES["openai"]
TARGET = Target(url="http://h:1", model=CONFIG.model_name)

CUTS = st.sets(st.integers(1, 20_000), max_size=40)
JOBS = st.integers(0, 2**40)
TIERS = st.sampled_from(
    [
        ({}, "default"),
        ({"service_tier": "auto"}, "default"),
        ({"service_tier": "priority"}, "priority"),
        ({"service_tier": "fast"}, "priority"),
    ]
)


def asked(tier: Tier, *, prompt_tokens: int = 8, max_tokens: int = 8) -> tuple[Plan, Request]:
    plan = Plan(
        name="p",
        tiers=(tier,),
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),),
        workload=Workload(prompt_tokens=(prompt_tokens,), output_tokens=max_tokens),
    )
    return plan, workload.open_source(plan).request(0, 0, index=0)


def served(plan: Plan, request: Request, job_id: int = 7) -> Reply:
    """Hand the client's own bytes to the mock; its reply, or ApiError."""
    says = workload.open_source(plan).says(request)
    message = RequestBuilder(plan, TARGET, key="", run_id="r").build(request, says)
    body = message.partition(b"\r\n\r\n")[2]
    admitted = wire_openai.admit(wire_openai.parse(body), CONFIG)
    return Reply(admitted, CONFIG, job_id=job_id, created_unix_s=1_800_000_000)


def streamed(reply: Reply) -> Iterator[bytes]:
    """What the mock writes for a stream, in its order."""
    yield reply.role_event()
    for _ in range(reply.admitted.output_tokens):
        yield reply.token_event()
    yield reply.last_events()


def as_http(parts: list[bytes], *, status: int = 200, kind: str = "text/event-stream") -> bytes:
    """A response in chunked transfer coding, a chunk a part (RFC 9112, section 7.1)."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""]]
    return head.encode() + b"".join(chunks)


def received(response: bytes, cuts: set[int]) -> Exchange:
    """Read a response in as many reads as the cuts make of it; the server then hangs up."""
    exchange = Exchange(stamp_source="virtual", sent_ns=0)
    framer = ResponseFramer(exchange)
    edges = [0, *sorted(cut for cut in cuts if cut < len(response)), len(response)]
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        framer.receive(response[start:end], number)
    framer.closed("the server closed the connection")
    return exchange


def recorded(request: Request, exchange: Exchange) -> RequestRecord:
    return timeline.record(request, exchange, WIRE, model=TARGET.model, scheduled_ns=0)


@given(
    tier=TIERS,
    prompt_tokens=st.integers(1, 300),
    max_tokens=st.integers(1, 40),
    usage=st.booleans(),
    job_id=JOBS,
    cuts=CUTS,
)
@settings(deadline=None)
def test_a_stream_is_recorded_as_the_mock_means_it_wherever_it_is_cut(
    tier: tuple[dict[str, Any], str],
    prompt_tokens: int,
    max_tokens: int,
    usage: bool,
    job_id: int,
    cuts: set[int],
) -> None:
    body, echo = tier
    if not usage:
        body = body | {"stream_options": {"include_usage": False}}
    plan, request = asked(Tier(name="t", body=body), prompt_tokens=prompt_tokens, max_tokens=max_tokens)
    exchange = received(as_http(list(streamed(served(plan, request, job_id)))), cuts)
    record = recorded(request, exchange)
    assert (record.outcome, record.detail, record.status) == ("ok", "", 200)
    assert reading.answer(exchange, WIRE) == text.output(job_id, max_tokens)
    assert len(record.event_ns) == record.output_tokens == max_tokens
    assert record.event_kinds == [("text", max_tokens)]
    assert record.first_text_ns == record.event_ns[0]
    assert (record.requested_tier, record.echoed_tier) == ("t", echo)
    assert record.finish_reason == "length"
    if usage:
        assert (record.prompt_tokens, record.cached_tokens) == (prompt_tokens, 0)
        assert record.tokens_source == "usage"
    else:
        assert (record.prompt_tokens, record.tokens_source) == (None, "events")


@given(max_tokens=st.integers(1, 12), cuts=CUTS)
@settings(deadline=None)
def test_each_token_is_stamped_with_the_read_that_brought_its_last_byte(
    max_tokens: int, cuts: set[int]
) -> None:
    plan, request = asked(Tier(name="t"), max_tokens=max_tokens)
    parts = list(streamed(served(plan, request)))
    response = as_http(parts)
    exchange = received(response, cuts)
    record = recorded(request, exchange)
    edges = sorted(cut for cut in cuts if cut < len(response))
    # An event ends with its blank line: the last byte of its part, wherever that lies in the response.
    ends = [response.index(part) + len(part) for part in parts[1:-1]]
    assert record.event_ns == [sum(edge < end for edge in edges) for end in ends]
    assert record.coalesced_events == max_tokens - len(set(record.event_ns))


@given(tier=TIERS, max_tokens=st.integers(1, 60), job_id=JOBS, cuts=CUTS)
@settings(deadline=None)
def test_an_answer_that_was_not_streamed_says_the_same_at_its_end(
    tier: tuple[dict[str, Any], str], max_tokens: int, job_id: int, cuts: set[int]
) -> None:
    body, echo = tier
    plan, request = asked(Tier(name="t", body=body | {"stream": False}), max_tokens=max_tokens)
    reply = served(plan, request, job_id)
    assert not reply.admitted.stream
    exchange = received(as_http([reply.body()], kind="application/json"), cuts)
    record = recorded(request, exchange)
    assert (record.outcome, record.finish_reason, record.echoed_tier) == ("ok", "length", echo)
    assert (record.streamed, record.event_ns, record.first_text_ns) == (False, [], None)
    assert (record.prompt_tokens, record.output_tokens) == (8, max_tokens)
    assert reading.answer(exchange, WIRE) == text.output(job_id, max_tokens)


@given(tokens=st.integers(1, 8), end=st.integers(1, 4000), cuts=CUTS)
@settings(deadline=None)
def test_a_stream_that_stops_short_is_truncated_and_keeps_the_tokens_that_came(
    tokens: int, end: int, cuts: set[int]
) -> None:
    plan, request = asked(Tier(name="t"), max_tokens=tokens)
    parts = list(streamed(served(plan, request)))
    response = as_http(parts)
    head_end = response.index(b"\r\n\r\n") + 4
    short = response[: head_end + end % (len(response) - head_end)]
    record = recorded(request, received(short, cuts))
    assert record.outcome == "truncated"
    assert len(record.event_ns) == sum(part in short for part in parts[1:-1])


REFUSED: list[tuple[dict[str, Any], int, int, str]] = [
    ({"model": "gpt"}, 8, 404, "The model 'gpt' does not exist; this server has 'mock'"),
    ({"service_tier": "flex"}, 8, 400, "service_tier: 'flex' is not served here"),
    ({"n": 3}, 8, 400, "n: 3 is not supported; expected 1"),
    ({"max_tokens": "many"}, 8, 400, "Invalid value for 'max_tokens'"),
    ({}, 131_072, 400, "This model's maximum context length is 131072 tokens"),
]


@pytest.mark.parametrize(("body", "max_tokens", "status", "words"), REFUSED, ids=[row[3] for row in REFUSED])
@given(cuts=CUTS)
@settings(deadline=None, max_examples=20)
def test_a_refusal_is_recorded_with_the_mocks_own_words(
    body: dict[str, Any], max_tokens: int, status: int, words: str, cuts: set[int]
) -> None:
    plan, request = asked(Tier(name="t", body=body), max_tokens=max_tokens)
    with pytest.raises(ApiError) as caught:
        served(plan, request)
    error = caught.value
    assert error.status == status
    response = as_http([wire_openai.error_body(error)], status=status, kind="application/json")
    record = recorded(request, received(response, cuts))
    assert (record.outcome, record.status) == ("http_error", status)
    assert record.detail.startswith(f"HTTP {status}: invalid_request_error: {words}")
    assert record.event_ns == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (413, "http_error"),
        (429, "rate_limited"),
        (500, "http_error"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_every_error_of_the_mocks_shape_becomes_the_outcome_of_its_status(
    status: int, outcome: str, kind: str
) -> None:
    _, request = asked(Tier(name="t"))
    body = wire_openai.error_body(ApiError(status, "no\nmore", code="c"))
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    record = recorded(request, received(as_http([body], status=status, kind=kind), set()))
    label = "invalid_request_error" if status < 500 else "server_error"
    assert (record.outcome, record.detail) == (outcome, f"HTTP {status}: {label}: no more")
