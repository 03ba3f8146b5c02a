"""What is drawn while a run lasts, read back from a real terminal device."""

import io
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from loadtest.status import ClientStatus, Quantiles, Status, TierStatus, cautions, encode_line
from tierscope.live import LiveView, is_wanted, render

CLIENT = ClientStatus(
    cpu_ratio=0.31, worst_lag_s=0.0004, hub_late_s=0.0012, stamp_source="kernel", coalesced_ratio=0.0
)
STATUS = Status(
    at_s=30.0, stage="compare", stage_number=2, stages=3, warmup=False, ended=40, requests=160,
    elapsed_s=12.4, duration_s=None, started_per_s=3.25, ended_per_s=3.0, open_loop=False, in_flight=8,
    tiers=[
        TierStatus(
            tier="standard", ended=20, failed=0, ttft_s=Quantiles(0.0483, 0.2, 1.34),
            itl_s=Quantiles(0.0158, 0.02, 0.03), otps_per_s=Quantiles(63.4, 64.0, 65.0),
        ),
        TierStatus(tier="fast", ended=20, failed=3),
    ],
    errors={"rate_limited": 2, "timeout": 1}, client=CLIENT, cautions=[],
)  # fmt: skip


def drawn(status: Status, *, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(render(status))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_figure_is_shown_with_its_unit() -> None:
    text = drawn(STATUS)
    head, _, names, standard, fast, client, failed = (line.rstrip() for line in text.splitlines())
    assert head == "stage 2/3 compare · 40/160 requests · 8 in flight · 3 requests/s"
    assert re.split(r"\s{2,}", names.strip()) == [
        "tier", "requests", "failed", "TTFT p50", "p99", "ITL p50", "tokens/s p50"
    ]  # fmt: skip
    assert standard.split() == ["standard", "20", "48.3", "ms", "1.34", "s", "15.8", "ms", "63.4"]
    assert fast.split() == ["fast", "20", "3"]
    assert client == "client: CPU 31% · kernel stamps · event loop 1.2 ms late at worst"
    assert failed == "failed: 2 rate limited, 1 timeout"


def test_an_open_loop_shows_what_it_sends_and_how_late() -> None:
    text = drawn(msgspec.structs.replace(STATUS, open_loop=True, requests=None, duration_s=60.0))
    assert "40 requests · 8 in flight · 3.25 requests/s sent, 3 ended" in text
    assert "12 s of 60 s" in text
    assert "worst lag 0.4 ms" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu_ratio": 0.95}, "requests may leave late"),
        ({"cpu_ratio": 0.75, "stamp_source": "user"}, "TTFT and ITL are read late"),
        ({"worst_lag_s": 0.02}, "left 20.0 ms late"),
        ({"hub_late_s": 0.2}, "woke 200 ms late"),
        ({"coalesced_ratio": 0.1}, "ITL is a bound"),
    ],
)
def test_a_client_in_trouble_is_a_caution_and_a_healthy_one_is_none(
    change: dict[str, object], words: str
) -> None:
    assert cautions(CLIENT) == []
    assert cautions(msgspec.structs.replace(CLIENT, cpu_ratio=0.75)) == []  # kernel stamps bear it
    found = cautions(msgspec.structs.replace(CLIENT, **change))
    assert len(found) == 1
    assert words in found[0]
    assert words in drawn(msgspec.structs.replace(STATUS, cautions=found))


def test_names_from_a_plan_are_text_and_never_markup() -> None:
    tier = msgspec.structs.replace(STATUS.tiers[0], tier="[red]x[/]")
    assert "[red]x[/]" in drawn(msgspec.structs.replace(STATUS, stage="[b]s", tiers=[tier]))


def test_a_narrow_terminal_is_no_reason_to_fail() -> None:
    for width in (1, 20, 40):
        assert drawn(STATUS, width=width)


# On a terminal


@contextmanager
def terminal() -> Iterator[tuple[int, list[bytes]]]:
    """A terminal device to write to, and what was written to it, complete once the block has ended."""
    reader, writer = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(reader, 65536):
                seen.append(piece)
        except OSError:  # the other side was closed
            pass

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield writer, seen
    finally:
        os.close(writer)
        thread.join(10)
        os.close(reader)


CHILD = """
import os, sys
fd = int(sys.argv[sys.argv.index("--status-fd") + 1])
os.write(fd, sys.stdin.buffer.read())
print("compare: 160/160 [requests]", file=sys.stderr)
sys.exit(3)
"""


def shown(lines: bytes, environ: dict[str, str]) -> tuple[int, str]:
    """Let a child say ``lines`` and one more on stderr; its exit code and what the terminal was sent."""
    with terminal() as (device, seen), os.fdopen(os.dup(device), "w") as stream:
        console = Console(file=stream, force_terminal=True, width=110, _environ=environ, highlight=False)
        view = LiveView(console)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, *view.argv], stdin=subprocess.PIPE, **view.popen
        )
        view.follow(child)
        assert child.stdin is not None
        with child.stdin:
            child.stdin.write(lines)
        code = child.wait(30)
        view.close()
        stream.flush()
    return code, b"".join(seen).decode()


def test_the_view_is_drawn_lines_stay_and_the_cursor_comes_back() -> None:
    code, text = shown(encode_line(STATUS), {"TERM": "xterm"})
    assert code == 3
    assert "stage 2/3 compare" in text
    assert "compare: 160/160 [requests]" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "\x1b[1m" in text


def test_no_color_takes_the_colours_away() -> None:
    caution = msgspec.structs.replace(STATUS, cautions=["careful"])
    assert "\x1b[33m" in shown(encode_line(caution), {"TERM": "xterm"})[1]
    _, plain = shown(encode_line(caution), {"TERM": "xterm", "NO_COLOR": "1"})
    assert "careful" in plain
    assert not re.search(r"\x1b\[3\dm", plain)


def test_damaged_lines_are_passed_over() -> None:
    _, text = shown(b'{"at_s": 1}\n\xff\n[]\n' + encode_line(STATUS), {"TERM": "xterm"})
    assert "stage 2/3 compare" in text


class Gone:
    """A terminal that went away."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_goes_away_does_not_hold_the_child_up() -> None:
    gone: Any = Gone()
    view = LiveView(Console(file=gone, force_terminal=True, _environ={"TERM": "xterm"}))
    talk = "import sys\nfor _ in range(3000): print('a line of a run' * 4, file=sys.stderr)"
    child = subprocess.Popen([sys.executable, "-c", talk], **view.popen)  # far more than a pipe holds
    view.follow(child)
    assert child.wait(30) == 0
    view.close()


def test_only_a_terminal_that_can_gets_a_view() -> None:
    with terminal() as (device, _), os.fdopen(os.dup(device), "w") as stream:
        assert is_wanted(stream, {"TERM": "xterm-256color"})
        assert not is_wanted(stream, {"TERM": "dumb"})
        assert not is_wanted(stream, {})
    assert not is_wanted(io.StringIO(), {"TERM": "xterm"})
    assert not is_wanted(None, {"TERM": "xterm"})


PLAN = """
name = "seen"
[workload]
prompt_tokens = [64]
output_tokens = 64
tokens_per_word = 1.0
[[stages]]
name = "only"
requests = {requests}
arrivals = {{ kind = "closed", streams = 2 }}
"""


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """URL of a mock server."""
    serve = [sys.executable, "-m", "tierscope", "serve", "fast-tier", "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        found = re.search(r"http://\S+", child.stdout.readline())
        assert found is not None
        yield found[0]
        child.terminate()
        child.communicate(timeout=30)


def run_on_a_terminal(url: str, folder: Path, *, requests: int, stop_at: bytes = b"") -> tuple[int, str]:
    """``tierscope run`` in a terminal, stopped once ``stop_at`` is seen; exit code and all that was drawn."""
    (folder / "plan.toml").write_text(PLAN.format(requests=requests))
    argv = [sys.executable, "-m", "tierscope", "run", str(folder / "plan.toml"), "--url", url]
    argv += ["--out", str(folder / "run"), "--metrics-port", "0"]
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "110"}
    with terminal() as (device, seen):
        with subprocess.Popen(argv, stdin=device, stdout=device, stderr=device, env=environ) as child:
            deadline_s = time.monotonic() + 60
            while stop_at and stop_at not in b"".join(seen):
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            if stop_at:
                child.send_signal(signal.SIGINT)
            code = child.wait(60)
        modes = termios.tcgetattr(device)
    assert modes[3] & termios.ECHO
    return code, b"".join(seen).decode()


def test_a_run_in_a_terminal_is_drawn_and_leaves_its_lines(mock: str, tmp_path: Path) -> None:
    code, text = run_on_a_terminal(mock, tmp_path, requests=6)
    assert code == 0
    assert "stage 1/1 only" in text
    assert "run complete: 6 requests, 0 failed" in text
    assert text.rindex("next: tierscope report") > text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_a_stop_leaves_the_terminal_as_it_was(mock: str, tmp_path: Path) -> None:
    code, text = run_on_a_terminal(mock, tmp_path, requests=1000, stop_at=b"stage 1/1 only")
    assert code == 3
    assert "run interrupted by SIGINT" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert text.rindex("\x1b[?25h") > text.rindex("run interrupted by SIGINT")
