"""The process that reads a server's page, against servers that behave in every way."""

import gzip
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loadtest import scrape, server_pages
from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import read_run
from loadtest.scrape import Page
from loadtest.server_samples import ServerSamples, read
from loadtest.server_watch import ServerWatch
from tierscope.errors import BadInputError

LIMIT_S = 60
PLAN = """
name = "tiny"
[workload]
prompt_tokens = [8]
output_tokens = 5
tokens_per_word = 1.0
[[stages]]
name = "only"
requests = 4
arrivals = { kind = "closed", streams = 2 }
"""
PAGE = b'vllm:num_requests_running{model_name="m"} 3\nvllm:x_bucket{le="1"} 2\nother 1\n'


class Server:
    """Answers each GET with what ``answer`` says of its number: status, headers, body."""

    def __init__(self, answer: Callable[[int], tuple[int, dict[str, str], bytes]]) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.connections = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def do_GET(self) -> None:
                outer.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                status, headers, body = answer(len(outer.seen))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with suppress(ConnectionError):
                    self.wfile.write(body)
                self.close_connection = headers.get("X-Then") == "close"

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/metrics"


@contextmanager
def serving(answer: Callable[[int], tuple[int, dict[str, str], bytes]]) -> Iterator[Server]:
    server = Server(answer)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        thread.join()
        server.http.server_close()


@contextmanager
def looking(url: str) -> Iterator[Page]:
    with closing(Page(url, key_headers={}, context=None)) as page:
        yield page


def test_a_page_is_read_over_one_connection_and_stamped_with_the_middle_of_the_request() -> None:
    with serving(lambda _: (200, {}, PAGE)) as server, looking(server.url) as looked:
        zero_ns = time.monotonic_ns()
        seen = [looked.scrape(zero_ns) for _ in range(5)]
        after_ns = time.monotonic_ns() - zero_ns
    assert server.connections == 1
    for one, following in pairwise(seen):
        assert one.at_ns + one.took_s * 0.5e9 <= following.at_ns - following.took_s * 0.5e9 + 2
        assert one.samples["vllm:num_requests_running"] == {'{"model_name":"m"}': 3.0}
        assert "other" not in one.samples
    assert 0 < seen[0].at_ns < seen[-1].at_ns < after_ns


def test_a_server_that_closes_after_each_answer_is_asked_again() -> None:
    with serving(lambda _: (200, {"X-Then": "close"}, PAGE)) as server, looking(server.url) as looked:
        assert [looked.scrape(0).trouble for _ in range(4)] == [""] * 4
    assert len(server.seen) == server.connections == 4


def test_a_compressed_page_is_opened_and_a_bomb_is_not() -> None:
    bomb = gzip.compress(PAGE + b"#" * (scrape.MOST_BYTES + 1))
    packed = {1: gzip.compress(PAGE), 2: bomb, 3: b"no gzip"}
    with (
        serving(lambda k: (200, {"Content-Encoding": "gzip"}, packed[k])) as server,
        looking(server.url) as looked,
    ):
        first, second, third = (looked.scrape(0) for _ in range(3))
        assert server.seen[0][1]["accept-encoding"] == "gzip"
    assert first.samples["vllm:num_requests_running"]
    assert second.trouble == f"ValueError page of more than {scrape.MOST_BYTES} bytes"
    assert "error" in third.trouble


ODD = {
    "HTTP 503": (503, {}, PAGE),
    "no metric of a known server": (200, {}, b"up 1\n"),
    "ValueError": (200, {}, b"vllm:x{ 1\n"),
    "IncompleteRead|RemoteDisconnected|ValueError|no metric": (
        200,
        {"Content-Length": "99", "X-Then": "close"},
        b"",
    ),
}


@pytest.mark.parametrize("words", ODD)
def test_an_odd_answer_is_a_line_and_the_next_scrape_is_good(words: str) -> None:
    with (
        serving(lambda k: ODD[words] if k == 1 else (200, {}, PAGE)) as server,
        looking(server.url) as looked,
    ):
        first, second = looked.scrape(0), looked.scrape(0)
    assert re.search(words, first.trouble)
    assert not first.samples
    assert second.samples


def test_nobody_there_and_a_page_that_never_comes_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "DEADLINE_S", 0.3)
    go_on = threading.Event()

    def answer(_: int) -> tuple[int, dict[str, str], bytes]:
        go_on.wait(LIMIT_S)
        return 200, {}, PAGE

    with serving(answer) as server:
        with looking(server.url) as looked:
            late = looked.scrape(0)
        go_on.set()
    assert "TimeoutError" in late.trouble
    assert 0.3 <= late.took_s < 5
    with looking(server.url) as looked:
        gone = looked.scrape(0)
    assert "ConnectionRefusedError" in gone.trouble


def test_urls_are_looked_at_before_anything_starts() -> None:
    assert server_pages.candidates("auto", "http://h:8000/v1") == [
        "http://h:8000/metrics",
        "http://h:8000/prometheus/metrics",
    ]
    assert server_pages.candidates("https://h", "http://other") == ["https://h/metrics"]
    assert server_pages.candidates("http://h:1/a/b", "http://other") == ["http://h:1/a/b"]
    for bad in ("metrics", "ftp://h/metrics", "http://u:p@h/metrics", "http://h:0/metrics", ""):
        with pytest.raises(BadInputError, match="--scrape: "):
            server_pages.candidates(bad, "http://h")


def test_the_page_is_asked_for_through_the_proxy_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    class Tunnels(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            asked.append(f"{self.path} {self.headers['Proxy-Authorization']}")
            self.send_response(200)
            self.end_headers()
            self.close_connection = False

        def do_GET(self) -> None:  # what comes through the tunnel: this one has no far end
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    with serving(lambda _: (500, {}, b"")) as stand_in:
        stand_in.http.RequestHandlerClass = Tunnels
        monkeypatch.setenv("http_proxy", f"http://me:word@127.0.0.1:{stand_in.http.server_address[1]}")
        monkeypatch.setenv("no_proxy", "")
        with looking("http://far.example:8000/metrics") as looked:
            seen = [looked.scrape(0), looked.scrape(0)]
    assert [one.trouble for one in seen] == ["", ""]
    assert asked == ["far.example:8000 Basic bWU6d29yZA==", "/metrics", "/metrics"]


# The process


@contextmanager
def recording(folder: Path, *urls: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    words = [word for url in urls for word in ("--url", url)]
    argv = [sys.executable, "-m", "loadtest.scrape", "--folder", str(folder), "--zero-ns", "0", *words]
    argv += [word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", value)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def ended(child: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = child.communicate(timeout=LIMIT_S)
    return child.returncode, out


def wait_for(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def found_in(folder: Path) -> ServerSamples:
    found = read(folder)
    assert found is not None
    assert found.notes == []
    return found


def test_it_scrapes_until_its_input_ends_and_then_once_more(tmp_path: Path) -> None:
    with serving(lambda k: (200, {}, PAGE.replace(b"} 3", b"} %d" % k))) as server:
        with recording(tmp_path, server.url, key_of="openai") as child:
            wait_for(lambda: len(server.seen) >= 3)
            assert ended(child) == (0, "\n")
        assert len(server.seen) >= 4
    found = found_in(tmp_path)
    levels = found.level("vllm:num_requests_running")[1].tolist()
    assert levels == list(range(1, len(server.seen) + 1))
    with_buckets = ["vllm:x_bucket" in one.samples for one in found.scrapes]
    assert with_buckets == [True, *[False] * (len(levels) - 2), True]
    gaps_s = [(b.at_ns - a.at_ns) / 1e9 for a, b in pairwise(found.scrapes[:-1])]
    assert all(gap > 0.3 for gap in gaps_s)


def test_of_several_pages_the_one_that_tells_something_is_kept(tmp_path: Path) -> None:
    with (
        serving(lambda _: (404, {}, b"")) as first,
        serving(lambda _: (200, {}, PAGE)) as second,
        recording(tmp_path, first.url, second.url) as child,
    ):
        wait_for(lambda: len(second.seen) >= 2)
        assert ended(child) == (0, "\n")
        assert len(first.seen) == 1
    assert found_in(tmp_path).scrapes[0].samples


def test_a_server_without_metrics_is_one_line_and_no_failure(tmp_path: Path) -> None:
    with serving(lambda _: (404, {}, b"")) as server, recording(tmp_path, server.url) as child:
        code, out = ended(child)
    assert (code, out) == (0, f"server metrics: {server.url}: ValueError HTTP 404; none are recorded\n")
    assert [one.trouble for one in found_in(tmp_path).scrapes] == ["ValueError HTTP 404"]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with recording(tmp_path / "absent", "http://127.0.0.1:1") as child:
        code, out = ended(child)
    assert (code, out) == (3, "server metrics: server.jsonl cannot be written: No such file or directory\n")


def test_a_run_against_a_server_without_metrics_says_so_and_goes_on(server: Any, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(PLAN)
    target = Target(url=server.url, model="m")
    argv = locust_argv(
        str(tmp_path / "tiny.toml"), target=target, out=tmp_path / "run", extra=["--scrape", "auto"]
    )
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("server metrics: ")]
    assert len(said) == 1
    assert said[0].startswith(f"server metrics: {server.url}/metrics: ")
    assert said[0].endswith("; none are recorded")
    assert len(read_run(tmp_path / "run").records) == 4
    assert all(one.trouble for one in found_in(tmp_path / "run").scrapes)


def test_a_stop_does_not_wait_for_a_page_that_never_comes(tmp_path: Path) -> None:
    asked_s: list[float] = []
    go_on = threading.Event()

    def answer(_: int) -> tuple[int, dict[str, str], bytes]:
        asked_s.append(time.monotonic())
        go_on.wait(LIMIT_S)
        return 200, {}, PAGE

    with serving(answer) as server:
        watch = ServerWatch(
            [server.url], tmp_path, zero_ns=0, say=lambda _: None, is_over=lambda: bool(asked_s)
        )
        watch.close()
        took_s = time.monotonic() - asked_s[0]
        go_on.set()
    assert took_s < scrape.DEADLINE_S


def test_a_url_that_is_none_is_one_line_and_nothing_begins(server: Any, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(PLAN)
    target = Target(url=server.url, model="m")
    argv = locust_argv(
        str(tmp_path / "tiny.toml"), target=target, out=tmp_path / "run", extra=["--scrape", "metrics"]
    )
    done = subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line[:25]) == (2, "bad input: --scrape: url:")
    assert not (tmp_path / "run").exists()
