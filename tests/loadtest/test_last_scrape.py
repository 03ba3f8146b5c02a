"""A run and whoever scrapes it: nothing is missing at the end, and nobody is waited for in vain."""

import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import read_run

LIMIT_S = 60
PLAN = """
name = "tiny"
seed = 3
[workload]
prompt_tokens = [8, 16]
output_tokens = 5
tokens_per_word = 1.0
[[stages]]
name = "only"
requests = {requests}
arrivals = {{ kind = "closed", streams = 2 }}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def running(server: Any, folder: Path, *, requests: int, linger_s: int) -> Iterator[tuple[Any, str]]:
    """A run under way, and the URL of its metrics page."""
    plan, port = folder / "tiny.toml", free_port()
    plan.write_text(PLAN.format(requests=requests))
    argv = locust_argv(
        str(plan), target=Target(url=server.url, model="m"), out=folder / "run", metrics_port=port,
        extra=["--linger-s", str(linger_s)],
    )  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    with subprocess.Popen([sys.executable, *argv], stderr=subprocess.PIPE, env=environment) as child:
        try:
            yield child, f"http://127.0.0.1:{port}/metrics"
        finally:
            child.kill()


def scrape(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            text: str = answer.read().decode()
    except (urllib.error.URLError, ConnectionError):
        return None
    return text


def ended(page: str | None) -> float:
    """How many requests a page has counted."""
    found = text_string_to_metric_families(page or "")
    return math.fsum(
        sample.value
        for family in found
        for sample in family.samples
        if sample.name == "tierscope_requests_total"
    )


def scraped_once(url: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while scrape(url) is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def said(child: Any, words: bytes) -> None:
    """Read on until the child says so."""
    assert any(words in line for line in child.stderr)


def test_whoever_scraped_gets_the_last_request_before_the_page_goes_away(server: Any, tmp_path: Path) -> None:
    with running(server, tmp_path, requests=100, linger_s=60) as (child, url):
        scraped_once(url)
        said(child, b"run complete")
        time.sleep(1.0)  # a process that waits for nobody is gone by then
        last = scrape(url)
        began_s = time.monotonic()
        assert child.wait(LIMIT_S) == 0
        assert time.monotonic() - began_s < 30  # it had been waited for, and has come
    assert ended(last) == len(read_run(tmp_path / "run").records) == 100
    assert ended((tmp_path / "run" / "metrics.prom").read_text()) == 100


def test_pages_only_ever_count_up(server: Any, tmp_path: Path) -> None:
    with running(server, tmp_path, requests=100, linger_s=30) as (child, url):
        pages = []
        deadline_s = time.monotonic() + LIMIT_S
        while child.poll() is None and time.monotonic() < deadline_s:
            if (page := scrape(url)) is not None:
                pages.append(page)
            time.sleep(0.2)  # the interval of a scraper
        assert child.wait(LIMIT_S) == 0
    counts = [ended(page) for page in pages]
    assert counts == sorted(counts)
    assert counts[-1] == 100


def test_nobody_who_never_scraped_is_waited_for(server: Any, tmp_path: Path) -> None:
    with running(server, tmp_path, requests=2, linger_s=3600) as (child, _):
        assert child.wait(LIMIT_S) == 0


def test_a_stop_ends_the_wait_and_the_run_stays_complete(server: Any, tmp_path: Path) -> None:
    with running(server, tmp_path, requests=50, linger_s=3600) as (child, url):
        scraped_once(url)  # its interval is unknown, so the wait is long
        said(child, b"run complete")
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(LIMIT_S) == 0
    assert read_run(tmp_path / "run").info.status == "complete"
