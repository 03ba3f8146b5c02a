"""What makes equal steps last differently: one factor for each step of an engine, seeded. Pure."""

import numpy as np

_BLOCK = 1024


class StepNoise:
    """Lognormal factors of mean 1 with standard deviation ``ratio``, each a matter of its step's number only.

    They are drawn by blocks, ascending: ``factor`` must not be asked for steps of a block that has passed.
    """

    def __init__(self, ratio: float, seed: str) -> None:
        self._sigma = float(np.sqrt(np.log1p(ratio * ratio)))
        self._rng = np.random.default_rng(list(f"{seed}/noise".encode()))
        self._first = -_BLOCK
        self._factors: list[float] = []

    def factor(self, step: int) -> float:
        """What multiplies the duration of a step, by its number from 0."""
        place = step - self._first
        while place >= _BLOCK:
            drawn = self._rng.standard_normal(_BLOCK) * self._sigma - 0.5 * self._sigma * self._sigma
            self._factors = np.exp(drawn).tolist()
            self._first += _BLOCK
            place -= _BLOCK
        return self._factors[place]
