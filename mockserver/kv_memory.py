"""How much KV running sequences hold, what of it they share, and what of the rest remembers prefixes. Pure.

Either a sequence reserves its prompt and whole output when it is admitted, and is never short of memory; or
it takes what it needs as it comes (``by_need``), and somebody may have to go. Blocks are the prefix cache's
only: what a sequence does not share is counted in tokens.
"""

from mockserver.prefix_store import KvBlocks, PrefixStore
from mockserver.sequence import Sequence


class KvMemory:
    """Books of one engine's KV. ``used_tokens`` never passes ``capacity_tokens``, idle blocks included.

    ``block_tokens`` 0: no prefix cache. With ``store``, prefixes are remembered there: a sequence copies what
    it finds and shares no memory. Without, blocks stay in the KV memory and sequences share them.
    """

    def __init__(
        self,
        capacity_tokens: int,
        *,
        by_need: bool = False,
        block_tokens: int = 0,
        store: PrefixStore | None = None,
    ) -> None:
        self.capacity_tokens, self.by_need = capacity_tokens, by_need
        self.used_tokens = 0
        self._block_tokens, self._store = block_tokens, store
        self._blocks = KvBlocks()

    @property
    def cached_tokens(self) -> int:
        """Beside what is used: idle blocks."""
        return self._blocks.idle * self._block_tokens

    def knows(self, sequence: Sequence) -> None:
        """Give a sequence the keys under which its blocks are cached, if they are."""
        if self._block_tokens and (job := sequence.job).blocks:
            namespace = job.namespace
            sequence.blocks = tuple([(namespace, block) for block in job.blocks]) if namespace else job.blocks

    def admit(self, sequence: Sequence, growth: int = 0) -> bool:
        """Take memory for a sequence if it is there beside ``growth`` tokens; what is cached is prefilled."""
        count = idle = 0
        if sequence.blocks:
            most = (sequence.to_prefill - 1) // self._block_tokens  # one token at least is computed
            if self._store is None:
                count, idle = self._blocks.found(sequence.blocks, most)
            else:
                count = self._store.found(sequence.blocks, most)
        needed = self._held(sequence)
        if self._store is None:
            needed -= (count - idle) * self._block_tokens
        if self.used_tokens + growth + needed > self.capacity_tokens:
            return False
        if count:
            if self._store is None:
                self._blocks.hold(sequence.blocks[:count])
            sequence.kept_blocks, sequence.prefilled = count, count * self._block_tokens
        self.used_tokens += needed
        self.fit(growth)
        return True

    def computed(self, sequence: Sequence) -> None:
        """Remember the blocks that a chunk of a prompt completed; one that somebody else holds is shared."""
        blocks = sequence.blocks[sequence.kept_blocks : sequence.prefilled // self._block_tokens]
        sequence.kept_blocks += len(blocks)
        if self._store is not None:
            self._store.keep(blocks)
        else:
            self.used_tokens -= self._blocks.hold(blocks) * self._block_tokens

    def release(self, sequence: Sequence) -> None:
        """Give back what a sequence holds; what it computed may stay as idle blocks."""
        self.used_tokens -= self._held(sequence)
        if not sequence.blocks:
            return
        held, size = sequence.blocks[: sequence.kept_blocks], self._block_tokens
        known = sequence.prefilled if sequence.state == "prefilling" else sequence.to_prefill - 1
        whole = sequence.blocks[: known // size]  # the KV of a last token was never computed
        if self._store is not None:
            self._store.keep(reversed(whole))
        else:
            self._blocks.leave(whole[len(held) :])
            self.used_tokens += (len(held) - self._blocks.let_go(held)) * size
            self.fit()
        sequence.kept_blocks = 0

    def fit(self, growth: int = 0) -> None:
        """Let idle blocks make way for what is used, and for ``growth`` tokens."""
        if self._blocks.idle:
            room = self.capacity_tokens - self.used_tokens - growth
            self._blocks.shrink(room // self._block_tokens)

    def _held(self, sequence: Sequence) -> int:
        if not self.by_need:
            return sequence.prompt_tokens + sequence.output_tokens
        return sequence.to_prefill + (sequence.state in ("waiting", "prefilling"))
