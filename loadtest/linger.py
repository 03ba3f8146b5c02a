"""Who reads the metrics page, and how long it is worth staying for them after a run. Pure.

Instants are ns of one clock, handed in.
"""

from dataclasses import dataclass

_PATIENCE = 1.5
"""In intervals: one that is late by half has gone away."""
_MOST_READERS = 16


@dataclass(slots=True)
class _Reader:
    last_ns: int
    interval_ns: int | None = None


class Readers:
    """Everybody who read the page lately, told apart by a name."""

    def __init__(self) -> None:
        self._readers: dict[str, _Reader] = {}

    def seen(self, who: str, copied_ns: int) -> None:
        """A reader has got the page as it stood at ``copied_ns``."""
        known = self._readers.pop(who, None)
        interval_ns = None if known is None else copied_ns - known.last_ns
        self._readers[who] = _Reader(copied_ns, interval_ns)
        if len(self._readers) > _MOST_READERS:
            del self._readers[next(iter(self._readers))]  # the one that was away for longest

    def awaited_until_ns(self, final_ns: int, most_ns: int) -> int | None:
        """Until when somebody may still come for the page as it is since ``final_ns``; None if nobody will.

        Whoever came at an interval is waited for one and a half of it since his last time, whoever came once
        (his interval is unknown) and everybody else for ``most_ns`` after ``final_ns`` at most.
        """
        latest_ns = final_ns + most_ns
        until = [
            latest_ns
            if reader.interval_ns is None
            else min(latest_ns, reader.last_ns + int(_PATIENCE * reader.interval_ns))
            for reader in self._readers.values()
            if reader.last_ns < final_ns
        ]
        return max((instant for instant in until if instant > final_ns), default=None)
