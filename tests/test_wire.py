"""The two ends of the wire agree: what the mock says it sent is what the client's record holds, in all APIs.

Requests are made by the client and read by the mock; answers are made by the mock, framed as HTTP by this
file, cut anywhere, and read by the client. No socket, no clock: a read's stamp is its number.
"""

import itertools
import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import reading, timeline, workload
from loadtest.exchange import Exchange
from loadtest.framing import ResponseFramer
from loadtest.plan import Api, Closed, Plan, Stage, Target, Tier, Workload
from loadtest.records import RequestRecord
from loadtest.request_bytes import RequestBuilder
from loadtest.wire import WIRES
from mockserver import config, speech, wire_anthropic, wire_chat, wire_completions, wire_responses
from mockserver.ask import Dialect, Placed, RefusedError, Usage, Voice
from mockserver.desk import Desk
from mockserver.wire_config import Wire

CONFIG = config.load("fast-tier")
REQUEST_ID = "0123456789abcdef01234567"

DIALECTS: dict[Api, Dialect] = {
    "openai": wire_chat.DIALECT,
    "completions": wire_completions.DIALECT,
    "responses": wire_responses.DIALECT,
    "anthropic": wire_anthropic.DIALECT,
}
REACHED_LIMIT: dict[Api, str] = {
    "openai": "length",
    "completions": "length",
    "responses": "max_output_tokens",
    "anthropic": "max_tokens",
}
MET_STOP: dict[Api, str] = {
    "openai": "stop",
    "completions": "stop",
    "responses": "completed",
    "anthropic": "stop_sequence",
}
APIS = st.sampled_from(sorted(DIALECTS))
CUTS = st.sets(st.integers(1, 20_000), max_size=40)
MOCKS = st.builds(
    Wire,
    role_first=st.booleans(),
    obfuscation=st.booleans(),
    running_usage=st.booleans(),
    reasoning_ratio=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    reasoning_field=st.sampled_from(["reasoning", "reasoning_content"]),
)
TIERS: dict[str, list[tuple[dict[str, Any], str | None]]] = {
    "anthropic": [({}, "standard"), ({"speed": "standard"}, "standard"), ({"speed": "fast"}, "fast")],
    "": [
        ({}, "default"),
        ({"service_tier": "auto"}, "default"),
        ({"service_tier": "priority"}, "priority"),
        ({"service_tier": "fast"}, "priority"),
    ],
}


class Conversation:
    """One request of a plan, as the client sends it, the mock places it and answers."""

    def __init__(
        self,
        api: Api = "openai",
        *,
        body: dict[str, Any] | None = None,
        prompt_tokens: int = 8,
        max_tokens: int = 8,
        mock: Wire | None = None,
        **work: Any,
    ) -> None:
        self.api, self.mock = api, mock or Wire()
        plan = Plan(
            name="p",
            tiers=(Tier(name="t", body=body or {}),),
            stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),),
            workload=Workload(prompt_tokens=(prompt_tokens,), output_tokens=max_tokens, **work),
        )
        self.target = Target(url="http://h:1", model=CONFIG.model_name, api=api)
        source = workload.open_source(plan)
        self.request = source.request(0, 0, index=0)
        builder = RequestBuilder(plan, self.target, key="k", run_id="r")
        head, _, self.body = builder.build(self.request, source.says(self.request)).partition(b"\r\n\r\n")
        lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
        self.headers = {name.lower(): value for name, _, value in lines}

    def placed(self) -> Placed:
        """The client's own bytes handed to the mock; raises RefusedError."""
        ask = DIALECTS[self.api].parse(self.body, self.headers, self.mock)
        return Desk(msgspec.structs.replace(CONFIG, wire=self.mock)).place(ask, 0)

    def voice(self, to: Placed) -> Voice:
        return DIALECTS[self.api].voice(
            to, wire=self.mock, request_id=REQUEST_ID, created_unix_s=1_800_000_000
        )

    def streamed(self, to: Placed, *, gathered: int = 1) -> tuple[list[bytes], list[bytes]]:
        """What the mock writes for a stream, in its order, and the writes that bring tokens."""
        voice, usage, tokens = self.voice(to), usage_of(to), to.answers[0].output_tokens
        before = [voice.greeting(), voice.opening(usage)]
        said = [voice.tokens(0, min(gathered, tokens - at)) for at in range(0, tokens, gathered)]
        said = [part for part in said if part]
        return [*before, *said, voice.choice_end(0), voice.closing(usage)], said

    def record(self, exchange: Exchange) -> RequestRecord:
        model = self.target.model
        return timeline.record(self.request, exchange, WIRES[self.api], model=model, scheduled_ns=0)


def usage_of(to: Placed) -> Usage:
    (answer,) = to.answers
    return Usage(
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        reasoning_tokens=answer.reasoning_tokens,
    )


def as_http(parts: list[bytes], *, status: int = 200, kind: str = "text/event-stream") -> bytes:
    """A response in chunked transfer coding, a chunk a part (RFC 9112, section 7.1)."""
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = [b"%x\r\n%b\r\n" % (len(part), part) for part in [*filter(None, parts), b""]]
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


def test_every_api_of_the_client_is_one_of_the_mock() -> None:
    assert set(get_args(Api)) == set(DIALECTS)


@given(
    api=APIS,
    mock=MOCKS,
    tier=st.integers(0, 3),
    prompt_tokens=st.integers(1, 300),
    max_tokens=st.integers(1, 40),
    gathered=st.integers(1, 3),
    cuts=CUTS,
)
@settings(deadline=None)
def test_a_stream_is_recorded_as_the_mock_means_it_wherever_it_is_cut(
    api: Api, mock: Wire, tier: int, prompt_tokens: int, max_tokens: int, gathered: int, cuts: set[int]
) -> None:
    tiers = TIERS.get(api, TIERS[""])
    body, echo = tiers[tier % len(tiers)]
    asked = Conversation(api, body=body, prompt_tokens=prompt_tokens, max_tokens=max_tokens, mock=mock)
    to = asked.placed()
    parts, _ = asked.streamed(to, gathered=gathered)
    exchange = received(as_http(parts), cuts)
    record = asked.record(exchange)
    assert (record.outcome, record.detail, record.status) == ("ok", "", 200)
    (answer,) = to.answers
    assert (record.prompt_tokens, record.output_tokens) == (answer.prompt_tokens, max_tokens)
    assert record.tokens_source == "usage"
    runs = {run.kind: run for run in speech.runs(answer)}
    assert reading.answer(exchange, WIRES[api]) == runs["text"].said
    thought = answer.reasoning_tokens
    assert sum(count for kind, count in record.event_kinds if kind == "reasoning") == -(-thought // gathered)
    assert [kind for kind, _ in record.event_kinds] == list(runs)
    if gathered == 1:
        assert len(record.event_ns) == max_tokens
        assert record.first_text_ns == record.event_ns[thought]
    assert (record.requested_tier, record.echoed_tier) == ("t", echo)
    assert record.finish_reason == REACHED_LIMIT[api]


@given(api=APIS, stop=st.text("aeiou", min_size=1, max_size=2), max_tokens=st.integers(1, 40))
@settings(deadline=None, max_examples=50)
def test_a_stop_sequence_that_was_met_is_not_in_the_answer(api: Api, stop: str, max_tokens: int) -> None:
    asked = Conversation(api, max_tokens=max_tokens, stop=(stop,))
    to = asked.placed()
    exchange = received(as_http(asked.streamed(to)[0]), set())
    record, (answer,) = asked.record(exchange), to.answers
    assert stop not in reading.answer(exchange, WIRES[api])
    assert (record.outcome, record.output_tokens) == ("ok", answer.output_tokens)
    assert record.finish_reason == (MET_STOP if answer.stop_sequence else REACHED_LIMIT)[api]


@given(api=APIS, max_tokens=st.integers(1, 12), cuts=CUTS)
@settings(deadline=None)
def test_each_token_is_stamped_with_the_read_that_brought_its_last_byte(
    api: Api, max_tokens: int, cuts: set[int]
) -> None:
    asked = Conversation(api, max_tokens=max_tokens)
    parts, said = asked.streamed(asked.placed())
    response = as_http(parts)
    record = asked.record(received(response, cuts))
    edges = sorted(cut for cut in cuts if cut < len(response))
    # An event ends with its blank line: the last byte of its part, wherever that lies in the response.
    ends = [response.index(part) + len(part) for part in said]
    assert record.event_ns == [sum(edge < end for edge in edges) for end in ends]
    assert record.coalesced_events == max_tokens - len(set(record.event_ns))


@given(api=APIS, mock=MOCKS, max_tokens=st.integers(1, 60), cuts=CUTS)
@settings(deadline=None)
def test_an_answer_that_was_not_streamed_says_the_same_at_its_end(
    api: Api, mock: Wire, max_tokens: int, cuts: set[int]
) -> None:
    asked = Conversation(api, max_tokens=max_tokens, mock=mock, stream=False)
    to = asked.placed()
    assert not to.ask.stream
    exchange = received(as_http([asked.voice(to).body(usage_of(to))], kind="application/json"), cuts)
    record = asked.record(exchange)
    assert (record.outcome, record.finish_reason) == ("ok", REACHED_LIMIT[api])
    assert record.echoed_tier == ("standard" if api == "anthropic" else "default")
    assert (record.streamed, record.event_ns, record.first_text_ns) == (False, [], None)
    assert (record.prompt_tokens, record.output_tokens) == (to.answers[0].prompt_tokens, max_tokens)
    assert reading.answer(exchange, WIRES[api]) == speech.runs(to.answers[0])[-1].said


@given(api=APIS, tokens=st.integers(1, 8), end=st.integers(1, 4000), cuts=CUTS)
@settings(deadline=None)
def test_a_stream_that_stops_short_is_truncated_and_keeps_the_tokens_that_came(
    api: Api, tokens: int, end: int, cuts: set[int]
) -> None:
    asked = Conversation(api, max_tokens=tokens)
    parts, said = asked.streamed(asked.placed())
    response = as_http(parts)
    begin = response.index(b"\r\n\r\n") + 4
    # What ends a stream well is in its last two writes.
    until = response.index(parts[-2])
    short = response[: begin + end % (until - begin)]
    record = asked.record(received(short, cuts))
    assert record.outcome == "truncated"
    assert len(record.event_ns) == sum(part in short for part in said)


REFUSED: list[tuple[dict[str, Any], int, int, str]] = [
    ({"service_tier": "flex"}, 8, 400, "service_tier: 'flex' is not served here"),
    ({"n": 300}, 8, 400, "Invalid value for 'n'"),
    ({"stop": 5}, 8, 400, "Invalid value for 'stop'"),
    ({}, 131_072, 400, "This model's maximum context length is 131072 tokens"),
]


@pytest.mark.parametrize(("body", "max_tokens", "status", "words"), REFUSED, ids=[row[3] for row in REFUSED])
@given(cuts=CUTS)
@settings(deadline=None, max_examples=20)
def test_a_refusal_is_recorded_with_the_mocks_own_words(
    body: dict[str, Any], max_tokens: int, status: int, words: str, cuts: set[int]
) -> None:
    asked = Conversation(body=body, max_tokens=max_tokens)
    with pytest.raises(RefusedError) as caught:
        asked.placed()
    assert caught.value.status == status
    told = wire_chat.DIALECT.refusal_body(caught.value, REQUEST_ID)
    response = as_http([told], status=status, kind="application/json")
    record = asked.record(received(response, cuts))
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
@pytest.mark.parametrize("api", sorted(DIALECTS))
def test_every_error_of_the_mocks_shape_becomes_the_outcome_of_its_status(
    status: int, outcome: str, kind: str, api: Api
) -> None:
    body = DIALECTS[api].refusal_body(RefusedError(status, "no\nmore", code="c"), REQUEST_ID)
    label = json.loads(body)["error"]["type"]
    record = Conversation(api).record(received(as_http([body], status=status, kind=kind), set()))
    assert (record.outcome, record.detail) == (outcome, f"HTTP {status}: {label}: no more")


@pytest.mark.parametrize("api", sorted(DIALECTS))
def test_an_error_in_a_stream_is_recorded_with_the_tokens_before_it(api: Api) -> None:
    asked = Conversation(api)
    to = asked.placed()
    voice = asked.voice(to)
    parts = [voice.greeting(), voice.opening(usage_of(to)), voice.tokens(0, 1), voice.tokens(0, 2)]
    parts.append(voice.error(RefusedError(500, "it broke", kind="server")))
    record = asked.record(received(as_http(parts), set()))
    assert (record.outcome, len(record.event_ns)) == ("stream_error", 2)
    assert "it broke" in record.detail
