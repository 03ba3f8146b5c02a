"""Who waits for admission and who is next: the highest priority, of equals the one that came first. Pure."""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from mockserver.sequence import Sequence


class Line:
    """Sequences in the order of their admission; one that was preempted comes back to where it stood."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, sequence: Sequence) -> None:
        """Let a sequence wait; its ``order`` says when it came."""
        sequence.state = "waiting"
        heapq.heappush(self._heap, (-sequence.priority, sequence.order, sequence))
        self._size += 1

    def first(self) -> Sequence | None:
        """The next one; None: nobody waits."""
        heap = self._heap
        while heap and heap[0][2].state != "waiting":  # cancelled
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def pop(self) -> None:
        """Take out the one that ``first`` returned."""
        heapq.heappop(self._heap)
        self._size -= 1

    def discard(self) -> None:
        """One of those who wait is not ``waiting`` any more."""
        self._size -= 1


class BusStop:
    """Who waits for a batch: it leaves with ``seats`` of them, or when the first has waited long enough."""

    def __init__(self, seats: int, wait_ns: int) -> None:
        self._seats, self._wait_ns = seats, wait_ns
        self._there: OrderedDict[int, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._there)

    def push(self, sequence: Sequence) -> None:
        """Let a sequence wait, after all that are there."""
        sequence.state = "waiting"
        self._there[sequence.job_id] = sequence

    def discard(self, sequence: Sequence) -> bool:
        """Forget a sequence; False if it is not there."""
        return self._there.pop(sequence.job_id, None) is not None

    def leaves_ns(self, coming: Iterable[Sequence] = ()) -> int | None:
        """When the bus leaves that nothing else holds back; None: nobody waits and nobody is ``coming``."""
        missing = self._seats - len(self._there)
        first = next(iter(self._there.values()), None)
        if first is not None and missing <= 0:
            return max(sequence.ready_ns for sequence in islice(self._there.values(), self._seats))
        arrivals = list(islice(coming, missing))
        if first is None:
            if not arrivals:
                return None
            first = arrivals[0]
        latest_ns = first.ready_ns + self._wait_ns
        return min(latest_ns, arrivals[-1].ready_ns) if len(arrivals) == missing else latest_ns

    def board(self) -> list[Sequence]:
        """Take out those who leave: as many as there are seats, the highest priority first."""
        ranked = sorted(self._there.values(), key=lambda sequence: (-sequence.priority, sequence.order))
        leaving = ranked[: self._seats]
        for sequence in leaving:
            del self._there[sequence.job_id]
        return leaving
