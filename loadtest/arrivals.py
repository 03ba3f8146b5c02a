"""When open-loop requests should leave: absolute instants from the stage's start, seeded.

A closed loop has no schedule: a stream sends when its last request has ended. For it ``instants`` is empty.
"""

from collections.abc import Iterator

import numpy as np

from loadtest.plan import Arrivals, Closed, Constant, Poisson

_CHUNK = 1024
_SALT_ARRIVALS = 4


def instants(arrivals: Arrivals, *, seed: int, stage_number: int) -> Iterator[int]:
    """Instants in ns from the stage's start, in order, without end (none for a closed loop).

    Poisson gaps are exponential with mean 1 / rate; constant ones are exact to the nanosecond over any
    length, because the k-th instant is computed from k and not from its predecessor.
    """
    if isinstance(arrivals, Closed):
        return
    if isinstance(arrivals, Constant):
        number = 0
        while True:
            yield round(number * 1e9 / arrivals.rate_per_s)
            number += 1
    if not isinstance(arrivals, Poisson):
        raise NotImplementedError(type(arrivals).__name__)
    rng = np.random.default_rng((seed, _SALT_ARRIVALS, stage_number))
    elapsed_s = 0.0
    while True:
        ends_s = elapsed_s + np.cumsum(rng.exponential(1.0 / arrivals.rate_per_s, size=_CHUNK))
        yield from np.rint(ends_s * 1e9).astype(np.int64).tolist()
        elapsed_s = float(ends_s[-1])
