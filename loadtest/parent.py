"""No load without somebody who wants it: a process that was started for another one ends after it."""

import os
import signal

import gevent

_LOOK_S = 0.5


def end_with(parent_pid: int) -> None:
    """From now on, send this process SIGTERM once ``parent_pid`` is its parent no more.

    A parent that was killed can tell nobody; its children are handed to another process, on every Unix.
    """
    gevent.spawn(_watch, parent_pid)


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        gevent.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
