"""How sure a number is: intervals that hold for skewed, quantised and autocorrelated samples.

Requests of one run are not independent (they share the server's moods), so means use Newey–West errors,
medians a block bootstrap, and quantiles pooled over requests count the request as the unit.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special  # not stats, which takes longer to load than a report to compute

from analysis.model import Estimate

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SHORTEST_BLOCK = 8
"""Fewest consecutive observations resampled together: the autocorrelation allowed for in any case."""
FEWEST_BLOCKS = 5
RESAMPLES = 400
_CELLS = 20_000_000  # of a bootstrap's resampled values: 160 MB at the most


def finite(value: float) -> float | None:
    """The value as a report holds it: None instead of NaN or infinity."""
    return float(value) if math.isfinite(value) else None


def estimate(value: float, low: float = math.nan, high: float = math.nan, level: float = 0.95) -> Estimate:
    """An estimate with None for whatever is not finite."""
    return Estimate(value=finite(value), low=finite(low), high=finite(high), level=level)


NOTHING = Estimate(value=None)


def block_length(x: Floats) -> int:
    """How many consecutive values go together so that blocks are nearly independent of one another.

    Three integrated autocorrelation times, τ = 1 + 2·Σρ_k summed until k ≥ 3·τ (Sokal's window, 1989), at
    least ``SHORTEST_BLOCK``, and never so long that fewer than ``FEWEST_BLOCKS`` blocks are left.
    """
    n = x.size
    centred = x - x.mean() if n else x
    variance = float(centred @ centred)
    time = 1.0
    if variance > 0:
        for k in range(1, n // 2):
            time += 2 * (float(centred[k:] @ centred[:-k]) / variance + time / n)
            if k >= 3 * time:
                break
    return int(max(1, min(max(SHORTEST_BLOCK, math.ceil(3 * time)), n // FEWEST_BLOCKS)))


def mean_error(x: Floats) -> tuple[float, float, float]:
    """Mean of a series, its standard error under autocorrelation, and the degrees of freedom of that error.

    Bartlett weights keep the variance positive (Newey and West, Econometrica 55, 1987); the lag is one less
    than ``block_length``, and there are as many independent pieces of evidence as blocks. NaN below two
    values.
    """
    n = x.size
    if n < 2:
        return (float(x[0]) if n else math.nan), math.nan, math.nan
    mean = float(x.mean())
    centred = x - mean
    block = block_length(x)
    variance = float(centred @ centred)
    for k in range(1, block):
        variance += 2 * (1 - k / block) * float(centred[k:] @ centred[:-k])
    freedom = n / block - 1
    return mean, math.sqrt(max(variance, 0.0) / n / (n - block)), freedom


def quantile(x: Floats, q: float, level: float = 0.95) -> Estimate:
    """A quantile with its distribution-free interval between order statistics.

    The number of values below the true quantile is binomial(n, q), whatever the distribution. A side that
    ``n`` values cannot bound (p99 of 50) is None. ``x`` need not be sorted.
    """
    n = x.size
    if n == 0:
        return Estimate(value=None, level=level)
    ordered = np.sort(x)
    tail = (1 - level) / 2
    below = binomial_quantile(tail, n, q)  # P(count < below) <= tail
    above = binomial_quantile(1 - tail, n, q)
    low = float(ordered[below - 1]) if below >= 1 else math.nan
    high = float(ordered[above]) if above < n else math.nan
    return estimate(float(np.quantile(ordered, q)), low, high, level)


def binomial_quantile(p: float, n: int, q: float) -> int:
    """The smallest count that a binomial(n, q) variable does not exceed with probability ``p`` at least."""
    count = max(math.ceil(special.bdtrik(p, n, q)), 0)
    reached = p * (1 - 1e-12)  # but for rounding
    return count - 1 if count > 0 and special.bdtr(count - 1, n, q) >= reached else count


def clustered_quantile(
    x: Floats, weight: Floats, offsets: Ints, q: float, *, ordered: Ints, level: float = 0.95
) -> Estimate:
    """A quantile of values pooled over clusters (gaps over requests), with the cluster as the unit.

    Woodruff's interval (JASA 47, 1952): the error of the share below the quantile is found first, by
    clusters, and read back through the quantile function.

    ``x`` and ``weight`` hold the clusters one after the other, ``offsets`` their bounds, and ``ordered`` is
    ``np.argsort(x)`` (given, because several quantiles share it).
    """
    if x.size == 0:
        return Estimate(value=None, level=level)
    cumulative = np.cumsum(weight[ordered])
    total = float(cumulative[-1])

    def at(share: float) -> float:
        place = int(np.searchsorted(cumulative, share * total))
        return float(x[ordered[min(place, x.size - 1)]])

    value = at(q)
    filled = np.flatnonzero(np.diff(offsets) > 0)
    if filled.size < 2:
        return estimate(value, level=level)
    starts = offsets[:-1][filled]
    per_cluster = np.add.reduceat(weight * ((x <= value) - q), starts)
    _, error, freedom = mean_error(per_cluster)
    spread = float(special.stdtrit(freedom, (1 + level) / 2)) * error * filled.size / total
    low = at(q - spread) if q - spread > 0 else math.nan
    high = at(q + spread) if q + spread < 1 else math.nan
    return estimate(value, low, high, level)


def block_resamples(count: int, block: int, rng: np.random.Generator) -> Ints:
    """Indices of bootstrap samples, one a row: circular blocks of consecutive observations."""
    resamples = int(min(RESAMPLES, max(200, _CELLS // max(count, 1))))
    starts = rng.integers(0, count, size=(resamples, math.ceil(count / block)))
    indices = (starts[:, :, None] + np.arange(block)) % count
    return np.asarray(indices.reshape(resamples, -1)[:, :count], dtype=np.int64)


def bootstrap(
    count: int, statistic: Callable[[Ints], Floats], *, block: int, seed: int = 0, level: float = 0.95
) -> Estimate:
    """Interval of a positive ``statistic`` over ``count`` observations in time order, by block resampling.

    ``statistic`` maps an array of indices (…, count) to values (…). The scatter of its logarithm over
    resamples is widened by Student's t, because a few long blocks know little of their own scatter. The value
    is that of the whole sample; below eight observations there is no interval. Seeded: the same data, the
    same interval.
    """
    if count == 0:
        return Estimate(value=None, level=level)
    value = float(statistic(np.arange(count))[()])
    if count < SHORTEST_BLOCK or not value > 0:
        return estimate(value, level=level)
    draws = np.log(statistic(block_resamples(count, block, np.random.default_rng(seed))))
    blocks = count / block
    error = float(draws.std()) * math.sqrt(blocks / (blocks - 1))
    half = float(special.stdtrit(blocks - 1, (1 + level) / 2)) * error
    return estimate(value, value * math.exp(-half), value * math.exp(half), level)


def median(x: Floats, *, level: float = 0.95) -> Estimate:
    """Median of a series of positive values in time order with its block-bootstrap interval."""
    return bootstrap(
        x.size, lambda rows: np.asarray(np.median(x[rows], axis=-1)), block=block_length(x), level=level
    )


def two_sided_p(t: float, freedom: float) -> float:
    """Probability that Student's t is at least as far from 0 as ``t``."""
    return float(2 * special.stdtr(freedom, -abs(t)))


def inside(ratio: Estimate, margin: float) -> bool:
    """Whether the whole interval of a ratio lies within 1 / (1 + margin) and 1 + margin."""
    if ratio.low is None or ratio.high is None:
        return False
    return 1 / (1 + margin) < ratio.low and ratio.high < 1 + margin


def outside(ratio: Estimate, margin: float) -> bool:
    """Whether a ratio's interval excludes 1 and its value lies beyond the margin."""
    if ratio.value is None or ratio.low is None or ratio.high is None:
        return False
    return (ratio.low > 1 or ratio.high < 1) and abs(math.log(ratio.value)) > math.log1p(margin)
