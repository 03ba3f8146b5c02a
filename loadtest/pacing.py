"""Waiting for absolute instants: a timerfd that the hub watches, or gevent's timer where there is none.

gevent.sleep has a grain of 1 ms and counts from when the loop last looked at the clock; an absolute timerfd
has neither fault. libc is asked for it, since Python has ``os.timerfd_create`` only from 3.13 on.
"""

import ctypes
import os
import struct
import sys
import time

import gevent
from gevent.event import Event

from loadtest.waiter import READ

_CLOCK_MONOTONIC = 1  # include/uapi/linux/time.h
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME, include/uapi/linux/timerfd.h
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # TFD_NONBLOCK and TFD_CLOEXEC are these
_ITIMERSPEC = struct.Struct("=qqqq")


class Alarm:
    """Wakes one greenlet at instants of CLOCK_MONOTONIC (``time.monotonic_ns``)."""

    def __init__(self) -> None:
        self._libc = _libc()
        self._fd = -1 if self._libc is None else self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        self._woken = Event()
        self._watcher = gevent.get_hub().loop.io(self._fd, READ) if self._fd >= 0 else None

    @property
    def exact(self) -> bool:
        """Whether there is a timerfd."""
        return self._watcher is not None

    def wait_until(self, instant_ns: int) -> None:
        """Block the greenlet until ``instant_ns``; returns at once if it has passed."""
        while (left_ns := instant_ns - time.monotonic_ns()) > 0:
            if self._watcher is None:
                gevent.sleep(left_ns / 1e9)
            else:
                self._wait_on_timerfd(instant_ns)

    def close(self) -> None:
        """Give the file descriptor back."""
        if self._watcher is not None:
            self._watcher.close()
            os.close(self._fd)
            self._watcher = None

    def _wait_on_timerfd(self, instant_ns: int) -> None:
        if self._watcher is None or self._libc is None:
            return
        seconds, nanoseconds = divmod(instant_ns, 1_000_000_000)
        spec = _ITIMERSPEC.pack(0, 0, seconds, nanoseconds)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, spec, None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._woken.clear()
        self._watcher.start(self._woken.set)
        try:
            self._woken.wait()
            os.read(self._fd, 8)
        finally:
            self._watcher.stop()


def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timerfd_create") else None
