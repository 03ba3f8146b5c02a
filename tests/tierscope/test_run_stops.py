"""``tierscope run`` in a terminal: several processes, stops, and what is left when it is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loadtest.records import read_run
from tests.loadtest.conftest import ChatServer
from tests.loadtest.locust_runs import free_port, serves

LIMIT_S = 60.0
PLAN = """
name = "tiny"
[workload]
prompt_tokens = [8]
output_tokens = 5
tokens_per_word = 1.0
[[stages]]
name = "all"
requests = 30
arrivals = { kind = "closed", streams = 4 }
"""


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.start()
    yield made
    made.stop()


class Terminal:
    """``tierscope run`` in a session of its own, as a terminal starts it."""

    def __init__(self, server: ChatServer, folder: Path, *options: str, model: str) -> None:
        plan = folder / "tiny.toml"
        plan.write_text(PLAN)
        self.folder = folder / "run"
        argv = [sys.executable, "-m", "tierscope", "run", str(plan), "--url", server.url, "--model", model]
        self.process = subprocess.Popen(
            [*argv, "--out", str(self.folder), "--metrics-port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not is_so():
            assert self.process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def press(self, number: int) -> None:
        """Signal the foreground's process group, as Ctrl-C and a closed terminal do."""
        os.killpg(self.process.pid, number)

    def end(self) -> list[str]:
        out, _ = self.process.communicate(timeout=LIMIT_S)
        assert "Traceback" not in out, out
        return out.splitlines()

    def loaders(self) -> list[int]:
        """Whoever runs Locust for this run: the master, or a child of it."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            pid = int(path.parent.name)
            try:
                words = path.read_bytes()
                parent = (path.parent / "stat").read_text().rpartition(")")[2].split()[1]
                family = words + Path(f"/proc/{parent}/cmdline").read_bytes()
            except OSError:
                continue
            if b"locust" in words and str(self.folder).encode() in family and pid != self.process.pid:
                found.append(pid)
        return found


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(server: ChatServer, tmp_path: Path) -> Iterator[Open]:
    opened: list[Terminal] = []

    def begin(*options: str, model: str = "m") -> Terminal:
        opened.append(Terminal(server, tmp_path, *options, model=model))
        return opened[-1]

    yield begin
    for one in opened:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()


def test_workers_are_an_option(terminal: Open, server: ChatServer) -> None:
    opened = terminal("--workers", "2")
    lines = opened.end()
    assert opened.process.returncode == 0, lines
    assert lines[-2:] == [f"done: {opened.folder}", f"next: tierscope report {opened.folder}"]
    run = read_run(opened.folder)
    assert run.info.status == "complete"
    assert len(run.records) == len(server.requests) == 30
    assert [worker.requests for worker in run.info.workers] == [15, 15]


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGINT, ("--workers", "2")), (signal.SIGHUP, ())],
    ids=["workers", "hangup"],
)
def test_a_stop_of_the_terminal_ends_the_run_in_order_and_is_heard_once(
    terminal: Open, server: ChatServer, number: int, options: tuple[str, ...]
) -> None:
    opened = terminal(*options, model="endless")
    opened.wait_for(lambda: len(server.requests) == 4)
    opened.press(number)
    lines = opened.end()
    assert opened.process.returncode == 3
    name = signal.Signals(number).name
    assert lines[-1] == f"run interrupted by {name}: what was recorded is in {opened.folder}, marked partial"
    run = read_run(opened.folder)
    assert (run.info.status, run.notes) == ("partial", [])
    assert [record.outcome for record in run.records] == ["cancelled"] * 4
    assert opened.loaders() == []


def test_a_second_stop_does_not_wait(terminal: Open, server: ChatServer) -> None:
    opened = terminal(model="endless")
    opened.wait_for(lambda: len(server.requests) == 4)
    opened.press(signal.SIGINT)
    opened.press(signal.SIGINT)
    opened.press(signal.SIGINT)
    opened.end()
    assert opened.process.returncode == 3
    assert opened.loaders() == []


def test_a_web_interface_in_which_nothing_was_started_leaves_nothing(terminal: Open) -> None:
    port = free_port()
    opened = terminal("--web", "--", "--web-port", str(port))
    opened.wait_for(lambda: serves(f"http://127.0.0.1:{port}"))
    opened.press(signal.SIGINT)
    lines = opened.end()
    assert (opened.process.returncode, lines[-1]) == (0, "nothing was recorded")
    assert not opened.folder.exists()


STOPPED_AT_ONCE = """
import runpy, sys
class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "tierscope.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
runpy.run_module("tierscope", run_name="__main__")
"""


def test_a_stop_while_the_command_line_is_imported_is_told_in_a_line() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STOPPED_AT_ONCE], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (ended.returncode, ended.stderr) == (3, "tierscope: stopped by you\n")


def test_nothing_goes_on_loading_when_the_front_door_is_killed(terminal: Open, server: ChatServer) -> None:
    opened = terminal("--workers", "2", model="endless")
    opened.wait_for(lambda: len(server.requests) == 4)
    loaders = opened.loaders()
    assert len(loaders) == 3
    opened.process.kill()
    deadline_s = time.monotonic() + LIMIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in loaders):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    run = read_run(opened.folder)
    assert run.info.status == "partial"  # it ended in order, by itself
    assert len(run.records) == 4
