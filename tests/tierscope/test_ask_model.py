"""Asking a server for its model, whatever it is that answers: one line, in bounded time."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tierscope import ask
from tierscope.errors import BadInputError, RunFailedError

Answer = Callable[[socket.socket], object]


def http(status: str, body: bytes, *headers: str) -> Answer:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return lambda connection: connection.sendall("\r\n".join(lines).encode() + body)


def models(*names: str) -> Answer:
    return http("200 OK", json.dumps({"data": [{"id": name} for name in names]}).encode())


def drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        for _ in range(400):
            connection.sendall(b" ")
            time.sleep(0.05)


@contextlib.contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Answer one request, then hang up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize("prefix", ["", "/", "/v1", "/v1/", "/v1/chat/completions"])
def test_the_one_model_of_a_server_is_its_model_wherever_its_url_ends(prefix: str) -> None:
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65536))
                models("tiny")(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        assert ask.ask_model(f"http://127.0.0.1:{listener.getsockname()[1]}{prefix}") == "tiny"
        thread.join()
    assert asked[0].startswith(b"GET /v1/models HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http("200 OK", b"<html>hello</html>"), "did not answer with a list of models; name --model"),
        (http("200 OK", b"null"), "did not answer with a list of models"),
        (http("200 OK", b'{"data":' + b"[" * 100_000), "did not answer with a list of models"),
        (http("404 Not Found", b"{}"), "answered 404 Not Found; name --model"),
        (http("401 Unauthorized", b"{}"), "answered 401 Unauthorized; put its key into TIERSCOPE_API_KEY"),
        (http("302 Found", b"", "Location: /v1/models"), "answered 302 Found; name --model"),
        (models("a\x1b[31m\nb"), "is no name of a model"),
        (lambda connection: connection.sendall(b"SSH-2.0-x\r\n"), "does not speak HTTP: "),
        (lambda connection: connection.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n"), "does not speak HTTP"),
        (lambda _: None, "does not speak HTTP|Connection reset"),
        (drip, "gave no answer within 0.5 s"),
        (lambda _: time.sleep(1.5), "gave no answer within 0.5 s"),
    ],
)
def test_what_is_no_list_of_models_is_one_line(
    answer: Answer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask, "ASK_TIMEOUT_S", 0.5)
    with server(answer) as url, pytest.raises(RunFailedError, match=said) as caught:
        ask.ask_model(url)
    assert str(caught.value).isprintable()


def test_several_models_are_listed() -> None:
    with server(models("a", "b")) as url, pytest.raises(BadInputError, match=r"--model: .* has 2: a, b"):
        ask.ask_model(url)


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-\U0001f98a"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERSCOPE_API_KEY", key)
    with pytest.raises(BadInputError, match=r"^API key: holds a character") as caught:
        ask.ask_model("http://127.0.0.1:1")
    assert "sk-" not in str(caught.value)


def test_the_question_takes_the_same_way_as_the_load_with_no_credential_in_its_errors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bytes] = []

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in (b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 407 sekret\r\n\r\n"):
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)
                    if b"200" in answer:
                        asked.append(connection.recv(65536))
                        models("far")(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        monkeypatch.setenv("HTTP_PROXY", f"http://me:sekret@127.0.0.1:{port}")
        monkeypatch.setenv("TIERSCOPE_API_KEY", "sk-1")
        for name in ("http_proxy", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert ask.ask_model("http://llm.test:8000") == "far"
        with pytest.raises(RunFailedError) as caught:
            ask.ask_model("http://llm.test:8000")
        thread.join()
    assert asked[0].startswith(b"CONNECT llm.test:8000 HTTP/1.1\r\n")
    assert b"sk-1" not in asked[0]
    assert asked[1].startswith(b"GET /v1/models HTTP/1.1\r\nHost: llm.test:8000\r\n")
    assert b"Bearer sk-1\r\n" in asked[1]
    assert str(caught.value).startswith(
        f"cannot connect to http://llm.test:8000: proxy http://127.0.0.1:{port}: answered 407 "
    )
    assert "sekret" not in str(caught.value)


STOPPED = """
import sys
from tierscope import ask
try:
    ask.ask_model(sys.argv[1])
except KeyboardInterrupt:
    print("stopped")
"""


def test_ctrl_c_ends_the_question_at_once_and_in_silence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        asking = subprocess.Popen(
            [sys.executable, "-c", STOPPED, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            asking.send_signal(signal.SIGINT)
            assert asking.communicate(timeout=8) == ("stopped\n", "")  # the question itself may take 10 s


def test_a_key_that_is_echoed_by_who_speaks_no_http_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERSCOPE_API_KEY", "sk-" + "sekret" * 10)

    def echo(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"you said: " + connection.recv(65536).replace(b"\r\n", b" ") + b"\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=echo, args=(listener,))
        thread.start()
        with pytest.raises(RunFailedError, match=r"does not speak HTTP: .*you said: GET") as caught:
            ask.ask_model(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert "sekret" not in str(caught.value)
