"""``--until verdict``: a run is looked at while it lasts, and stopped once its verdict is conclusive.

The load generator knows nothing of verdicts. This process reads what it records, judges at the planned looks
(``analysis.sequential``), and asks it to end in order. Rules for whoever edits this file:

1. A look never disturbs the run: it happens in a thread of low priority, in another process than the load.
2. The files of a run belong to the load generator until that has ended.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from loadtest import records
from loadtest.plan_control import CONCLUSIVE
from loadtest.tail import Tail

if TYPE_CHECKING:
    from analysis.model import Verdict
    from analysis.table import Requests
    from loadtest.records import RunInfo

EVERY_S = 1.0
_NICE = 10


class Watch:
    """What was seen of one run so far. ``conclusive`` is the verdict that ends it, once there is one."""

    def __init__(self, folder: Path) -> None:
        self.conclusive: Verdict | None = None
        self._folder = folder
        self._tail = Tail(folder)
        self._info: RunInfo | None = None
        self._parts: list[Requests] = []
        self._measured = self._looks = 0

    def look(self) -> str:
        """Read what is new and, if a look is due, judge; a line for people if one was taken, else nothing.

        The end of a run is no look: it ends by itself.
        """
        from analysis import sequential

        self._read()
        looks = None if self._info is None else sequential.looks_of(self._info)
        if self._info is None or looks is None:
            return ""
        share = sequential.share_seen(self._info, self._measured)
        had = looks.had(share)
        if had <= self._looks or share >= 1:
            return ""
        self._looks = had
        verdict = self._judge()
        if verdict.conclusion != "inconclusive":
            self.conclusive = verdict
        seen = f"look {had} of {len(looks.shares)}, {self._measured} requests"
        return f"{seen}: {verdict.sentence if self.conclusive else 'no verdict yet'}"

    def last_word(self) -> str:
        """What is to be said once the run has ended: the verdict on all of it, or what it lacks."""
        self._read()
        if not self._parts:
            return ""
        if self.conclusive is not None:
            return f"{CONCLUSIVE}: {self.conclusive.sentence}"
        return self._judge().sentence

    def note(self) -> None:
        """Write into run.json, after the run's end, which verdict it was that ended it."""
        if self.conclusive is None:
            return
        info = records.read_info(self._folder)
        if info.status == "complete":
            detail = f"{CONCLUSIVE}: {self.conclusive.sentence}"
            records.write_info(self._folder, msgspec.structs.replace(info, status_detail=detail))

    def _read(self) -> None:
        from analysis import table, window

        if self._info is None:
            if not (self._folder / records.RUN_FILE).exists():
                return
            self._info = records.read_info(self._folder)
        if found := self._tail.read():
            part = table.from_records(found)
            self._measured += int(window.measured(part).sum())
            self._parts.append(part)

    def _judge(self) -> "Verdict":
        from analysis import load, table
        from analysis.analyze import verdict_so_far

        assert self._info is not None
        self._parts = [table.concatenate(self._parts)]
        return verdict_so_far(load.from_requests([self._folder], [self._info], self._parts[0], []))


@contextmanager
def watching(
    watch: Watch, *, stop: Callable[[], None], say: Callable[[str], None], every_s: float = EVERY_S
) -> Iterator[None]:
    """Look at a run while the body lasts, and call ``stop``, once, when it is conclusive.

    ``say`` gets a line for each look. What went wrong while looking is raised when the body is over, so that
    it ends no run.
    """
    over = threading.Event()

    def work() -> None:
        _yield_to_others()
        while watch.conclusive is None and not over.wait(every_s):
            if line := watch.look():
                say(line)
        if watch.conclusive is not None:
            stop()

    with ThreadPoolExecutor(max_workers=1) as pool:
        looking = pool.submit(work)
        try:
            yield
        finally:
            over.set()
    looking.result()


def _yield_to_others() -> None:
    """Give this thread a low priority; on Linux that is a thread's own, elsewhere the process's."""
    if hasattr(os, "nice"):
        os.nice(_NICE)
