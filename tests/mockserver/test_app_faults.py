"""Faults as a client meets them, streamed and not, in every API."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from mockserver import config
from mockserver.config import ServerConfig
from mockserver.faults import struck
from mockserver.wire_config import Fault, FaultKind
from tests.mockserver import raw_http
from tests.mockserver.raw_http import Exchange
from tests.mockserver.served import served
from tests.mockserver.test_app import ANTHROPIC, APIS, CHAT, ask, ask_of

PLAIN = config.load("fast-tier")
HEADERS = "".join(f"{name}: {value}\r\n" for name, value in ANTHROPIC.items())
TOKENS = 8


def faulty(*profile: Fault) -> ServerConfig:
    """The fast tier alone, without other users."""
    tier = msgspec.structs.replace(PLAIN.tiers[1], target_batch=0)
    return msgspec.structs.replace(PLAIN, tiers=(tier,), faults=profile, ingest_s=0.0)


def asked_once(fault: FaultKind | None, *, streamed: bool = True, path: str = CHAT, **keys: Any) -> Exchange:
    """One answer of eight tokens from a server with one fault."""
    profile = () if fault is None else (Fault(kind=fault, **keys),)
    with served(faulty(*profile)) as url:
        return raw_http.post(
            url,
            path,
            ask_of(path, stream=streamed, max_tokens=TOKENS, **_usage(path, streamed)),
            more=HEADERS,
        )


def _usage(path: str, streamed: bool) -> dict[str, Any]:
    return {"stream_options": {"include_usage": True}} if streamed and path.endswith("completions") else {}


def words(exchange: Exchange) -> list[str]:
    """Content of chat events that bring a token."""
    found = []
    for event in exchange.events:
        if event.startswith(b'{"id"'):
            for choice in json.loads(event)["choices"]:
                found += [choice["delta"]["content"]] if choice["delta"].get("content") else []
    return found


@pytest.mark.parametrize("path", APIS)
def test_an_http_error_has_its_status_and_the_shape_of_the_api(path: str) -> None:
    found = asked_once("http_error", path=path, status=503)
    assert (found.status, found.ended) == (503, "whole")
    told = json.loads(found.body)
    assert "error" in told
    assert (told.get("type") == "error") is (path == "/v1/messages")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_delay_comes_before_everything(streamed: bool) -> None:
    with served(faulty(Fault(kind="delay", wait_s=0.2))) as url:
        found = raw_http.post(url, CHAT, ask(stream=streamed, max_tokens=2))
        undelayed = raw_http.post(url, "/v1/completions", {"model": "mock", "prompt": 3})
    assert undelayed.status == 400  # what is refused is not held
    first_s, last_s = found.read_s[0][0], found.read_s[-1][0]
    assert found.status == 200
    assert last_s - first_s < 0.2  # nothing of it lay between the tokens
    assert found.ended == "whole"


@pytest.mark.parametrize("path", APIS)
def test_an_error_inside_a_stream_comes_after_so_many_tokens_and_ends_it_well(path: str) -> None:
    found = asked_once("stream_error", path=path, after_tokens=3, status=529)
    assert (found.status, found.ended) == (200, "whole")
    assert b"error" in found.body.splitlines()[-2]
    if path == CHAT:
        assert len(words(found)) == 3
        assert b'"usage":{' not in found.body


def test_a_cut_is_an_orderly_close_in_the_middle_of_the_body() -> None:
    found = asked_once("cut")
    assert (found.status, found.ended, len(words(found))) == (200, "cut", 4)
    whole = asked_once("cut", streamed=False)
    assert (whole.status, whole.ended) == (200, "cut")
    assert 0 < len(whole.body) < int(whole.headers["content-length"])


@pytest.mark.parametrize("streamed", [True, False])
def test_a_reset_is_one(streamed: bool) -> None:
    assert asked_once("reset", streamed=streamed, after_tokens=0).ended == "reset"


def test_a_fault_beyond_the_end_strikes_before_the_last_token() -> None:
    assert len(words(asked_once("cut", after_tokens=1000))) == TOKENS - 1
    assert len(words(asked_once("cut", after_tokens=0))) == 0


@pytest.mark.parametrize("streamed", [True, False])
def test_a_stall_keeps_back_what_falls_due_and_then_everything_comes(streamed: bool) -> None:
    found, plain = (
        asked_once("stall", wait_s=0.25, streamed=streamed),
        asked_once(None, streamed=streamed),
    )
    assert found.ended == "whole"
    assert found.said == plain.said
    instants = [at_s for at_s, _ in found.read_s]
    gaps = [later - earlier for earlier, later in pairwise(instants)]
    assert max(gaps) > 0.2
    if streamed:  # the engine went on meanwhile: what it made is there at once
        after = found.read_s[gaps.index(max(gaps)) + 1][1]
        assert after == found.read_s[-1][1]


def test_garbage_is_one_event_more_that_is_no_json() -> None:
    found, plain = asked_once("garbage"), asked_once(None)
    assert words(found) == words(plain)
    broken = [event for event in found.events if not _is_json(event)]
    assert len(broken) == 2  # and [DONE]
    whole = asked_once("garbage", streamed=False)
    assert whole.ended == "whole"
    assert not _is_json(whole.body)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("streamed", [True, False])
def test_drops_and_compression_change_no_byte_of_what_is_said(streamed: bool) -> None:
    plain = asked_once(None, streamed=streamed)
    dripped = asked_once("drip", streamed=streamed, wait_s=0.0001)
    squeezed = asked_once("gzip", streamed=streamed)
    assert dripped.said == squeezed.said == plain.said
    assert squeezed.headers["content-encoding"] == "gzip"
    if streamed:
        assert {len(chunk) for chunk in dripped.chunks} == {1}


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("streamed", [True, False])
def test_usage_can_be_left_out_and_nothing_else_with_it(path: str, streamed: bool) -> None:
    found, plain = (
        asked_once("no_usage", path=path, streamed=streamed),
        asked_once(None, path=path, streamed=streamed),
    )
    assert found.ended == "whole"
    assert b'"usage":{' in plain.body
    last = found.body.rpartition(b"message_delta")[2] if path == "/v1/messages" else found.body
    assert b'"usage":{' not in last
    if not streamed:
        assert {*json.loads(plain.body)} - {*json.loads(found.body)} == {"usage"}


@pytest.mark.parametrize("path", APIS)
def test_a_stream_without_its_end_is_whole_for_http_alone(path: str) -> None:
    found = asked_once("no_end", path=path)
    assert found.ended == "whole"
    for mark in (
        b"[DONE]",
        b'"finish_reason":"',
        b"message_stop",
        b"response.completed",
        b"response.incomplete",
    ):
        assert mark not in found.body


def test_a_run_under_faults_is_reproduced_from_its_seed() -> None:
    kinds: tuple[FaultKind, ...] = ("http_error", "cut", "garbage", "reset", "no_usage", "no_end", "gzip")
    profile = tuple(Fault(kind=kind, ratio=0.3, after_tokens=1) for kind in kinds)

    def run() -> list[tuple[Exchange, bytes]]:
        with served(faulty(*profile)) as url:
            found = [
                raw_http.post(url, CHAT, ask(number % 7 + 1, stream=bool(number % 3), max_tokens=2))
                for number in range(40)
            ]
        # RST takes along what was not read
        return [(one, b"" if one.ended == "reset" else one.said) for one in found]

    first, second = run(), run()
    assert [body for _, body in first] == [body for _, body in second]
    for number, (one, _) in enumerate(first):  # and as anybody can work out beforehand
        due = struck(profile, seed=PLAIN.seed, number=number, tier="fast", arrived_ns=0)
        assert (one.status == 500) is (due.http_error is not None) or one.ended == "reset"
        if due.http_error is None:
            kind = due.breaks.kind if due.breaks is not None else "whole"
            assert one.ended == kind
            assert ("content-encoding" in one.headers) is due.gzip or one.ended == "reset"
    assert len({one.ended for one, _ in first}) == 3


@pytest.mark.parametrize("kind", ["stream_error", "cut", "reset"])
def test_what_breaks_off_frees_its_place_at_once_however_slowly_it_drips(kind: FaultKind) -> None:
    profile = (Fault(kind=kind, after_tokens=2), Fault(kind="drip", wait_s=0.5))
    with served(faulty(*profile)) as url, raw_http.connect(url) as sock:
        sock.sendall(raw_http.request(CHAT, json.dumps(ask(stream=True, max_tokens=10_000)).encode()))
        for _ in range(100):
            told = raw_http.metrics(url)
            if told["vllm:generation_tokens_total"] > 2 and told["vllm:num_requests_running"] == 0:
                break
        assert 2 < told["vllm:generation_tokens_total"] < 100
        assert told["vllm:num_requests_running"] == 0
