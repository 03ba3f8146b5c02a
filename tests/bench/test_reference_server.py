"""The reference server is what figures are set against, so it is looked at from outside."""

import json
import os
import socket
import subprocess
import sys
import time

import pytest

from bench.process_tree import TreeCpu
from bench.reference import Pace, reference_server

CPU = min(os.sched_getaffinity(0))


def request(body: dict[str, object], path: str = "/v1/chat/completions", request_id: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nX-Client-Request-Id: {request_id}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def read_until(sock: socket.socket, end: bytes) -> bytes:
    got = b""
    while not got.endswith(end):
        part = sock.recv(65536)
        assert part, got
        got += part
    return got


def address(url: str) -> tuple[str, int]:
    return "127.0.0.1", int(url.rpartition(":")[2])


def test_each_stream_gets_its_tokens_and_every_sending_is_noted_before_it_arrives() -> None:
    with (
        reference_server(Pace(ttft_ms=30, gap_ms=5), CPU) as reference,
        socket.create_connection(address(reference.url), timeout=10) as sock,
    ):
        for number in range(2):  # on one connection
            sent_ns = time.monotonic_ns()
            sock.sendall(request({"stream": True, "max_tokens": 7}, request_id=f"r-{number}"))
            got = read_until(sock, b"\r\n0\r\n\r\n")
            ended_ns = time.monotonic_ns()
            assert got.count(b'"content":" word"') == 7
            assert b'"completion_tokens":7' in got
    first, second = reference.answers
    assert (first.id, second.id, first.connection, second.connection) == ("r-0", "r-1", 1, 1)
    assert len(second.sent_ns) == 7
    assert sent_ns - 100_000 <= second.arrived_ns <= second.sent_ns[0] <= second.sent_ns[-1] <= ended_ns
    assert second.due_ns == second.arrived_ns + 30_000_000
    assert min(second.late_ns()) >= 0


def test_on_a_grid_all_streams_are_due_at_multiples_of_the_gap() -> None:
    with reference_server(Pace(ttft_ms=11, gap_ms=7, grid=True), CPU) as reference:
        for _ in range(2):
            with socket.create_connection(address(reference.url), timeout=10) as sock:
                sock.sendall(request({"stream": True, "max_completion_tokens": 3}))
                read_until(sock, b"\r\n0\r\n\r\n")
    assert [answer.due_ns % 7_000_000 for answer in reference.answers] == [0, 0]
    assert all(answer.due_ns - answer.arrived_ns >= 11_000_000 for answer in reference.answers)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_who_asks_for_no_stream_gets_a_document_and_leaves_no_truth(path: str) -> None:
    with (
        reference_server(Pace(), CPU) as reference,
        socket.create_connection(address(reference.url), timeout=10) as sock,
    ):
        sock.sendall(request({"max_tokens": 4}, path))
        head, _, body = read_until(sock, b"}}").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert json.loads(body)["usage"]["completion_tokens"] == 4
        sock.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert b'"id":"ref"' in read_until(sock, b"}]}")
        sock.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert read_until(sock, b"{}").startswith(b"HTTP/1.1 404")
    assert reference.answers == []


def test_a_client_that_hangs_up_halfway_stops_its_stream_and_no_other() -> None:
    with reference_server(Pace(ttft_ms=10, gap_ms=5), CPU) as reference:
        with (
            socket.create_connection(address(reference.url), timeout=10) as stays,
            socket.create_connection(address(reference.url), timeout=10) as goes,
        ):
            for sock in (goes, stays):
                sock.sendall(request({"stream": True, "max_tokens": 40}))
            goes.recv(65536)
            goes.close()
            got = read_until(stays, b"\r\n0\r\n\r\n")
        assert got.count(b'"content":" word"') == 40
    lengths = sorted(len(answer.sent_ns) for answer in reference.answers)
    assert lengths[0] < 40
    assert lengths[1] == 40


def test_cpu_time_of_grandchildren_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    watched = TreeCpu(child.pid)
    watched.watch()
    child.returncode = 0  # it was waited for by the watcher
    assert 0.3 <= watched.total_s < 2
    assert watched.until(0) == 0
