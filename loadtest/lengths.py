"""Lengths drawn from a distribution, as a plan says it. Pure but for reading a file of lengths.

A law is a function of a generator and a count, so that who draws decides what a length follows from.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.plan_workload import Empirical, Lengths, Lognormal, Uniform
from loadtest.quantities import Tokens
from tierscope.errors import BadInputError

Law = Callable[[np.random.Generator, int], NDArray[np.int64]]
"""Draws so many lengths, in tokens."""

_NORMAL = NormalDist()


def law(lengths: Lengths, *, folder: Path) -> Law:
    """Make the law of some lengths; a file of theirs is found from ``folder``.

    Raises BadInputError, in one line, for a file that cannot be read or holds what is no length.
    """
    match lengths:
        case Uniform(minimum=minimum, maximum=maximum):
            return lambda rng, count: rng.integers(minimum, maximum + 1, size=count)
        case Lognormal():
            return _lognormal(lengths)
        case Empirical():
            values = np.array(lengths.values or _read(folder / (lengths.file or "")), dtype=np.int64)
            return lambda rng, count: values[rng.integers(0, len(values), size=count)]


def _lognormal(lengths: Lognormal) -> Law:
    """The law of lengths drawn again and again until one is within the bounds, by inversion: one draw each.

    Bounds reach half a token further, so that rounding gives the outermost lengths their share.
    """
    if lengths.sigma == 0:
        return lambda _, count: np.full(count, lengths.median)
    low, high = (
        _NORMAL.cdf(np.log(bound / lengths.median) / lengths.sigma)
        for bound in (lengths.minimum - 0.5, lengths.maximum + 0.5)
    )

    def draw(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        shares = np.clip(rng.uniform(low, high, size=count), 1e-16, 1 - 1e-16)
        scores = np.array([_NORMAL.inv_cdf(share) for share in shares])
        drawn = np.rint(lengths.median * np.exp(lengths.sigma * scores))
        kept: NDArray[np.int64] = np.clip(drawn, lengths.minimum, lengths.maximum).astype(np.int64)
        return kept

    return draw


def _read(path: Path) -> list[int]:
    """Whole numbers, one a line; empty lines count for nothing."""
    found: list[int] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    found.append(_length(line.strip(), where=f"{path}:{number}"))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    if not found:
        raise BadInputError(f"{path}: holds no length; expected one whole number a line")
    return found


def _length(text: bytes, *, where: str) -> int:
    try:
        return msgspec.json.decode(text, type=Tokens)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = text[:40].decode("utf-8", "replace")
        raise BadInputError(
            f"{where}: {shown!r} is not allowed; expected a whole number of tokens from 1 to 10000000"
        ) from error
