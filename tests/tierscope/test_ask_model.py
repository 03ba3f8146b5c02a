"""Asking a server for its model, whatever it is that answers: one line, in bounded time."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tierscope import run
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
        assert run.ask_model(f"http://127.0.0.1:{listener.getsockname()[1]}{prefix}") == "tiny"
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
        (lambda connection: connection.sendall(b"SSH-2.0-x\r\n"), "does not speak HTTP: SSH-2.0-x"),
        (lambda connection: connection.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n"), "does not speak HTTP"),
        (lambda _: None, "does not speak HTTP|Connection reset"),
        (drip, "gave no answer within 0.5 s"),
        (lambda _: time.sleep(1.5), "gave no answer within 0.5 s"),
    ],
)
def test_what_is_no_list_of_models_is_one_line(
    answer: Answer, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "ASK_TIMEOUT_S", 0.5)
    with server(answer) as url, pytest.raises(RunFailedError, match=said) as caught:
        run.ask_model(url)
    assert str(caught.value).isprintable()


def test_several_models_are_listed() -> None:
    with server(models("a", "b")) as url, pytest.raises(BadInputError, match=r"--model: .* has 2: a, b"):
        run.ask_model(url)


@pytest.mark.parametrize("key", ["sk-a\nb", "sk-\U0001f98a"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERSCOPE_API_KEY", key)
    with pytest.raises(BadInputError, match=r"^API key: holds a character") as caught:
        run.ask_model("http://127.0.0.1:1")
    assert "sk-" not in str(caught.value)
