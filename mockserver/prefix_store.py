"""Blocks of prompts that are remembered, beside the KV memory or in what running sequences leave of it. Pure.

A block's key stands for everything up to its end, so that finding it means that the whole prefix is there.
Sequences keep blocks from the front and let them go from the back: the ends of prefixes are forgotten first.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence


class PrefixStore:
    """Blocks in a memory of their own (host memory, other machines): all of them may go, the oldest first.

    One store may serve several engines. What one of them finds then depends on what the others kept before,
    so that they must be advanced together, in the order of their steps' ends.
    """

    def __init__(self, block_tokens: int, capacity_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._capacity = capacity_tokens // block_tokens
        self._blocks: OrderedDict[Hashable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def found(self, blocks: Sequence[Hashable], most: int) -> int:
        """How many of the first ``most`` blocks are there without a gap."""
        return _leading(blocks, most, self._blocks)

    def keep(self, blocks: Iterable[Hashable]) -> None:
        """Remember blocks, the last one as the newest; the oldest make room."""
        known = self._blocks
        for block in blocks:
            known[block] = None
            known.move_to_end(block)
        while len(known) > self._capacity:
            known.popitem(last=False)


class KvBlocks:
    """Blocks in KV memory: held by running sequences, each but once, or idle and free to be evicted."""

    def __init__(self) -> None:
        self._holders: dict[Hashable, int] = {}
        self._idle: OrderedDict[Hashable, None] = OrderedDict()

    @property
    def idle(self) -> int:
        """Blocks that nobody holds."""
        return len(self._idle)

    def found(self, blocks: Sequence[Hashable], most: int) -> tuple[int, int]:
        """How many of the first ``most`` blocks are there without a gap, and how many of those are idle."""
        idle, holders = self._idle, self._holders
        count = idle_count = 0
        for block in blocks[:most]:
            if block in idle:
                idle_count += 1
            elif block not in holders:
                break
            count += 1
        return count, idle_count

    def hold(self, blocks: Iterable[Hashable]) -> int:
        """Count one more holder of each; returns how many of them were held before."""
        shared = 0
        for block in blocks:
            holders = self._holders.get(block, 0)
            shared += holders > 0
            self._holders[block] = holders + 1
            self._idle.pop(block, None)
        return shared

    def let_go(self, blocks: Sequence[Hashable]) -> int:
        """Count one holder of each less, from the last one on; returns how many nobody holds any more."""
        freed = 0
        for block in reversed(blocks):
            holders = self._holders[block] - 1
            if holders:
                self._holders[block] = holders
            else:
                del self._holders[block]
                self._idle[block] = None
                freed += 1
        return freed

    def leave(self, blocks: Sequence[Hashable]) -> None:
        """Remember blocks that nobody needs to hold, the first one as the newest."""
        for block in reversed(blocks):
            if block not in self._holders:
                self._idle[block] = None
                self._idle.move_to_end(block)

    def shrink(self, idle: int) -> None:
        """Evict idle blocks, the oldest first, until at most ``idle`` are left."""
        while len(self._idle) > idle:
            self._idle.popitem(last=False)


def _leading(blocks: Sequence[Hashable], most: int, known: OrderedDict[Hashable, None]) -> int:
    count = 0
    for block in blocks[:most]:
        if block not in known:
            break
        count += 1
    return count
