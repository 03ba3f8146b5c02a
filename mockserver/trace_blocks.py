"""Prefix blocks of requests whose text nobody knows, by the ids that traces give its pieces. Pure."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

_ODD = np.uint64(0x9E3779B97F4A7C15)


def of_ids(ids: Iterable[int], *, id_tokens: int, prompt_tokens: int, block_tokens: int) -> tuple[int, ...]:
    """A number for each whole block of ``block_tokens`` that the ids cover, as ``Job.blocks`` wants them.

    Each id stands for ``id_tokens`` tokens, the last one for what is left. Numbers are equal exactly where
    all ids up to a block's end are; they are chained, because equal pieces may follow different ones.
    """
    digest, chained = blake2b(digest_size=8), list[int]()
    for number in ids:
        digest.update(number.to_bytes(8, "little"))
        chained.append(int.from_bytes(digest.digest(), "little"))
    covered = min(prompt_tokens, len(chained) * id_tokens)
    places = np.arange(covered // block_tokens, dtype=np.int64)
    last_ids = ((places + 1) * block_tokens - 1) // id_tokens
    mixed = np.array(chained, dtype=np.uint64)[last_ids] + places.astype(np.uint64) * _ODD
    return tuple(mixed.tolist())
