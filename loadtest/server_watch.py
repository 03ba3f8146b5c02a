"""Starts and ends the process that reads the server's ``/metrics`` beside a run. Greenlets.

It is a process of its own so that a page of a megabyte never holds up the hub that sends requests.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import gevent
from gevent import subprocess
from gevent.event import Event

_FIRST_LOOK_S = 15.0  # two pages may be tried, for 5 s each
_CHECK_S = 0.1
_LAST_LOOK_S = 3.0


class ServerWatch:
    """Scrapes from its making, which waits for the first look unless ``is_over``, to ``close``.

    ``say`` is told what a person should know.
    """

    def __init__(
        self,
        urls: Sequence[str],
        folder: Path,
        *,
        zero_ns: int,
        say: Callable[[str], None],
        is_over: Callable[[], bool] = lambda: False,
        key_of: str = "",
        insecure: bool = False,
        ca_file: Path | None = None,
    ) -> None:
        argv = [sys.executable, "-m", "loadtest.scrape", "--folder", str(folder), "--zero-ns", str(zero_ns)]
        argv += [word for url in urls for word in ("--url", url)]
        argv += ["--key-of", key_of] if key_of else []
        argv += ["--insecure"] if insecure else []
        argv += ["--ca-file", str(ca_file)] if ca_file else []
        # In a session of its own: a Ctrl-C in the terminal does not hit it, the end of its input ends it.
        self._child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._looked = Event()
        self._reader = gevent.spawn(self._pass_on, say)
        left = round(_FIRST_LOOK_S / _CHECK_S)
        while not self._looked.wait(_CHECK_S) and not is_over() and left:
            left -= 1

    def close(self) -> None:
        """Let it look a last time; one that does not end soon is killed."""
        self._child.stdin.close()
        try:
            self._child.wait(timeout=_LAST_LOOK_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join(timeout=1.0)
        self._reader.kill()

    def _pass_on(self, say: Callable[[str], None]) -> None:
        with self._child.stdout as lines:
            for line in lines:
                self._looked.set()
                if line.strip():
                    say(line.rstrip("\n"))
        self._looked.set()
