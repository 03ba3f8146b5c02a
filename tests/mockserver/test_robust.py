"""Clients that lie, dawdle, flood or say nothing: each is answered or closed, and the rest never notice."""

import asyncio
import json
import random
import socket
import struct
import time
from contextlib import suppress

import msgspec
import pytest

from mockserver import config, connection, http_server, serving
from mockserver.config import ServerConfig
from mockserver.desk import Desk
from mockserver.hardware import Deployment
from mockserver.tier_config import RateLimits
from mockserver.wire_config import Fault
from tests.mockserver import raw_http
from tests.mockserver.served import served
from tests.mockserver.test_app import ANTHROPIC, APIS, CHAT, ask, ask_of

SHORT_S = 0.25
HEADERS = "".join(f"{name}: {value}\r\n" for name, value in ANTHROPIC.items())


def impatient(**changes: object) -> ServerConfig:
    """A quick tier alone, which waits for nobody for long."""
    plain = config.load("fast-tier")
    tier = msgspec.structs.replace(plain.tiers[1], target_batch=0)
    quick = {"tiers": (tier,), "ingest_s": 0.0, "body_timeout_s": SHORT_S, "max_body_bytes": 65_536}
    return msgspec.structs.replace(plain, **{**quick, **changes})


def closed(sock: socket.socket) -> bool:
    """Whether the server has closed the connection without a word, or closes it within the timeout."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def rest_of(sock: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = b""
    while data := sock.recv(65536):
        received += data
    return received


def still_serves(url: str) -> bool:
    return raw_http.post(url, CHAT, ask(max_tokens=2)).status == 200


def still_lives(url: str) -> bool:
    with raw_http.connect(url) as sock:
        sock.sendall(raw_http.request("/health", b"", method="GET"))
        return raw_http.read(sock).status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{", 408),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", 408),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\na: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 15_000 + b"\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    ],
)
def test_what_is_no_request_is_answered_in_the_apis_shape_and_closed(sent: bytes, status: int) -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(sent)
        answer = raw_http.read(sock)
        assert answer.status == status
        told = json.loads(answer.body)
        assert (told.get("type") == "error") is (b"/v1/messages" in sent)
        assert "error" in told
        assert answer.headers["connection"] == "close"
        assert closed(sock)
        assert still_serves(url)


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    with served(impatient(body_timeout_s=30.0)) as url:
        with raw_http.connect(url) as sock:  # declared
            sock.sendall(
                raw_http.request(CHAT, b"")[:-4].replace(b"Length: 0", b"Length: 70000") + b"\r\n\r\n"
            )
            assert raw_http.read(sock).status == 413
        with raw_http.connect(url) as sock:  # not declared, never ending
            sock.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            piece = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
            for _ in range(20):
                sock.sendall(piece)  # more than is allowed; what comes after the answer is not minded
            answer = raw_http.read(sock)
            assert answer.status == 413
            assert "65536" in json.loads(answer.body)["error"]["message"]
        assert still_serves(url)


def test_a_body_that_ends_before_its_length_is_refused_with_both_numbers() -> None:
    with served(impatient(body_timeout_s=30.0)) as url, raw_http.connect(url) as sock:
        sock.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{{}}".encode())
        sock.shutdown(socket.SHUT_WR)
        answer = raw_http.read(sock)
        assert answer.status == 400
        message = json.loads(answer.body)["error"]["message"]
        assert "2 bytes" in message
        assert "500" in message


def test_a_head_that_ends_in_the_middle_is_refused_and_a_whole_request_before_the_end_answered() -> None:
    health = raw_http.request("/health", b"", method="GET")
    with served(impatient(body_timeout_s=30.0)) as url:
        for sent, status in ((health[:-4], 400), (health, 200)):
            with raw_http.connect(url) as sock:
                sock.sendall(sent)
                sock.shutdown(socket.SHUT_WR)
                assert raw_http.read(sock).status == status
                assert closed(sock)


@pytest.mark.parametrize("together", [True, False])
def test_a_body_longer_than_its_length_is_refused(together: bool) -> None:
    body = json.dumps(ask(max_tokens=2)).encode()
    with served(impatient(body_timeout_s=30.0)) as url, raw_http.connect(url) as sock:
        told, more = b"", b'{"and": "more"}\r\n\r\n'
        if together:  # then nobody knows where the lie begins
            sock.sendall(raw_http.request(CHAT, body) + more)
        else:
            sock.sendall(raw_http.request(CHAT, body))
            told += sock.recv(65536)
            sock.sendall(more)
        told += rest_of(sock)
    assert told.count(b"HTTP/1.1 200") == (not together)
    assert told.count(b"HTTP/1.1 400") == 1
    assert b"and" not in told.rpartition(b"no HTTP")[2]


def test_a_body_that_drips_is_refused_in_time_however_lively_it_is() -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n".encode())
        sock.settimeout(0.05)
        begin_s = time.monotonic()
        answer = b""
        while not answer and time.monotonic() - begin_s < 20:
            sock.sendall(b" ")
            try:
                answer = sock.recv(1024)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408")


def test_a_thousand_silent_clients_stop_nobody_and_are_closed() -> None:
    with served(impatient(body_timeout_s=1.2)) as url:
        silent = [raw_http.connect(url) for _ in range(1000)]
        for sock in silent[:300]:
            sock.sendall(b"POST /v1/ch")
        assert still_serves(url)
        assert raw_http.post(url, CHAT, ask(stream=True, max_tokens=3)).ended == "whole"
        answers = [sock.recv(1024) for sock in silent]
        assert all(answer.startswith(b"HTTP/1.1 408") for answer in answers[:300])
        assert set(answers[300:]) == {b""}
        for sock in silent:
            sock.close()
        assert still_serves(url)


def test_a_client_that_does_not_read_is_cut_off_at_a_bound_and_its_job_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "MAX_UNSENT_BYTES", 2**16)
    swift = Deployment(chip="B200", model="Llama-3.1-8B", chips=64, layer_overhead_s=0.0, all_reduce_s=0.0)
    quick = impatient(body_timeout_s=30.0, deployment=swift)
    with served(quick) as url:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = url.removeprefix("http://").partition(":")
        sock.connect((host, int(port)))
        asked = {"model": "mock", "prompt": ["w"] * 128, "max_tokens": 1500, "stream": True}
        sock.sendall(raw_http.request("/v1/completions", json.dumps(asked).encode()))
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            time.sleep(0.1)
            page = raw_http.connect(url)
            page.sendall(raw_http.request("/metrics", b"", method="GET"))
            told = raw_http.read(page).body
            page.close()
            if b'finished_reason="abort"} 128' in told:
                break
        else:
            pytest.fail("a client that reads nothing was not cut off")
        received = 0
        with sock:
            try:
                while data := sock.recv(2**20):
                    received += len(data)
            except ConnectionResetError:
                pass
        assert received < 2**23  # that and what the kernel held
        assert still_serves(url)


@pytest.mark.parametrize("last", [True, False])
def test_who_does_not_read_the_end_of_an_answer_is_not_waited_for(
    last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listen = serving.listen

    def narrow(host: str, port: int) -> socket.socket:
        listener = listen(host, port)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listener

    monkeypatch.setattr(serving, "listen", narrow)
    monkeypatch.setattr(http_server, "IDLE_S", 600.0 if last else SHORT_S)
    asked = json.dumps({"model": "mock", "prompt": ["w"] * 128, "max_tokens": 400}).encode()
    swift = Deployment(chip="B200", model="Llama-3.1-8B", chips=64, layer_overhead_s=0.0, all_reduce_s=0.0)
    with served(impatient(deployment=swift)) as url, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = url.removeprefix("http://").partition(":")
        sock.connect((host, int(port)))
        sock.sendall(raw_http.request("/v1/completions", asked, more="Connection: close\r\n" * last))
        deadline_s = time.monotonic() + 30
        while not raw_http.metrics(url)["vllm:request_success_total length"]:
            assert time.monotonic() < deadline_s
        time.sleep(4 * SHORT_S)
        assert raw_http.read(sock).ended != "whole"


def test_who_still_sends_when_he_is_refused_gets_to_read_why() -> None:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n\r\n".encode()
    with served(impatient()) as url:
        for sent in (head, b"nonsense\r\n\r\n"):
            with raw_http.connect(url) as sock:
                sock.sendall(sent)
                for _ in range(3):
                    time.sleep(0.05)
                    sock.sendall(b" " * 1000)
                assert raw_http.read(sock).status in (400, 413)


def test_requests_that_come_together_are_answered_in_turn() -> None:
    body = json.dumps(ask(max_tokens=2, stream=True)).encode()
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(raw_http.request(CHAT, body) * 5 + raw_http.request("/health", b"", method="GET"))
        answers = b""
        while b'{"status":"ok"}' not in answers:
            answers += sock.recv(65536)
    assert answers.count(b"HTTP/1.1 200") == 6
    assert answers.count(b"[DONE]") == 5
    assert answers.endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("before", [b"", raw_http.request("/health", b"", method="GET")])
def test_a_client_that_asks_for_leave_to_send_gets_it(before: bytes) -> None:
    body = json.dumps(ask(max_tokens=2)).encode()
    asked = raw_http.request(CHAT, body, more="Expect: 100-continue\r\n")[: -len(body)]
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(before + asked)
        told = b""
        while not told.endswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
            told += sock.recv(1024)
        sock.sendall(body)
        assert raw_http.read(sock).status == 200


def test_leave_to_send_comes_after_the_answer_that_is_under_way() -> None:
    body = json.dumps(ask(max_tokens=2, stream=True)).encode()
    first, second = (
        raw_http.request(CHAT, body),
        raw_http.request(CHAT, body, more="Expect: 100-continue\r\n"),
    )
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(first + second[: -len(body)])
        told = b""
        while b"100 Continue\r\n\r\n" not in told:
            told += sock.recv(65536)
        assert told.index(b"[DONE]") < told.index(b"100 Continue")
        sock.sendall(body)
        assert raw_http.read(sock).ended == "whole"


@pytest.mark.parametrize("requests", [0, 2])
def test_a_request_begun_after_others_has_no_more_time_than_the_first(requests: int) -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        for _ in range(requests):
            sock.sendall(raw_http.request("/health", b"", method="GET"))
            assert raw_http.read(sock).status == 200
        sock.sendall(b"POST /v1/ch")
        assert rest_of(sock).count(b"HTTP/1.1 408") == 1


def test_a_request_begun_while_another_is_answered_has_its_time_from_the_answers_end() -> None:
    limits = RateLimits(requests_per_min=100.0, burst_s=0.6, over="queue")  # the second is held for 0.6 s
    tier = msgspec.structs.replace(impatient().tiers[0], limits=limits)
    asked = raw_http.request(CHAT, json.dumps(ask(max_tokens=1)).encode())
    with served(impatient(tiers=(tier,))) as url, raw_http.connect(url) as sock:
        sock.sendall(asked)
        assert raw_http.read(sock).status == 200
        sock.sendall(asked)
        time.sleep(SHORT_S / 2)
        sock.sendall(b"POST /v1/ch")
        told = rest_of(sock)
    assert [told.count(b"HTTP/1.1 %d" % status) for status in (200, 408)] == [1, 1]


def test_a_part_of_a_request_right_behind_whole_ones_is_waited_for_as_for_any_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_server, "IDLE_S", 2 * SHORT_S)
    health = raw_http.request("/health", b"", method="GET")
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(health * 2 + b"POST /v1/ch")
        assert rest_of(sock).count(b"HTTP/1.1 200") == 2


def test_chunks_that_turn_to_nonsense_are_refused_in_time() -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        sock.sendall(head.encode() + b"1\r\n{\r\n")
        time.sleep(SHORT_S / 2)
        sock.sendall(b"zz\r\n")
        assert raw_http.read(sock).status in (400, 408)
        assert closed(sock)
        assert still_serves(url)


def test_a_client_that_asks_on_and_on_before_its_answer_has_to_wait() -> None:
    held = msgspec.structs.replace(impatient(), faults=(Fault(kind="delay", wait_s=60.0),))
    asked = raw_http.request(CHAT, json.dumps(ask(2000, max_tokens=1)).encode()) * 50
    with served(held) as url, raw_http.connect(url, timeout_s=0.2) as sock:
        with pytest.raises(TimeoutError):
            flood(sock, asked)
        assert still_lives(url)


def flood(sock: socket.socket, data: bytes) -> None:
    """Send the same again and again, up to 128 MiB."""
    sent = 0
    while sent < 2**27:
        sent += sock.send(data)


@pytest.mark.parametrize("offer", ["h2c", "websocket"])
def test_an_offer_of_another_protocol_is_not_taken_and_the_request_answered(offer: str) -> None:
    body = json.dumps(ask(max_tokens=2)).encode()
    fields = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {offer}\r\nHTTP2-Settings: AAMA\r\n"
    with served(impatient()) as url, raw_http.connect(url) as sock:
        for more in (fields, fields, ""):
            sock.sendall(raw_http.request(CHAT, body, more=more))
            assert raw_http.read(sock).status == 200


@pytest.mark.parametrize(
    "asked", [b"GET /\xff\xfe", b"GET /%ff%00%0d%0a", b"GET /v1/models/\xc3\xa4", b"OPTIONS *"]
)
def test_a_path_of_any_bytes_is_found_to_lead_nowhere(asked: bytes) -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(asked + b" HTTP/1.1\r\nHost: x\r\nanthropic-version: \xff\r\n\r\n")
        answer = raw_http.read(sock)
    assert answer.status in (400, 404)
    assert "error" in json.loads(answer.body)


def test_fields_of_any_bytes_are_refused_and_not_our_failure() -> None:
    body = json.dumps(ask(max_tokens=2)).encode()
    with served(impatient()) as url, raw_http.connect(url) as sock:
        for field in ("anthropic-version", "anthropic-beta", "content-encoding"):
            asked = raw_http.request("/v1/messages", body, more=f"{field}: XY\r\n")
            sock.sendall(asked.replace(b"XY", b"\xff\xc3"))
            answer = raw_http.read(sock)
            assert answer.status in (200, 400, 415)
            json.loads(answer.body)


@pytest.mark.parametrize("path", APIS)
def test_a_failure_of_ours_is_answered_and_told_and_the_next_request_served(
    path: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as broken, served(impatient()) as url:
        broken.setattr(Desk, "place", lambda *_: dict[str, int]()["not there"])
        failed = raw_http.post(url, path, ask_of(path, stream=True), more=HEADERS)
        broken.undo()
        good = raw_http.post(url, path, ask_of(path, stream=True), more=HEADERS)
    assert (failed.status, failed.ended) == (500, "whole")
    assert "error" in json.loads(failed.body)
    assert (good.status, good.ended) == (200, "whole")
    assert "KeyError: 'not there'" in capfd.readouterr().err


def comes_and_goes(url: str, seed: int) -> None:
    """A hundred and fifty clients that send a part of something each, and leave in one way or another."""
    draw = random.Random(seed)
    body = json.dumps(ask(max_tokens=2, stream=True)).encode()
    whole = raw_http.request(CHAT, body)
    chunked = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n".encode()
    for _ in range(150):
        sent = draw.choice([whole, whole * 3, chunked, whole + chunked, b"nonsense\r\n\r\n", whole.lower()])
        with raw_http.connect(url) as sock:
            sock.sendall(sent[: draw.randrange(len(sent) + 1)])
            match draw.randrange(4):
                case 0:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case 1:
                    sock.shutdown(socket.SHUT_WR)
                case 2:
                    sock.settimeout(0.01)
                    with suppress(TimeoutError):
                        sock.recv(100)


@pytest.mark.parametrize("standard", [True, False])
def test_clients_that_come_and_go_leave_nothing_behind(
    standard: bool, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        with serving.listen("127.0.0.1", 0) as listener:
            async with serving.open_server(impatient(), listener):
                before, url = len(asyncio.all_tasks()), serving.url_of(listener)
                await asyncio.gather(*(asyncio.to_thread(comes_and_goes, url, seed) for seed in (1, 2)))
                for _ in range(100):
                    if len(asyncio.all_tasks()) == before:
                        break
                    await asyncio.sleep(0.05)
                assert len(asyncio.all_tasks()) == before
                assert await asyncio.to_thread(still_serves, url)
                told = await asyncio.to_thread(raw_http.metrics, url)
                assert told["vllm:num_requests_running"] == 0

    with asyncio.Runner(loop_factory=None if standard else serving.loop_factory()) as runner:
        runner.run(main())
    assert not caplog.records
    assert "Traceback" not in capfd.readouterr().err


def test_the_event_loop_of_the_standard_library_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "loop_factory", lambda: None)
    body = json.dumps(ask(max_tokens=3, stream=True)).encode()
    with served(impatient()) as url:
        with raw_http.connect(url) as sock:
            sock.sendall(raw_http.request(CHAT, body) * 3)
            answers = b""
            while answers.count(b"[DONE]") < 3:
                answers += sock.recv(65536)
            sock.sendall(b"nonsense\r\n\r\n")
            answers += rest_of(sock)
        assert answers.count(b"HTTP/1.1 200") == 3
        assert answers.count(b"HTTP/1.1 400") == 1
        with raw_http.connect(url) as sock:
            assert closed(sock)  # after a while in which it said nothing
        with raw_http.connect(url) as sock:
            sock.sendall(
                raw_http.request(CHAT, b"")[:-4].replace(b"Length: 0", b"Length: 70000") + b"\r\n\r\n"
            )
            assert raw_http.read(sock).status == 413
        assert still_serves(url)
