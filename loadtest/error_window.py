"""Whether too large a share of the latest requests has failed. Pure."""

import math
from collections import deque

from loadtest.plan import Control
from loadtest.records import RequestRecord


class ErrorWindow:
    """The latest ``error_window_requests`` that have ended; cancelled ones, our own doing, do not count.

    The bound strikes as soon as it is certain: when so many of the window have failed that the share is
    reached whatever the rest of it brings. One failure at least is needed, also for a bound of 0.
    """

    def __init__(self, control: Control) -> None:
        self._ratio = control.stop_at_error_ratio
        self._window = control.error_window_requests
        self._latest: deque[bool] = deque(maxlen=self._window)
        self._failed = 0

    def add(self, record: RequestRecord) -> str:
        """Take in a request that ended; gives a sentence once the bound is reached."""
        if self._ratio is None or record.outcome == "cancelled":
            return ""
        failed = record.outcome != "ok"
        self._failed += failed - (len(self._latest) == self._window and self._latest[0])
        self._latest.append(failed)
        if self._failed < max(1, math.ceil(self._ratio * self._window - 1e-9)):
            return ""
        return (
            f"{self._failed} of the latest {len(self._latest)} requests failed; "
            f"stop_at_error_ratio is {self._ratio:g} of {self._window}"
        )
