"""A timer that fires at an absolute instant of CLOCK_MONOTONIC, finer than the millisecond of an event loop.

asyncio and uvloop round their timeouts up to whole milliseconds, which at 5 ms a token would be an error of
a tenth. On Linux a timerfd wakes the loop instead (tens of microseconds late); elsewhere the loop's own timer
has to do.
"""

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

_NS = 1_000_000_000
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_TFD_TIMER_ABSTIME = 1


class Timer:
    """Calls ``callback`` once, at the instant last given to ``set`` or soon after."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop, self._callback = loop, callback
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = -1
        if self._libc is not None:
            self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
            if self._fd >= 0:
                loop.add_reader(self._fd, self._fired)

    def set(self, at_ns: int) -> None:
        """Fire at ``at_ns`` of ``time.monotonic_ns()``, at once if that has passed; replaces what was set."""
        if self._fd >= 0 and self._libc is not None:
            seconds, rest_ns = divmod(max(1, at_ns), _NS)
            setting = (ctypes.c_long * 4)(0, 0, seconds, rest_ns)
            if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, setting, None) != 0:
                raise OSError(ctypes.get_errno(), "timerfd_settime")
            return
        if self._handle is not None:
            self._handle.cancel()
        delay_s = max(0, at_ns - time.monotonic_ns()) / _NS
        self._handle = self._loop.call_later(delay_s, self._callback)

    def close(self) -> None:
        """Never fire again."""
        if self._handle is not None:
            self._handle.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # it was set anew after the loop saw it
            return
        self._callback()
