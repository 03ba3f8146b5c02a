"""Time in a queue plus normal noise: the densities behind the law of the time to first token.

Plain functions of arrays, no state. A wait is 0 with probability ``1 - queued`` and exponential otherwise
(the wait of an M/M/1 queue has this form exactly); everything else that varies is normal.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def log_normal_pdf(z: Floats, spread: Floats) -> Floats:
    """Log density of N(0, spread²) at ``z``."""
    return np.asarray(-0.5 * (z / spread) ** 2 - np.log(spread) - _HALF_LOG_2PI)


def log_exgauss_pdf(z: Floats, spread: Floats, mean_wait: float | Floats) -> Floats:
    """Log density at ``z`` of Exp(mean ``mean_wait``) + N(0, spread²): the exponentially modified Gaussian.

    f(z) = exp(s²/2μ² − z/μ) Φ(z/s − s/μ) / μ with s the spread and μ the mean wait, taken in logarithms
    because both factors leave the range of floats long before their product does.
    """
    ratio = spread / mean_wait
    return np.asarray(
        0.5 * ratio**2 - z / mean_wait - np.log(mean_wait) + special.log_ndtr(z / spread - ratio)
    )


def log_wait_pdf(
    z: Floats, spread: Floats, queued: float | Floats, mean_wait: float | Floats, floor: float
) -> Floats:
    """Log density at ``z`` of noise plus a wait that is 0 with probability ``1 - queued``.

    ``floor`` is a density added everywhere, so that one outlier cannot bend a fit; the caller makes the sum
    integrate to one.
    """
    mixed = np.logaddexp(
        log_normal_pdf(z, spread) + np.log1p(-queued),
        log_exgauss_pdf(z, spread, mean_wait) + np.log(queued),
    )
    return np.asarray(np.logaddexp(mixed, math.log(floor)))
