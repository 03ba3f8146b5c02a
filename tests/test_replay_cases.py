"""Transcripts replayed byte for byte, over a real connection and cut anywhere; answers lie beside them."""

import itertools
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import derive, endpoint, stamps, timeline
from loadtest.clock import RunClock
from loadtest.exchange import Exchange
from loadtest.framing import ResponseFramer
from loadtest.plan import Api, Tier, Timeouts
from loadtest.records import RequestRecord
from loadtest.sse import EventReader
from loadtest.stamps import Stamps
from loadtest.transport import Transport
from loadtest.wire import WIRES
from loadtest.workload import Request
from tests.loadtest.certificates import Certificate, make_certificate

CASES = sorted((Path(__file__).parent / "data" / "cases").glob("*/expect.json"))
APIS: dict[str, Api] = {"openai_chat": "openai", "anthropic_messages": "anthropic"}
OUTCOMES = {
    None: "ok",
    "in_stream_error": "stream_error",
    "truncated": "truncated",
    "incomplete": "truncated",
    "rate_limited": "rate_limited",
    "no_output": "no_output",
    "http_error": "http_error",
}
REQUEST = Request(index=7, stage="s", warmup=False, tier=Tier(name="fast"), prompt_tokens=64, max_tokens=16)


@dataclass(frozen=True)
class Case:
    name: str
    api: Api
    response: bytes
    slices: list[tuple[int, int, float]]
    """(first byte, last byte + 1, ms since the request at which it is sent)."""
    expect: dict[str, Any]


def load(path: Path) -> Case:
    document = json.loads(path.read_text("utf-8"))
    response = (path.parent / "response.http").read_bytes()
    due_ms, slices = 0.0, []
    for part in json.loads((path.parent / "timing.json").read_text("utf-8"))["slices"]:
        due_ms += part["delay_ms"]
        slices.append((part["offset"], part["offset"] + part["length"], due_ms))
    return Case(path.parent.name, APIS[document["api"]], response, slices, document["expect"])


@pytest.fixture(params=[load(path) for path in CASES], ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def framed(pieces: list[tuple[int, bytes]]) -> Exchange:
    """Frame a response whose bytes come in ``pieces`` with their stamps; the connection then closes."""
    exchange = Exchange(stamp_source="virtual", sent_ns=0)
    framer = ResponseFramer(exchange)
    for stamp_ns, piece in pieces:
        if not framer.done:
            framer.receive(piece, stamp_ns)
    framer.closed("the server closed the connection")
    return exchange


def recorded(case: Case, exchange: Exchange) -> RequestRecord:
    return timeline.record(REQUEST, exchange, WIRES[case.api], model="m", scheduled_ns=0)


def as_sent(case: Case) -> list[tuple[int, bytes]]:
    return [(round(ms * 1e6), case.response[first:end]) for first, end, ms in case.slices]


def texts(case: Case, exchange: Exchange) -> dict[str, str]:
    """Text, reasoning and tool arguments of a stream, put together again."""
    found = {"text": "", "reasoning": "", "tool_args": ""}
    reader = EventReader()
    for _, piece in exchange.pieces:
        for name, data in reader.receive(piece):
            delta = WIRES[case.api].read_event(name, data)
            found["text"] += delta.text
            found["reasoning"] += delta.reasoning
            found["tool_args"] += delta.tool
    return found


def check_all_but_times(case: Case, exchange: Exchange) -> None:
    """Everything that a transcript says except when."""
    expect, record = case.expect, recorded(case, exchange)
    assert record.outcome == OUTCOMES[expect["error_class"]]
    assert (record.detail == "") == (record.outcome == "ok")
    assert record.status == expect.get("http_status", 200)
    assert len(record.event_ns) == expect["content_events"]
    assert sum(count for _, count in record.event_kinds) == expect["content_events"]
    if "output_tokens" in expect:
        told = record.output_tokens if record.tokens_source == "usage" else None
        assert told == expect["output_tokens"]
    if "finish_reason" in expect:
        assert record.finish_reason == expect["finish_reason"]
    if "served_tier" in expect:
        assert record.echoed_tier == expect["served_tier"]
        assert record.requested_tier == "fast"
    if expect["error_class"] is None:
        found = texts(case, exchange)
        assert {key: found[key] for key in found if key in expect} == {
            key: expect[key] for key in found if key in expect
        }
    if expect["error_class"] == "rate_limited":
        assert record.retry_after_s == 2


def test_every_case_is_there() -> None:
    assert [path.parent.name for path in CASES] == [
        "01_role_only_first", "02_reasoning_before_text", "03_usage_chunk_empty_choices",
        "04_many_tokens_per_chunk", "05_no_space_after_colon", "06_crlf_and_split_crlf",
        "07_comments_keepalive_fields", "08_all_events_one_segment", "09_split_event_utf8_chunkheader",
        "11_error_object_in_200", "12_anthropic_overloaded_midstream", "13_cut_mid_event", "15_only_done",
        "16_anthropic_thinking_cumulative", "17_tool_call_only", "19_single_token_no_done",
        "21_http_429_retry_after", "23_tier_downgraded",
    ]  # fmt: skip


def test_a_transcript_says_what_its_expectation_says(case: Case) -> None:
    check_all_but_times(case, framed(as_sent(case)))


def test_events_and_comments_are_counted_as_the_standard_dispatches_them(case: Case) -> None:
    reader = EventReader()
    exchange = framed([(0, case.response)])
    events = [event for _, piece in exchange.pieces for event in reader.receive(piece)]
    assert len(events) == case.expect["sse_events"]
    assert reader.comments == case.expect.get("comment_lines", reader.comments)


def test_times_are_those_at_which_the_bytes_were_sent(case: Case) -> None:
    expect, record = case.expect, recorded(case, framed(as_sent(case)))
    if "first_token_ms" in expect:
        ttft = derive.ttft_s(record)
        assert (None if ttft is None else round(ttft * 1e3, 6)) == expect["first_token_ms"]
    if "last_token_ms" in expect:
        assert record.event_ns[-1] == expect["last_token_ms"] * 1_000_000
    if "tpot_ms" in expect:
        tpot = derive.tpot_s(record)
        assert (None if tpot is None else round(tpot * 1e3, 6)) == expect["tpot_ms"]
    if expect.get("first_text_event_index", 0) is None:
        assert record.first_text_ns is None


@pytest.mark.parametrize("case", [load(path) for path in CASES], ids=lambda case: case.name)
@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_no_cut_of_the_bytes_changes_anything_but_times(case: Case, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(case.response) - 1), max_size=60))
    edges = [0, *sorted(cuts), len(case.response)]
    pieces = [(k, case.response[a:b]) for k, (a, b) in enumerate(itertools.pairwise(edges))]
    check_all_but_times(case, framed(pieces))


def test_byte_by_byte_is_the_same_as_whole(case: Case) -> None:
    whole = recorded(case, framed([(0, case.response)]))
    single = recorded(case, framed([(0, case.response[k : k + 1]) for k in range(len(case.response))]))
    assert msgspec.structs.replace(single, coalesced_events=whole.coalesced_events) == whole
    assert single.coalesced_events == 0


@pytest.fixture(scope="module")
def stamping() -> Iterator[Stamps]:
    found = stamps.probe()
    yield found
    found.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost,IP:127.0.0.1")


def fetch(url: str, clock: RunClock, stamping: Stamps, context: ssl.SSLContext | None = None) -> Exchange:
    transport = Transport(endpoint.parse(url, "/x"), Timeouts(), clock, stamping, tls=context)
    exchange = transport.call(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}").run()
    transport.close()
    return exchange


def test_over_a_real_connection_the_same_is_recorded(case: Case, stamping: Stamps) -> None:
    with Server(case) as server:
        exchange = fetch(server.url, RunClock(), stamping)
    check_all_but_times(case, exchange)
    assert exchange.sent_ns is not None
    assert exchange.stamp_source == stamping.source


def test_over_tls_the_same_is_recorded_with_the_same_kind_of_stamps(
    case: Case, stamping: Stamps, certificate: Certificate
) -> None:
    with Server(case, context=certificate.serving()) as server:
        url = server.url.replace("http://", "https://")
        exchange = fetch(url, RunClock(), stamping, certificate.trusting())
    check_all_but_times(case, exchange)
    assert exchange.stamp_source == stamping.source


def test_a_reset_in_the_middle_is_truncated_and_keeps_what_came(stamping: Stamps) -> None:
    case = load(next(path for path in CASES if path.parent.name == "13_cut_mid_event"))
    with Server(case, reset=True) as server:
        exchange = fetch(server.url, RunClock(), stamping)
    record = recorded(case, exchange)
    assert record.outcome == "truncated"
    # A reset may take back what the kernel had not handed over yet (RFC 9293, section 3.10.7.4).
    assert len(record.event_ns) <= case.expect["content_events"]


def test_no_stamp_is_earlier_than_the_sending_of_its_bytes(case: Case, stamping: Stamps) -> None:
    clock = RunClock()
    with Server(case) as server:
        exchange = fetch(server.url, clock, stamping)
    virtual = [(sent_ns - clock.zero_ns, piece) for sent_ns, piece in server.sent]
    earliest, seen = recorded(case, framed(virtual)), recorded(case, exchange)
    assert len(earliest.event_ns) == len(seen.event_ns)
    for sent_ns, seen_ns in zip(earliest.event_ns, seen.event_ns, strict=True):
        assert seen_ns >= sent_ns
    assert seen.event_ns == sorted(seen.event_ns)


class Server:
    """Writes one case to a client, on its schedule; ``sent`` holds (instant before sending, bytes)."""

    def __init__(self, case: Case, *, context: ssl.SSLContext | None = None, reset: bool = False) -> None:
        self.case = case
        self._context, self._reset = context, reset
        self.sent: list[tuple[int, bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._thread.join(timeout=10)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        with connection:
            received = b""
            while not received.endswith(b"\r\n\r\n{}"):
                received += connection.recv(65536)
            start_s = time.monotonic()
            for first, end, due_ms in self.case.slices:
                time.sleep(max(0.0, start_s + due_ms / 1e3 - time.monotonic()))
                piece = self.case.response[first:end]
                self.sent.append((time.monotonic_ns(), piece))
                connection.sendall(piece)
            if self._reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
