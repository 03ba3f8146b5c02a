"""When a call is given up, and in which words. Pure: instants are handed in.

Rule for whoever edits this file: each bound of the plan has its own words, and the first that strikes is
said.
"""

from loadtest.plan import Timeouts

Deadline = tuple[int, str]
"""The instant at which the call is given up, in ns since the run's start, and what is said then."""


class Deadlines:
    """The bounds of one call that began at ``began_ns``."""

    def __init__(self, timeouts: Timeouts, began_ns: int) -> None:
        self._timeouts = timeouts
        self.connect_s = min(timeouts.connect_s, timeouts.total_s)
        """How long connecting may take, all in all."""
        self.idle_ns = int(timeouts.idle_s * 1e9)
        self.total: Deadline = (
            began_ns + int(timeouts.total_s * 1e9),
            f"total: not done within {timeouts.total_s:g} s",
        )

    def first_byte(self, sent_ns: int) -> Deadline:
        """Until the answer to a request that left at ``sent_ns`` begins."""
        within_s = self._timeouts.first_byte_s
        words = f"first byte: nothing came within {within_s:g} s of sending"
        return self._or_total(sent_ns + int(within_s * 1e9), words)

    def next_read(self, last_ns: int) -> Deadline:
        """Until more comes of an answer whose latest bytes came at ``last_ns``."""
        return self._or_total(last_ns + self.idle_ns, f"idle: nothing came for {self._timeouts.idle_s:g} s")

    def _or_total(self, at_ns: int, words: str) -> Deadline:
        return (at_ns, words) if at_ns < self.total[0] else self.total
