"""Clients that lie, dawdle, flood or say nothing: each is answered or closed, and the rest never notice."""

import json
import socket
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver import config, connection, serving
from mockserver.config import ServerConfig
from mockserver.desk import Desk
from mockserver.hardware import Deployment
from mockserver.http_request import MAX_HEAD_BYTES, HttpRequest, RequestFramer
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


def still_serves(url: str) -> bool:
    return raw_http.post(url, CHAT, ask(max_tokens=2)).status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{", 408),
        (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", 408),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", 400),
        (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
        (
            b"POST /v1/messages HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 15_000 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"CONNECT x:443 HTTP/1.1\r\n\r\n", 400),
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
            sock.sendall(f"POST {CHAT} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            piece = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
            for _ in range(20):
                sock.sendall(piece)  # more than is allowed; what comes after the answer is not minded
            answer = raw_http.read(sock)
            assert answer.status == 413
            assert "65536" in json.loads(answer.body)["error"]["message"]
        assert still_serves(url)


def test_a_body_that_ends_before_its_length_is_refused_with_both_numbers() -> None:
    with served(impatient(body_timeout_s=30.0)) as url, raw_http.connect(url) as sock:
        sock.sendall(f"POST {CHAT} HTTP/1.1\r\nContent-Length: 500\r\n\r\n{{}}".encode())
        sock.shutdown(socket.SHUT_WR)
        answer = raw_http.read(sock)
        assert answer.status == 400
        message = json.loads(answer.body)["error"]["message"]
        assert "2 bytes" in message
        assert "500" in message


def test_a_body_longer_than_its_length_is_a_second_request_that_is_none() -> None:
    body = json.dumps(ask(max_tokens=2)).encode()
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sent = raw_http.request(CHAT, body) + b'{"and": "more"}\r\n\r\n'
        sock.sendall(sent)
        answers = b""
        while data := sock.recv(65536):
            answers += data
    assert answers.count(b"HTTP/1.1 200") == 1
    assert answers.count(b"HTTP/1.1 400") == 1


def test_a_body_that_drips_is_refused_in_time_however_lively_it_is() -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(f"POST {CHAT} HTTP/1.1\r\nContent-Length: 500\r\n\r\n".encode())
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


@pytest.mark.parametrize("whole", [b"", raw_http.request("/health", b"", method="GET") * 2])
def test_a_request_begun_after_others_has_no_more_time_than_the_first(whole: bytes) -> None:
    with served(impatient()) as url, raw_http.connect(url) as sock:
        sock.sendall(whole + b"POST /v1/ch")
        answers = b""
        while data := sock.recv(65536):
            answers += data
        assert answers.count(b"HTTP/1.1 200") == whole.count(b"GET")
        assert answers.count(b"HTTP/1.1 408") == 1


SAMPLES = [
    raw_http.request(CHAT, b'{"a": 1}', more="X-A: b\r\n"),
    raw_http.request("/v1/models", b"", method="GET") * 2,
    b"POST /x?y=z HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;q=1\r\nde\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
    b"POST /a HTTP/1.1\r\nContent-Length: 200\r\n\r\nabc",
    b"nonsense\r\n\r\n",
    b"GET http://host/p HTTP/1.1\r\n\r\n",
]


def framed(pieces: list[bytes]) -> tuple[list[HttpRequest], str]:
    framer = RequestFramer(max_body_bytes=100)
    for piece in pieces:
        framer.receive(piece)
    return list(framer.requests), "" if framer.failure is None else f"{framer.failure.status} {framer.path}"


@given(st.sampled_from(SAMPLES), st.data())
def test_any_split_of_the_bytes_gives_the_same_requests_and_refusals(
    sent: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    pieces = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    assert framed(pieces) == framed([sent]) == framed([bytes([byte]) for byte in sent])


@given(st.binary(max_size=300))
def test_no_bytes_are_too_strange_to_be_refused(sent: bytes) -> None:
    framer = RequestFramer(max_body_bytes=100)
    framer.receive(sent)
    framer.end()
    assert framer.failure is not None or not framer.begun


@given(st.integers(MAX_HEAD_BYTES + 1, 2 * MAX_HEAD_BYTES), st.booleans())
def test_a_head_beyond_the_bound_is_refused_whether_it_ends_or_not(size: int, ends: bool) -> None:
    framer = RequestFramer(max_body_bytes=100)
    framer.receive(b"GET / HTTP/1.1\r\na: " + b"x" * size + (b"\r\n\r\n" if ends else b""))
    assert framer.failure is not None
    assert framer.failure.status == 431
    assert not framer.requests


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


def test_the_event_loop_of_the_standard_library_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "loop_factory", lambda: None)
    body = json.dumps(ask(max_tokens=3, stream=True)).encode()
    with served(impatient()) as url:
        with raw_http.connect(url) as sock:
            sock.sendall(raw_http.request(CHAT, body) * 3 + b"nonsense\r\n\r\n")
            answers = b""
            while data := sock.recv(65536):
                answers += data
        assert answers.count(b"[DONE]") == 3
        assert answers.count(b"HTTP/1.1 400") == 1
        with raw_http.connect(url) as sock:
            assert closed(sock)  # after a while in which it said nothing
        with raw_http.connect(url) as sock:
            sock.sendall(
                raw_http.request(CHAT, b"")[:-4].replace(b"Length: 0", b"Length: 70000") + b"\r\n\r\n"
            )
            assert raw_http.read(sock).status == 413
        assert still_serves(url)
