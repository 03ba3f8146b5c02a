"""How sure a number is: intervals that hold for skewed, quantised and autocorrelated samples.

Requests of one run are not independent (they share the server's moods), so means use Newey–West errors,
medians a block bootstrap, and quantiles pooled over requests count the request as the unit.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from analysis.model import Estimate

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LAG = 8
"""Lags of autocorrelation allowed for, and consecutive observations per bootstrap block."""
RESAMPLES = 1000
_CELLS = 20_000_000  # of a bootstrap's resampled values: 160 MB at the most


def finite(value: float) -> float | None:
    """The value as a report holds it: None instead of NaN or infinity."""
    return float(value) if math.isfinite(value) else None


def estimate(value: float, low: float = math.nan, high: float = math.nan, level: float = 0.95) -> Estimate:
    """An estimate with None for whatever is not finite."""
    return Estimate(value=finite(value), low=finite(low), high=finite(high), level=level)


NOTHING = Estimate(value=None)


def newey_west(x: Floats, lag: int = LAG) -> tuple[float, float]:
    """Mean of a series and its standard error under autocorrelation up to ``lag``.

    Bartlett weights keep the variance positive (Newey and West, Econometrica 55, 1987). The lag shrinks to a
    quarter of a short series. The error is NaN for fewer than two values.
    """
    n = x.size
    if n < 2:
        return (float(x[0]) if n else math.nan), math.nan
    mean = float(x.mean())
    centred = x - mean
    variance = float(centred @ centred)
    used = min(lag, n // 4)
    for k in range(1, used + 1):
        variance += 2 * (1 - k / (used + 1)) * float(centred[k:] @ centred[:-k])
    # n - 1 - used: each lag costs about one degree of freedom; without it short series are overconfident.
    return mean, math.sqrt(max(variance, 0.0) / (n * max(1, n - 1 - used)))


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
    below = int(stats.binom.ppf(tail, n, q))  # P(count < below) <= tail
    above = int(stats.binom.ppf(1 - tail, n, q))
    low = float(ordered[below - 1]) if below >= 1 else math.nan
    high = float(ordered[above]) if above < n else math.nan
    return estimate(float(np.quantile(ordered, q)), low, high, level)


def clustered_quantile(
    x: Floats, weight: Floats, offsets: Ints, q: float, *, ordered: Ints, level: float = 0.95
) -> Estimate:
    """A quantile of values pooled over clusters (gaps over requests), with the cluster as the unit.

    Woodruff's interval (JASA 47, 1952): the error of the share below the quantile is found first, by clusters,
    and read back through the quantile function.

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
    _, error = newey_west(per_cluster)
    spread = float(stats.norm.ppf((1 + level) / 2)) * error * filled.size / total
    low = at(q - spread) if q - spread > 0 else math.nan
    high = at(q + spread) if q + spread < 1 else math.nan
    return estimate(value, low, high, level)


def block_resamples(count: int, rng: np.random.Generator, *, block: int = LAG) -> Ints:
    """Indices of bootstrap samples, one a row: circular blocks of consecutive observations."""
    block = max(1, min(block, count // 4))
    resamples = int(min(RESAMPLES, max(200, _CELLS // max(count, 1))))
    starts = rng.integers(0, count, size=(resamples, math.ceil(count / block)))
    indices = (starts[:, :, None] + np.arange(block)) % count
    return indices.reshape(resamples, -1)[:, :count].astype(np.int64)


def bootstrap(
    count: int, statistic: Callable[[Ints], Floats], *, seed: int = 0, level: float = 0.95
) -> Estimate:
    """Percentile interval of ``statistic`` over block resamples of ``count`` observations in time order.

    ``statistic`` maps an array of indices (…, count) to values (…). The value is that of the whole sample;
    without at least eight observations there is no interval. Seeded: the same data give the same interval.
    """
    if count == 0:
        return Estimate(value=None, level=level)
    value = float(statistic(np.arange(count))[()])
    if count < 8:
        return estimate(value, level=level)
    draws = statistic(block_resamples(count, np.random.default_rng(seed)))
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return estimate(value, float(low), float(high), level)


def median(x: Floats, *, level: float = 0.95) -> Estimate:
    """Median of a series in time order with its block-bootstrap interval."""
    return bootstrap(x.size, lambda rows: np.asarray(np.median(x[rows], axis=-1)), level=level)


def two_sided_p(z: float) -> float:
    """Probability of a standard normal at least as far from 0 as ``z``."""
    return float(2 * special.ndtr(-abs(z)))


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
