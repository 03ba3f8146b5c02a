"""How far prompts were from the length aimed at, in bounded memory. Pure."""

from collections import Counter

from loadtest.plan import CALIBRATION
from loadtest.records import RequestRecord

_PER_UNIT = 10_000
_MOST = 10


class PromptErrors:
    """|prompt_tokens / aimed − 1| of a run's requests, kept to 1e-4; calibration does not count."""

    def __init__(self) -> None:
        self.worst_ratio: float | None = None
        self._counts: Counter[int] = Counter()

    def add(self, record: RequestRecord) -> None:
        """Take in a request whose prompt the server counted."""
        if record.prompt_tokens is None or record.stage == CALIBRATION:
            return
        ratio = abs(record.prompt_tokens / max(1, record.prompt_class_tokens) - 1)
        self.worst_ratio = max(ratio, self.worst_ratio or 0.0)
        self._counts[round(min(ratio, _MOST) * _PER_UNIT)] += 1

    @property
    def median_ratio(self) -> float | None:
        """The lower median, at most 10; None without any."""
        left = (self._counts.total() + 1) // 2
        for ratio, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return ratio / _PER_UNIT
        return None
