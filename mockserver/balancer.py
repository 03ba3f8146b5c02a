"""Which of a tier's replicas gets a request. Pure; one balancer per group of replicas.

| balancer | sends a request to |
|---|---|
| least-loaded | the replica with the fewest own requests under way; of equals, the one unused for longest |
| round-robin | one after the other |
| random | any, each as likely, drawn from the seed |
| prefix | the one that its first block of prompt hashes to, so that what begins alike meets in one cache |

Load is counted in requests, as in nginx's least_conn and Envoy's least-request: a balancer does not know how
long an answer will be. Hidden load is not counted: it is the same on every replica in the mean.
"""

import heapq
from random import Random
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mockserver.tier_config import BalancerKind

_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads neighbouring numbers
_MASK = (1 << 64) - 1


class Balancer(Protocol):
    """Chooses replicas and hears what becomes of the requests there."""

    def choose(self, blocks: tuple[int, ...], /) -> int:
        """The replica, from 0 on, for a request whose prompt has these blocks. It is counted there."""

    def ended(self, replica: int) -> None:
        """A request at this replica has finished or was dropped."""


def balancer(kind: BalancerKind, replicas: int, seed: str) -> Balancer:
    """A balancer of the given kind over so many replicas; for ``random`` and ``prefix``, of that seed."""
    match kind:
        case "least-loaded":
            return LeastLoaded(replicas)
        case "round-robin":
            return RoundRobin(replicas)
        case "random":
            return AnyOf(replicas, seed)
        case "prefix":
            return ByPrefix(replicas, seed)


class LeastLoaded:
    """Fewest requests under way, then longest unused. O(log replicas) a choice."""

    def __init__(self, replicas: int) -> None:
        self.requests = [0] * replicas
        """Under way at each replica."""
        self._used = list(range(-replicas, 0))  # serial number of each one's last request
        self._serial = 0
        self._heap = [(0, used, replica) for replica, used in enumerate(self._used)]

    def choose(self, _blocks: tuple[int, ...] = (), /) -> int:
        """The least loaded replica; the prompt does not matter."""
        heap = self._heap
        while heap[0][:2] != (self.requests[heap[0][2]], self._used[heap[0][2]]):
            heapq.heappop(heap)  # it says how things were once
        replica = heap[0][2]
        self.sent(replica)
        return replica

    def sent(self, replica: int) -> None:
        """Count a request that went to this replica, whoever chose it."""
        self.requests[replica] += 1
        self._used[replica] = self._serial
        self._serial += 1
        self._push(replica)

    def ended(self, replica: int) -> None:
        """Count a request less."""
        self.requests[replica] -= 1
        self._push(replica)

    def _push(self, replica: int) -> None:
        heapq.heappush(self._heap, (self.requests[replica], self._used[replica], replica))
        if len(self._heap) > 64 + 4 * len(self.requests):
            self._heap = [(self.requests[i], used, i) for i, used in enumerate(self._used)]
            heapq.heapify(self._heap)


class RoundRobin:
    """One after the other."""

    def __init__(self, replicas: int) -> None:
        self._replicas, self._next = replicas, 0

    def choose(self, _blocks: tuple[int, ...] = (), /) -> int:
        """The replica after the last one chosen."""
        replica, self._next = self._next, (self._next + 1) % self._replicas
        return replica

    def ended(self, replica: int) -> None:
        """Of no account here."""


class AnyOf:
    """Each as likely."""

    def __init__(self, replicas: int, seed: str) -> None:
        self._replicas, self._rng = replicas, Random(f"{seed}/balancer")

    def choose(self, _blocks: tuple[int, ...] = (), /) -> int:
        """A replica drawn from the seed."""
        return int(self._rng.random() * self._replicas)

    def ended(self, replica: int) -> None:
        """Of no account here."""


class ByPrefix:
    """Rendezvous hashing on the first block; the least loaded for a prompt without a whole block.

    Every replica has a pseudo-random weight for a block and the heaviest takes it. A replica more or less
    moves only the blocks that it has, one in N (Thaler and Ravishankar, 1998).
    """

    def __init__(self, replicas: int, seed: str) -> None:
        self._others = LeastLoaded(replicas)
        rng = Random(f"{seed}/balancer")
        self._salts = np.array([rng.getrandbits(64) for _ in range(replicas)], dtype=np.uint64)

    def choose(self, blocks: tuple[int, ...] = (), /) -> int:
        """The replica of the first block."""
        if not blocks:
            return self._others.choose()
        replica = int(np.argmax(_mixed(self._salts ^ np.uint64(blocks[0] & _MASK))))
        self._others.sent(replica)
        return replica

    def ended(self, replica: int) -> None:
        """Count a request less, for prompts without blocks."""
        self._others.ended(replica)


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit numbers so that one bit's change turns half of them: multiply and fold, twice."""
    for _ in range(2):
        numbers = (numbers ^ (numbers >> np.uint64(32))) * _ODD
    return numbers ^ (numbers >> np.uint64(29))
