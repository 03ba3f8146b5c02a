"""From stamped pieces to a record: outcomes, tokens, and what must never happen to damage."""

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import derive, timeline
from loadtest.exchange import Ending, Exchange
from loadtest.plan import Tier
from loadtest.records import OUTCOMES, RequestRecord, encode_line
from loadtest.wire import WIRES
from loadtest.workload import Request

REQUEST = Request(index=3, stage="s", warmup=True, tier=Tier(name="t"), prompt_tokens=9, max_tokens=5)
MS = 1_000_000


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def text(word: str = "a", **more: Any) -> bytes:
    return event({"choices": [{"delta": {"content": word}}], **more})


STOP = event({"choices": [{"delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"
GOOD = [(10 * MS, text()), (20 * MS, text()), (30 * MS, STOP + DONE)]


def exchange(pieces: list[tuple[int, bytes]], ending: Ending = "complete", **more: Any) -> Exchange:
    given_headers = {"content-type": "text/event-stream"} | more.pop("headers", {})
    return Exchange(
        stamp_source="kernel",
        ending=ending,
        sent_ns=0,
        ended_ns=99 * MS,
        **{"status": 200, "headers": given_headers, "pieces": pieces, "detail": "why"} | more,
    )


def record(seen: Exchange, secret: str = "") -> RequestRecord:
    return timeline.record(REQUEST, seen, WIRES["openai"], model="m", scheduled_ns=-5, secret=secret)


def test_a_good_stream_becomes_a_record_of_what_was_asked_and_seen() -> None:
    made = record(exchange(GOOD, headers={"x-request-id": "r", "x-ratelimit-remaining-tokens": "5"}))
    assert (made.index, made.stage, made.requested_tier, made.warmup) == (3, "s", "t", True)
    assert (made.prompt_class_tokens, made.max_tokens, made.model) == (9, 5, "m")
    assert (made.scheduled_ns, made.sent_ns, made.ended_ns) == (-5, 0, 99 * MS)
    assert made.event_ns == [10 * MS, 20 * MS]
    assert (made.outcome, made.detail, made.finish_reason) == ("ok", "", "stop")
    assert (made.request_id, made.rate_limit_headers) == ("r", {"x-ratelimit-remaining-tokens": "5"})


@pytest.mark.parametrize(
    ("seen", "outcome", "detail"),
    [
        (exchange(GOOD), "ok", ""),
        (exchange(GOOD, "cancelled"), "cancelled", "why"),
        (exchange([], "unconnected", status=None), "connect_error", "why"),
        (exchange([], "unanswered", status=None), "connect_error", "why"),
        (exchange([(1, b'{"error":{"message":"slow"}}')], status=429), "rate_limited", "HTTP 429: slow"),
        (exchange([], status=529), "overloaded", "HTTP 529: no message"),
        (exchange([], status=503), "overloaded", "HTTP 503: no message"),
        (exchange([(1, b"<b>no</b>\n")], status=404), "http_error", "HTTP 404: <b>no</b>"),
        (exchange([(1, b'{"detail":"bad"}')], "cut", status=400), "http_error", "HTTP 400: bad"),
        (exchange([], "timeout", status=500), "http_error", "HTTP 500: no message"),
        (exchange([], status=302, headers={"location": "/x"}), "http_error", "HTTP 302: redirect to /x"),
        (exchange(GOOD, "timeout"), "timeout", "why"),
        (exchange(GOOD, "malformed"), "stream_error", "why"),
        (exchange(GOOD, "too_large"), "stream_error", "why"),
        (exchange([(1, text()), (2, event({"error": "gone"})), (3, STOP)]), "stream_error", "gone"),
        (exchange([(1, text()), (2, b"data: {]\n\n"), (3, STOP)]), "stream_error", "unreadable event"),
        (exchange(GOOD, "cut"), "truncated", "why"),
        (exchange(GOOD[:2]), "truncated", "without a finish reason"),
        (exchange([]), "truncated", "without a finish reason"),
        (exchange([(1, STOP)]), "no_output", "no token"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_row_that_holds_is_the_outcome(seen: Exchange, outcome: str, detail: str) -> None:
    made = record(seen)
    assert made.outcome == outcome
    assert made.detail.startswith(detail) if outcome == "http_error" else detail in made.detail


ENDINGS: list[Ending] = [
    "complete", "cut", "unanswered", "unconnected", "timeout", "malformed", "too_large", "cancelled",
]  # fmt: skip
PIECES = st.lists(
    st.sampled_from([text(), STOP, DONE, event({"error": "x"}), b"data: {\n\n", b": c\n\n", b"data: "])
    | st.binary(max_size=30),
    max_size=8,
)


@given(
    pieces=PIECES,
    ending=st.sampled_from(ENDINGS),
    status=st.sampled_from([None, 101, 200, 204, 302, 400, 429, 503, 529]),
    content_type=st.sampled_from(["text/event-stream", "application/json", "text/plain", ""]),
)
def test_damage_is_never_a_success(
    pieces: list[bytes], ending: Ending, status: int | None, content_type: str
) -> None:
    stamped = [(k * MS, piece) for k, piece in enumerate(pieces)]
    made = record(exchange(stamped, ending, status=status, headers={"content-type": content_type}))
    assert made.outcome in OUTCOMES
    assert (made.detail == "") == (made.outcome == "ok")
    assert "\n" not in made.detail
    assert made.event_ns == sorted(made.event_ns)
    assert sum(count for _, count in made.event_kinds) == len(made.event_ns)
    if made.outcome == "ok":
        whole = b"".join(pieces)
        assert ending == "complete"
        assert made.event_ns
        assert not made.detail
        assert b'"finish_reason": "stop"' in whole or b"[DONE]" in whole
        assert text()[6:-2] in whole
    assert msgspec.json.decode(encode_line(made), type=RequestRecord) == made


@given(st.data())
def test_cutting_a_good_stream_at_any_byte_is_a_success_only_past_its_terminal_event(
    data: st.DataObject,
) -> None:
    whole = b"".join(piece for _, piece in GOOD)
    end = data.draw(st.integers(0, len(whole)))
    made = record(exchange([(1, whole[:end])]))
    assert made.outcome == ("ok" if end >= whole.index(DONE) else "truncated")


@pytest.mark.parametrize("bad", [event({"error": "gone"}), b"data: {]\n\n"])
def test_nothing_is_counted_after_an_error_or_damage_however_the_bytes_are_cut(bad: bytes) -> None:
    parts = [text(), bad, text(), STOP]
    apart = record(exchange([(9, part) for part in parts]))
    together = record(exchange([(9, b"".join(parts))]))
    assert apart == together
    assert apart.event_ns == [9]
    assert apart.finish_reason is None


def test_events_of_one_read_share_its_stamp_and_are_counted_as_coalesced() -> None:
    made = record(exchange([(5, text() + text() + text()), (6, text()), (7, STOP + DONE)]))
    assert made.event_ns == [5, 5, 5, 6]
    assert made.coalesced_events == 2


def test_an_empty_event_beside_a_token_does_not_coalesce() -> None:
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    assert record(exchange([(5, role + text()), (6, STOP)])).coalesced_events == 0


def test_kinds_are_run_lengths_and_text_has_its_own_first_instant() -> None:
    think = event({"choices": [{"delta": {"reasoning": "hm"}}]})
    made = record(exchange([(1, think), (2, think), (3, text()), (4, text()), (5, think), (6, STOP)]))
    assert made.event_kinds == [("reasoning", 2), ("text", 2), ("reasoning", 1)]
    assert made.first_text_ns == 3


def test_tokens_of_each_event_are_kept_where_every_event_tells_the_total() -> None:
    pieces = [(k, text(usage={"completion_tokens": total})) for k, total in enumerate([1, 4, 4, 6])]
    made = record(exchange([*pieces, (9, STOP)]))
    assert made.event_tokens == [1, 3, 0, 2]
    assert (made.output_tokens, made.tokens_source) == (6, "usage")


@pytest.mark.parametrize("totals", [[1, None, 3], [3, 2]])
def test_tokens_of_each_event_are_unknown_where_one_is_silent_or_totals_fall(
    totals: list[int | None],
) -> None:
    pieces = [
        (k, text(usage=None if total is None else {"completion_tokens": total}))
        for k, total in enumerate(totals)
    ]
    assert record(exchange([*pieces, (9, STOP)])).event_tokens is None


def test_a_request_of_a_conversation_keeps_its_place() -> None:
    asked = dataclasses.replace(REQUEST, session="talk-7", turn=2)
    made = timeline.record(asked, exchange(GOOD), WIRES["openai"], model="m", scheduled_ns=0)
    assert (made.session, made.turn) == ("talk-7", 2)
    assert (record(exchange(GOOD)).session, record(exchange(GOOD)).turn) == (None, 0)


def test_without_usage_the_count_of_events_is_marked_as_a_stand_in() -> None:
    made = record(exchange(GOOD))
    assert (made.output_tokens, made.tokens_source) == (2, "events")
    assert record(exchange([(1, STOP)])).tokens_source is None


def test_an_answer_that_was_not_streamed_has_an_end_and_no_instant_of_a_token() -> None:
    document = {
        "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 7},
    }
    data = json.dumps(document).encode()
    made = record(exchange([(4, data[:10]), (8, data[10:])], headers={"content-type": "application/json"}))
    assert (made.outcome, made.streamed, made.output_tokens) == ("ok", False, 7)
    assert (made.event_ns, made.event_kinds, made.event_tokens, made.first_text_ns) == ([], [], None, None)
    assert derive.e2e_s(made) == 0.099
    assert derive.ttft_s(made) is derive.first_text_s(made) is derive.tpot_s(made) is None
    assert record(exchange(GOOD)).streamed


def test_without_usage_the_tokens_of_an_answer_that_was_not_streamed_are_unknown() -> None:
    whole = json.dumps({"choices": [{"message": {"content": "hello"}}]}).encode()
    made = record(exchange([(4, whole)], headers={"content-type": "application/json"}))
    assert (made.outcome, made.output_tokens, made.tokens_source) == ("ok", None, None)


@pytest.mark.parametrize("content_type", ["text/plain", ""])
def test_a_server_that_names_no_known_type_is_read_by_its_first_character(content_type: str) -> None:
    headers = {"content-type": content_type}
    assert record(exchange(GOOD, headers=headers)).outcome == "ok"
    whole = json.dumps({"choices": [{"message": {"content": "x"}}]}).encode()
    assert record(exchange([(1, b" \n"), (2, whole)], headers=headers)).outcome == "ok"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "rubbish"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_servers_own_clock(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert record(exchange([], status=429, headers=headers)).retry_after_s == seconds


@pytest.mark.parametrize("padding", range(280, 300, 3))
def test_a_key_that_a_server_echoes_is_blotted_out_even_where_the_line_is_cut(padding: int) -> None:
    message = "x" * padding + " sk-secret-key is not valid"
    seen = exchange([(1, json.dumps({"error": {"message": message}}).encode())], status=401)
    detail = record(seen, secret="sk-secret-key").detail
    assert len(detail) <= 300
    assert "sk-s" not in detail


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "document", [b'{"data":%s}', b'{"choices":%s}', b'{"error":%s}', b'{"usage":%s}', b"%s"]
)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_nested_by_the_thousand_is_damage_and_no_crash(
    document: bytes, kind: str, status: int
) -> None:
    body = document % DEEP
    pieces = [(1, b"data: " + body + b"\n\n" if kind == "text/event-stream" else body)]
    made = record(exchange(pieces, status=status, headers={"content-type": kind}))
    assert made.outcome in ({"http_error"} if status == 500 else {"stream_error", "truncated"})
    assert 0 < len(made.detail) <= 300


@pytest.mark.parametrize("status", [200, 500])
def test_what_a_server_says_cannot_steer_a_terminal(status: int) -> None:
    said = event({"error": {"type": "x", "message": "\x1b[2J\x1b]0;title\x07 red\x9b31m\r\n\x00 end"}})
    made = record(exchange([(1, said if status == 200 else said.removeprefix(b"data: "))], status=status))
    assert made.detail.isprintable()
    assert "red" in made.detail
    assert made.detail.endswith("end")


def test_words_of_a_server_that_become_labels_are_short_and_in_one_line() -> None:
    said = "x" * 100_000
    made = record(exchange([(1, text(service_tier=said)), (2, STOP)]))
    assert (made.outcome, made.echoed_tier) == ("ok", "x" * 128)
    assert record(exchange([(1, text(service_tier="a\nb\x1b")), (2, STOP)])).echoed_tier == "a b\ufffd"


def test_a_content_type_is_known_whatever_its_case() -> None:
    headers = {"content-type": "Text/Event-Stream; charset=utf-8"}
    assert record(exchange(GOOD, headers=headers)).outcome == "ok"
    whole = json.dumps({"choices": [{"message": {"content": "x"}}]}).encode()
    assert record(exchange([(1, whole)], headers={"content-type": "Application/JSON"})).outcome == "ok"


def test_a_web_page_is_called_one() -> None:
    page = [(1, b"<html>\n<title>Welcome to nginx</title></html>")]
    made = record(exchange(page, headers={"content-type": "text/html; charset=utf-8"}))
    assert made.outcome == "truncated"
    assert made.detail == "a web page came, no stream: <html> <title>Welcome to nginx</title></html>"


KEY = "sk-Sekret/7+"


@pytest.mark.parametrize(
    "seen",
    [
        exchange(GOOD, headers={"x-request-id": f"for {KEY}", "x-ratelimit-key": KEY}),
        exchange(GOOD, headers={f"x-ratelimit-{KEY}".lower(): "1"}),
        exchange(
            [(1, text(service_tier=KEY)), (2, event({"choices": [{"delta": {}, "finish_reason": KEY}]}))]
        ),
        exchange([(1, text()), (2, event({"error": {"message": f"no {KEY}", "type": KEY}}))]),
        exchange([(1, text()), (2, b"data: {" + KEY.encode() + b"\n\n")]),
        exchange([(1, b'{"error":{"message":"' + KEY.encode() + b'"}}')], status=401),
        exchange([(1, KEY.encode())], status=500),
        exchange([], status=302, headers={"location": f"https://x/?key={KEY}"}),
        exchange([], status=302, headers={"location": "https://x/?key=sk-Sekret%2F7%2B"}),
        exchange([(1, b"x" * 170 + KEY.encode())], headers={"content-type": "text/html"}),
        exchange([(1, b"x" * 262 + KEY.encode())], headers={"content-type": "text/html"}),
        exchange([], "malformed", detail=f"not HTTP: {KEY}"),
    ],
    ids=str.split("headers names tier stream_error damage body text location quoted page cut malformed"),
)
def test_a_key_that_a_server_echoes_anywhere_is_kept_nowhere(seen: Exchange) -> None:
    kept = repr(record(seen, secret=KEY)).lower()
    assert "sekret" not in kept
