"""Draws how a run stands, in the terminal of whoever waits, from the lines that the load process writes.

The load process only writes a line a second to a pipe; tables are drawn here, on another core.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadtest.status import Quantiles, Status, decode_line, shown_duration, shown_errors

_END_S = 2.0
_BAR_WIDTH = 40


def is_wanted(stream: IO[str] | None, environ: Mapping[str, str]) -> bool:
    """Whether ``stream`` is a terminal on which lines can be drawn anew; others get plain lines."""
    if stream is None or stream.closed or environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return False
    return stream.isatty()


class LiveView:
    """A view on one child process. ``argv`` and ``popen`` go into its making, ``follow`` begins to draw.

    ``close`` leaves the terminal as it was; what the child said stays above. NO_COLOR takes the colours away.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._read_fd, self._write_fd = os.pipe()
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._threads: list[threading.Thread] = []

    @property
    def argv(self) -> list[str]:
        """What the load process is told."""
        return ["--status-fd", str(self._write_fd)]

    @property
    def popen(self) -> dict[str, Any]:
        """How the load process is to be started."""
        return {"pass_fds": (self._write_fd,), "stderr": subprocess.PIPE}

    def follow(self, child: "subprocess.Popen[bytes]") -> None:
        """Draw what the child tells, until it ends."""
        os.close(self._write_fd)  # the child's alone from here on: its end is the pipe's
        self._write_fd = -1
        with contextlib.suppress(OSError):  # a terminal that has gone away already
            self._live.start()
        statuses = os.fdopen(self._read_fd, "rb")
        self._read_fd = -1
        for work, stream in ((self._draw, statuses), (self._pass_on, child.stderr)):
            thread = threading.Thread(target=work, args=(stream,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def say(self, line: str) -> None:
        """Show a line of our own above what is drawn."""
        self._console.print(Text(line), soft_wrap=True)

    def close(self) -> None:
        """Draw no more; lines that are still to come from the child come first."""
        for thread in self._threads:
            thread.join(_END_S)
        with contextlib.suppress(OSError):
            self._live.stop()
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)
        self._read_fd = self._write_fd = -1

    def _draw(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                if (status := decode_line(line)) is not None:
                    with contextlib.suppress(OSError):  # read on: the child must not wait for us
                        self._live.update(render(status), refresh=True)

    def _pass_on(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                text = Text(line.decode("utf-8", "backslashreplace").rstrip("\n"))
                with contextlib.suppress(OSError):
                    self._console.print(text, soft_wrap=True)


def open_view() -> LiveView | None:
    """A view on stderr if it is a terminal that can have one."""
    return LiveView() if is_wanted(sys.stderr, os.environ) else None


def render(status: Status) -> Group:
    """Make what is drawn of one status."""
    parts: list[Any] = [_headline(status), _bar(status), _tiers(status), Text(_client(status), style="dim")]
    if status.errors:
        parts.append(Text(f"failed: {shown_errors(status.errors)}", style="red"))
    parts += [Text(caution, style="yellow") for caution in status.cautions]
    return Group(*parts)


def _headline(status: Status) -> Text:
    warmup = " (warm-up)" if status.warmup else ""
    counted = f"{status.ended}" if status.requests is None else f"{status.ended}/{status.requests}"
    rate = f"{status.ended_per_s:.3g} requests/s"
    if status.open_loop:
        rate = f"{status.started_per_s:.3g} requests/s sent, {status.ended_per_s:.3g} ended"
    words = (f"stage {status.stage_number}/{status.stages} {status.stage}{warmup}", f"{counted} requests")
    return Text(" · ".join((*words, f"{status.in_flight} in flight", rate)), style="bold")


def _bar(status: Status) -> Table:
    if status.requests is not None:
        done, total = float(status.ended), float(status.requests)
    else:
        done, total = status.elapsed_s, status.duration_s or 0.0
    times = f"{status.elapsed_s:.0f} s" + (f" of {status.duration_s:g} s" if status.duration_s else "")
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=total or None, completed=min(done, total), width=_BAR_WIDTH), Text(times))
    return grid


def _tiers(status: Status) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("tier")
    for name in ("requests", "failed", "TTFT p50", "p99", "ITL p50", "tokens/s p50"):
        table.add_column(name, justify="right")
    for tier in status.tiers:
        table.add_row(
            Text(tier.tier),
            str(tier.ended),
            str(tier.failed) if tier.failed else "",
            _duration(tier.ttft_s, "p50"),
            _duration(tier.ttft_s, "p99"),
            _duration(tier.itl_s, "p50"),
            f"{tier.otps_per_s.p50:.1f}" if tier.otps_per_s else "",
        )
    return table


def _client(status: Status) -> str:
    client = status.client
    parts = [f"client: CPU {client.cpu_ratio:.0%}", f"{client.stamp_source} stamps"]
    if status.open_loop:
        parts.append(f"worst lag {shown_duration(client.worst_lag_s)}")
    parts.append(f"event loop {shown_duration(client.hub_late_s)} late at worst")
    if client.coalesced_ratio:
        parts.append(f"{client.coalesced_ratio:.1%} of events read together")
    return " · ".join(parts)


def _duration(values: Quantiles | None, which: str) -> str:
    return shown_duration(getattr(values, which)) if values is not None else ""
