"""Requests made before they are due: the first ones of a stage's coming conversations, in order. Pure."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from loadtest.stage import StageProgress
from loadtest.workload import Message, Request

_MOST_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request that needs only to be sent: ``data`` is all of it.

    ``said`` is its conversation so far, itself included.
    """

    conversation: int
    turn: int
    position: int
    request: Request
    data: bytes
    said: tuple[Message, ...]


Make = Callable[[int], Prepared]
"""Makes the first request of a conversation."""


class Stock:
    """Up to ``most`` requests of a stage, and up to 32 MiB of them."""

    def __init__(self, stage: StageProgress, make: Make, most: int) -> None:
        self._stage = stage
        self._make = make
        self._most = most
        self._ready: deque[Prepared] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def full(self) -> bool:
        """Whether there is no room for more, or no more to come."""
        full = len(self._ready) >= self._most or self._bytes >= _MOST_BYTES
        return full or self._stage.coming(len(self._ready)) is None

    def add(self) -> bool:
        """Make one more; False if it is ``full``."""
        conversation = self._stage.coming(len(self._ready))
        if self.full or conversation is None:
            return False
        self._ready.append(self._make(conversation))
        self._bytes += len(self._ready[-1].data)
        return True

    def take(self, at_ns: int) -> Prepared | None:
        """Begin the stage's next conversation, if it is due at ``at_ns``, and give its first request."""
        conversation = self._stage.begin(at_ns)
        if conversation is None:
            return None
        if not self._ready:
            return self._make(conversation)
        prepared = self._ready.popleft()
        self._bytes -= len(prepared.data)
        return prepared
