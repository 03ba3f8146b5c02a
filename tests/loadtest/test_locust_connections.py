"""Whole runs that go through a proxy, speak TLS or fail to: what they record, and that they leave no key."""

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loadtest import derive
from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import read_run
from loadtest.resolve import Address
from tests.loadtest.certificates import Certificate, secured
from tests.loadtest.peer import Script, Serve, receive
from tests.loadtest.tunnels import Tunnels, relay

KEY, PASSWORD = "sk-Sekret-7", "Passwort-9"
SECRETS = (KEY, PASSWORD, base64.b64encode(f"me:{PASSWORD}".encode()).decode())
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "TIERSCOPE_PROXY")
PLAN = """
name = "tiny"
seed = 3
[workload]
prompt_tokens = [8]
output_tokens = 5
[[tiers]]
name = "standard"
[[stages]]
name = "all"
requests = 6
arrivals = { kind = "closed", streams = 2 }
"""
LIMIT_S = 60
HELD = KEY.encode()


@dataclass(frozen=True)
class Ended:
    """How a run ended, what it said, and what it left."""

    code: int
    lines: list[str]
    folder: Path

    def check_secrets(self) -> None:
        """No secret is in what was said or written."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        written = b"".join(path.read_bytes() for path in files) + "\n".join(self.lines).encode()
        for secret in SECRETS:
            assert secret.encode() not in written


Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the plan against a URL, in an environment with a key and with no proxies but those given."""
    plan = tmp_path / "tiny.toml"
    plan.write_text(PLAN)

    def whole(url: str, env: Mapping[str, str] | None = None, **options: Any) -> Ended:
        target = Target(url=url, model="m", api="openai")
        argv = locust_argv(str(plan), target=target, out=tmp_path / "run", run_id="r", **options)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.upper() not in PROXIES and not name.endswith("_API_KEY")
        }
        environment |= {"TIERSCOPE_API_KEY": KEY} | dict(env or {})
        command: list[str] = [sys.executable, *argv]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        ended = Ended(
            done.returncode, [*done.stdout.splitlines(), *done.stderr.splitlines()], tmp_path / "run"
        )
        ended.check_secrets()
        return ended

    return whole


def in_front_of(server: Any) -> Script:
    """Pass on what comes, to the chat server."""

    def pass_on(connection: socket.socket, _: int) -> None:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as onward:
            relay(connection, onward)

    return pass_on


def test_a_run_goes_by_tls_through_a_proxy_and_its_wait_for_both_is_not_in_the_answers(
    run: Run, serve: Serve, server: Any, certificate: Certificate
) -> None:
    front = serve(secured(certificate.serving(), in_front_of(server)))
    tunnels = Tunnels(front.port, wait_s=0.6)
    middle = serve(tunnels)
    ended = run(
        "https://localhost.test:8443",
        {"HTTPS_PROXY": f"http://me:{PASSWORD}@127.0.0.1:{middle.port}"},
        insecure=True,
    )
    way = f"https://localhost.test:8443 through the proxy http://127.0.0.1:{middle.port}"
    assert ended.code == 0, ended.lines
    assert way in ended.lines
    found = read_run(ended.folder)
    assert found.info.environment["proxies"] == way
    assert {head.split(b"\r\n")[0] for head in tunnels.heads} == {b"CONNECT localhost.test:8443 HTTP/1.1"}
    assert {headers["authorization"] for headers, _ in server.requests} == {f"Bearer {KEY}"}
    assert found.info.client is not None
    assert found.info.client.connections_opened == middle.connections <= 3  # two streams and the first look
    fresh = [record for record in found.records if record.connected_ns is not None]
    assert 1 <= len(fresh) <= 2
    for record in found.records:
        ttft_s, from_scheduled_s = derive.ttft_s(record), derive.ttft_from_scheduled_s(record)
        assert ttft_s is not None
        assert from_scheduled_s is not None
        assert ttft_s < 0.6
        assert (from_scheduled_s > 0.6) == (record in fresh)


def test_a_server_is_trusted_by_a_file_of_authorities(
    run: Run, serve: Serve, server: Any, certificate: Certificate
) -> None:
    front = serve(secured(certificate.serving(), in_front_of(server)))
    ended = run(f"https://localhost:{front.port}", ca_file=certificate.cert, stamps="user")
    assert ended.code == 0, ended.lines
    found = read_run(ended.folder)
    assert found.info.client is not None
    assert found.info.client.stamp_source == "user"
    assert {record.stamp_source for record in found.records} == {"user"}


def test_workers_trust_whom_their_master_trusts_and_stamp_as_it_was_told(
    run: Run, serve: Serve, server: Any, certificate: Certificate
) -> None:
    front = serve(secured(certificate.serving(), in_front_of(server)))
    ended = run(f"https://localhost:{front.port}", ca_file=certificate.cert, stamps="user", workers=1)
    assert ended.code == 0, ended.lines
    records = read_run(ended.folder).records
    assert {record.stamp_source for record in records if record.stage == "all"} == {"user"}


def test_a_server_that_cannot_be_trusted_or_reached_is_one_line_without_the_key(
    run: Run, serve: Serve, certificate: Certificate
) -> None:
    port = serve(secured(certificate.serving(), lambda connection, _: receive(connection))).port
    ended = run(f"https://localhost:{port}")
    why = f"cannot connect to https://localhost:{port}: TLS: self-signed certificate"
    assert (ended.code, ended.lines) == (3, [f"run failed: {why}"])
    assert not ended.folder.exists()


def test_a_proxy_that_refuses_is_one_line_without_its_password(run: Run, serve: Serve) -> None:
    middle = serve(Tunnels(serve().port, answer=f"HTTP/1.1 407 {PASSWORD}\r\n\r\n".encode()))
    ended = run("http://llm.test:8000", {"ALL_PROXY": f"http://me:{PASSWORD}@127.0.0.1:{middle.port}"})
    origin = f"http://127.0.0.1:{middle.port}"
    refusal = "answered 407 Proxy Authentication Required; it wants USER:PASSWORD@ in its URL"
    assert ended.code == 3
    assert ended.lines == [
        f"http://llm.test:8000 through the proxy {origin}",
        f"run failed: cannot connect to http://llm.test:8000: proxy {origin}: {refusal}",
    ]


def echo(status: bytes, *headers: bytes, body: bytes = b"") -> Script:
    """Answer every request so; what is in it echoes the key."""
    head = b"\r\n".join([b"HTTP/1.1 " + status, *headers, b"Content-Length: %d" % len(body)])

    def script(connection: socket.socket, _: int) -> None:
        while True:
            receive(connection)
            connection.sendall(head + b"\r\n\r\n" + body)

    return script


def talk(connection: socket.socket, _: int) -> None:
    receive(connection)
    connection.sendall(HELD + b"\r\n\r\n")


def events(*documents: object) -> bytes:
    return b"".join(b"data: " + json.dumps(document).encode() + b"\n\n" for document in documents)


STREAM = b"Content-Type: text/event-stream"
TOKEN = {"choices": [{"delta": {"content": "a"}}], "service_tier": KEY}
END = {"choices": [{"delta": {}, "finish_reason": KEY}]}
ECHOES = {
    "401": echo(b"401 No", body=b'{"error":{"message":"no such key: ' + HELD + b'"}}'),
    "not HTTP": talk,
    "error in a stream": echo(b"200 OK", STREAM, body=events(TOKEN, {"error": {"message": KEY}})),
    "good stream": echo(
        b"200 OK",
        STREAM,
        b"x-request-id: " + HELD,
        b"x-ratelimit-limit-tokens: " + HELD,
        body=events(TOKEN, END) + b"data: [DONE]\n\n",
    ),
}


@pytest.mark.parametrize("how", ECHOES)
def test_a_key_that_the_server_echoes_is_left_nowhere(run: Run, serve: Serve, how: str) -> None:
    ended = run(serve(ECHOES[how]).url, metrics_port=0)
    records = read_run(ended.folder).records
    assert records
    assert (ended.folder / "metrics.prom").exists()
    assert ended.code == (0 if how == "good stream" else 3)
    assert any("[key]" in repr(record) for record in records)


@pytest.mark.parametrize(
    ("env", "options", "words"),
    [
        (
            {"HTTP_PROXY": f"socks5://me:{PASSWORD}@p:1"},
            {},
            "HTTP_PROXY: is not allowed: a proxy of the kind socks5",
        ),
        (
            {},
            {"ca_file": Path("/nowhere.pem")},
            "--ca-file: /nowhere.pem cannot be read: No such file or directory",
        ),
        ({}, {"ca_file": Path("/nowhere.pem"), "insecure": True}, "--ca-file: is of no use with --insecure"),
        ({}, {"stamps": "best"}, "--stamps: 'best' is not allowed; expected auto, kernel, user"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_code_2(
    run: Run, env: Mapping[str, str], options: Mapping[str, Any], words: str
) -> None:
    ended = run("http://llm.test:8000", env, **options)
    assert ended.code == 2
    assert len(ended.lines) == 1
    assert ended.lines[0].startswith(f"bad input: {words}")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks into /proc for the connection")
def test_ctrl_c_while_connecting_ends_the_run_at_once(tmp_path: Path, unanswering: Address) -> None:
    plan = tmp_path / "tiny.toml"
    plan.write_text(PLAN + "[timeouts]\nconnect_s = 300.0\n")
    url = f"http://127.0.0.1:{unanswering[1][1]}"
    argv = locust_argv(str(plan), target=Target(url=url, model="m", api="openai"), out=tmp_path / "run")
    started = subprocess.Popen([sys.executable, *argv], stderr=subprocess.PIPE, text=True)
    try:
        wait_for_a_connection(started.pid, unanswering[1][1])
        started.send_signal(signal.SIGINT)
        said = started.communicate(timeout=LIMIT_S)[1]
        assert said == "interrupted before the run began; nothing was recorded\n"
    finally:
        started.kill()
        started.wait()
    assert started.returncode == 3
    assert not (tmp_path / "run").exists()


def wait_for_a_connection(pid: int, port: int) -> None:
    """Wait until a process is connecting to a port: Linux lists such connections as SYN_SENT, 02."""
    sent = re.compile(rf": 0100007F:[0-9A-F]{{4}} 0100007F:{port:04X} 02 .*")
    deadline_s = time.monotonic() + LIMIT_S
    own = f"/proc/{pid}/fd"
    while True:
        inodes = {
            line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines() if sent.search(line)
        }
        with contextlib.suppress(OSError):
            for link in Path(own).iterdir():
                if str(link.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                    return
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
