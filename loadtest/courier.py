"""A worker's records on their way to the master: collected, and sent in parcels. Pure."""

from collections.abc import Callable

from loadtest.crew_messages import Parcel
from loadtest.records import RequestRecord, encode_line

_MOST_BYTES = 1_000_000


class Courier:
    """Collects what happens in one run; posts it on ``flush``, or once 1 MB has come together.

    ``begun`` and ``recorded`` count all requests so far.
    """

    def __init__(self, post: Callable[[Parcel], None]) -> None:
        self.begun = self.recorded = 0
        self._post = post
        self._started: list[tuple[str, str]] = []
        self._lines = bytearray()
        self._body_bytes: list[int] = []

    def started(self, stage: str, tier: str) -> None:
        """A request left."""
        self.begun += 1
        self._started.append((stage, tier))

    def add(self, record: RequestRecord, body_bytes: int) -> None:
        """A request has ended."""
        self.recorded += 1
        self._lines += encode_line(record)
        self._body_bytes.append(body_bytes)
        if len(self._lines) >= _MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Post what has come together, also if that is nothing: it shows that this process lives."""
        parcel = Parcel(self._started, bytes(self._lines), self._body_bytes)
        self._started, self._lines, self._body_bytes = [], bytearray(), []
        self._post(parcel)
