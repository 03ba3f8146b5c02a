"""What a profile says of streams, limits and truth, seen from a client's side of a real server."""

import json
import os
import time
from typing import Any

import msgspec
import pytest

from mockserver import config, connection
from mockserver.config import ServerConfig
from mockserver.tier_config import PrefixCache, RateLimits, Speculation
from mockserver.timer import Timer
from mockserver.wire_config import Wire
from tests.mockserver import raw_http
from tests.mockserver.raw_http import Exchange
from tests.mockserver.served import served
from tests.mockserver.test_app import ANTHROPIC, APIS, CHAT, ask, ask_of

PLAIN = config.load("fast-tier")
HEADERS = "".join(f"{name}: {value}\r\n" for name, value in ANTHROPIC.items())


def profile(*, wire: Wire = PLAIN.wire, **tier: Any) -> ServerConfig:
    """The fast tier alone, without other users, and what differs in it."""
    alone = msgspec.structs.replace(PLAIN.tiers[1], target_batch=0, **tier)
    return msgspec.structs.replace(PLAIN, tiers=(alone,), ingest_s=0.0, wire=wire)


def deltas(exchange: Exchange) -> list[str]:
    """Content of each chat event that has any."""
    found = []
    for event in exchange.events:
        for choice in json.loads(event)["choices"] if event.startswith(b"{") else ():
            found += [choice["delta"]["content"]] if choice["delta"].get("content") else []
    return found


@pytest.mark.parametrize(("per_event", "counts"), [(1, [1] * 11), (4, [4, 4, 3]), (100, [11])])
def test_tokens_are_gathered_and_the_rest_comes_at_the_end(per_event: int, counts: list[int]) -> None:
    with served(profile(wire=Wire(tokens_per_event=per_event))) as url:
        found = raw_http.post(url, CHAT, ask(max_tokens=11, stream=True))
    assert [len(delta.split()) for delta in deltas(found)] == counts
    assert found.ended == "whole"


@pytest.mark.parametrize("path", APIS)
def test_pieces_of_so_many_bytes_say_the_same(path: str) -> None:
    asked = ask_of(path, max_tokens=4, stream=True)
    told = []
    for split_bytes in (None, 7):
        with served(profile(wire=Wire(split_bytes=split_bytes))) as url:
            told.append(raw_http.post(url, path, asked, more=HEADERS))
    plain, split = told
    assert max(len(chunk) for chunk in split.chunks) == 7
    assert split.said == plain.said


def test_speculation_brings_several_tokens_in_one_event_and_smoothed_one_by_one() -> None:
    draft = Speculation(draft_tokens=3, acceptance_ratio=0.9)
    said = []
    for smoothed in (False, True):
        with served(profile(speculation=msgspec.structs.replace(draft, smoothed=smoothed))) as url:
            found = raw_http.post(url, CHAT, ask(max_tokens=40, stream=True))
        assert found.ended == "whole"
        assert found.events[-1] == b"[DONE]"
        said.append(deltas(found))
    together, apart = said
    assert "".join(together) == "".join(apart)
    assert max(len(delta.split()) for delta in together) == 4
    assert len(together) < 30
    assert len(apart) == 40


def test_only_anthropic_pings_and_it_goes_on_while_nothing_else_comes() -> None:
    with served(profile(wire=Wire(ping_s=0.04), batching="static", batch_wait_s=0.25)) as url:
        found = raw_http.post(url, "/v1/messages", ask(max_tokens=2, stream=True), more=HEADERS)
        chat = raw_http.post(url, CHAT, ask(max_tokens=2, stream=True))
    assert found.body.count(b"event: ping") >= 4
    assert b"ping" not in chat.body


def test_a_prompt_that_was_there_before_is_found_in_the_cache_and_usage_says_so() -> None:
    asked = ask(200, max_tokens=3)
    with served(profile(prefix_cache=PrefixCache(block_tokens=16))) as url:
        first, second = (json.loads(raw_http.post(url, CHAT, asked).body)["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["prompt_tokens_details"]["cached_tokens"] == 192  # whole blocks of 200 tokens


@pytest.mark.parametrize(
    ("path", "name"),
    [(CHAT, "x-ratelimit-limit-requests"), ("/v1/messages", "anthropic-ratelimit-requests-limit")],
)
def test_over_a_limit_the_answer_tells_when_to_come_back(path: str, name: str) -> None:
    limits = RateLimits(requests_per_min=60.0, burst_s=1.0)
    with served(profile(limits=limits)) as url:
        good, refused = (raw_http.post(url, path, ask_of(path, max_tokens=1), more=HEADERS) for _ in range(2))
    assert (good.status, refused.status) == (200, 429)
    assert refused.headers["retry-after"] == "1"
    assert good.headers[name] == refused.headers[name] == "60"


def test_a_limit_that_queues_holds_requests_and_the_truth_says_how_long() -> None:
    limits = RateLimits(requests_per_min=300.0, burst_s=0.2, over="queue")
    with served(profile(limits=limits, wire=Wire(truth=True))) as url:
        socks = [raw_http.connect(url) for _ in range(4)]
        for sock in socks:
            sock.sendall(raw_http.request(CHAT, json.dumps(ask(max_tokens=1)).encode()))
        held = [json.loads(raw_http.read(sock).body)["usage"]["mockserver"]["held_s"] for sock in socks]
        for sock in socks:
            sock.close()
    assert held[0] == 0.0
    assert held[3] > 0.3


def test_truth_adds_up_to_what_the_client_saw() -> None:
    with served(profile(wire=Wire(truth=True))) as url:
        found = raw_http.post(url, CHAT, ask(50, max_tokens=30))
    told = json.loads(found.body)["usage"]["mockserver"]
    assert told["steps"] == 30
    assert told["mean_batch"] == 1.0
    assert told["decode_s"] > 0
    plain = json.loads(_one(profile()).body)["usage"]
    assert "mockserver" not in plain


def _one(server_config: ServerConfig) -> Exchange:
    with served(server_config) as url:
        return raw_http.post(url, CHAT, ask(max_tokens=1))


def test_what_the_socket_does_not_take_at_once_arrives_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def stingy(fd: int, data: bytes) -> int:
        if data.startswith(b"HTTP") or len(data) % 5 == 0:
            return write(fd, data[: len(data) // 3])
        raise BlockingIOError

    asked = ask(max_tokens=40, stream=True)
    with served(profile()) as url:
        plain = deltas(raw_http.post(url, CHAT, asked))
    monkeypatch.setattr(connection, "write_now", stingy)
    with served(profile()) as url:
        found = raw_http.post(url, CHAT, asked)
        assert deltas(found) == plain
        assert found.ended == "whole"


def test_a_host_that_is_late_writes_several_steps_together_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ask(max_tokens=60, stream=True)
    with served(profile()) as url:
        plain = raw_http.post(url, CHAT, asked)
    in_time = Timer.set
    monkeypatch.setattr(Timer, "set", lambda timer, at_ns: in_time(timer, at_ns + 60_000_000))
    with served(profile()) as url:
        late = raw_http.post(url, CHAT, asked)
        told = raw_http.metrics(url)
    assert deltas(late) == deltas(plain)
    assert len(late.chunks) == len(plain.chunks)
    assert len(late.read_s) < len(plain.read_s) / 3
    assert told["mockserver_lag_seconds_sum"] / told["mockserver_lag_seconds_count"] > 0.02


def test_who_hangs_up_while_a_limit_holds_it_never_comes_to_an_engine() -> None:
    limits = RateLimits(requests_per_min=120.0, burst_s=0.5, over="queue")
    with served(profile(limits=limits)) as url:
        assert raw_http.post(url, CHAT, ask(max_tokens=1)).status == 200
        with raw_http.connect(url) as sock:
            sock.sendall(raw_http.request(CHAT, json.dumps(ask(max_tokens=1, stream=True)).encode()))
            assert raw_http.metrics(url)["vllm:request_success_total abort"] == 0
        ended = 0.0
        for _ in range(200):
            if ended := raw_http.metrics(url)["vllm:request_success_total abort"]:
                break
        time.sleep(0.5)  # past the instant at which it would have been let in
        assert ended == 1
        assert raw_http.metrics(url)["vllm:prompt_tokens_total"] == 3
