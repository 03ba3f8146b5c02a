"""How a run is going: counts, and whether there is any point in going on. Pure."""

from collections import Counter

from loadtest.records import RequestRecord

SAME_FAILURES = 20


class Tally:
    """Counts records as they end; cancelled ones, which are our own doing, do not count."""

    def __init__(self) -> None:
        self.ended = 0
        self.good = 0
        self.worst_lag_s = 0.0
        self._failures: Counter[tuple[str, int | None]] = Counter()
        self._examples: dict[tuple[str, int | None], str] = {}

    def add(self, record: RequestRecord, lag_s: float | None = None) -> None:
        """Count a record; ``lag_s`` is its lateness, if it had a schedule to keep."""
        if record.outcome == "cancelled":
            return
        self.ended += 1
        self.good += record.outcome == "ok"
        self.worst_lag_s = max(self.worst_lag_s, lag_s or 0.0)
        if record.outcome != "ok":
            kind = record.outcome, record.status
            self._failures[kind] += 1
            self._examples.setdefault(kind, record.detail)

    @property
    def failed(self) -> int:
        """Requests that ended in any outcome but ``ok``."""
        return self.ended - self.good

    def hopeless(self) -> str:
        """Say so once the first 20 requests have all failed in the same way; empty otherwise."""
        if self.good or self.ended < SAME_FAILURES or len(self._failures) > 1:
            return ""
        return f"the first {self.ended} requests all failed: {self._commonest()}"

    def fruitless(self) -> str:
        """Say so if requests were made and none of them succeeded; empty otherwise."""
        if self.good or not self.ended:
            return ""
        return f"none of {self.ended} requests succeeded: {self._commonest()}"

    def _commonest(self) -> str:
        kind, _ = self._failures.most_common(1)[0]
        return self._examples[kind] or kind[0]
