"""Prefix blocks of requests whose text nobody knows, by the ids that traces give its pieces. Pure."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

_ODD = np.uint64(0x9E3779B97F4A7C15)


def of_ids(
    ids: Iterable[int],
    *,
    id_tokens: int,
    prompt_tokens: int,
    block_tokens: int,
    output_tokens: int = 0,
    nobodys: int = 0,
) -> tuple[int, ...]:
    """A number for each whole block of ``block_tokens`` of prompt and output, as ``Job.blocks`` wants them.

    Each id stands for ``id_tokens`` tokens of the prompt, the last one for what is left. Numbers are equal
    exactly where all ids up to a block's end are; they are chained, because equal pieces may follow different
    ones. What no id covers is said by nobody else: ``nobodys`` is a number that no other request has.
    """
    digest, chained = blake2b(digest_size=8), list[int]()
    for number in ids:
        digest.update(number.to_bytes(8, "little"))
        chained.append(int.from_bytes(digest.digest(), "little"))
    covered = min(prompt_tokens, len(chained) * id_tokens) // block_tokens
    digest.update(b"nobody else" + nobodys.to_bytes(8, "little"))
    chained.append(int.from_bytes(digest.digest(), "little"))
    places = np.arange((prompt_tokens + output_tokens) // block_tokens, dtype=np.int64)
    pieces = ((places + 1) * block_tokens - 1) // id_tokens
    pieces[covered:] = len(chained) - 1
    mixed = np.array(chained, dtype=np.uint64)[pieces] + places.astype(np.uint64) * _ODD
    return tuple(mixed.tolist())
