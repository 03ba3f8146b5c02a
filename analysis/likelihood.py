"""Maximum likelihood in small: descend from several starts, and read errors off the curvature."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize

Floats = npt.NDArray[np.float64]
Loss = Callable[[Floats], float]
Bounds = Sequence[tuple[float | None, float | None]]

_FLATTEST = 1e-6
# Not L-BFGS-B: since SciPy 1.15 it calls a threaded LAPACK for matrices of seven rows, ten times slower here.


def descend(loss: Loss, starts: Sequence[Floats], bounds: Bounds, *, scale: float) -> Floats:
    """The lowest of the minima found from the ``starts``, by sequential quadratic programming.

    ``scale`` is the number of observations: the descent sees the loss per observation, without which its
    first step leaves the valley.
    """

    def per_observation(at: Floats) -> float:
        return loss(at) / scale

    found = [
        optimize.minimize(per_observation, start, method="SLSQP", bounds=bounds, tol=1e-10)
        for start in starts
    ]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x, dtype=np.float64)


def covariance(loss: Loss, at: Floats) -> Floats:
    """Covariance of the parameters, from the curvature of a minus log likelihood at its minimum.

    A direction without curvature is one that the data do not bound: its variance is large, not dropped.
    """
    values, vectors = np.linalg.eigh(hessian(loss, at))
    return np.asarray((vectors / np.maximum(values, _FLATTEST)) @ vectors.T)


def hessian(loss: Loss, at: Floats, step: float = 1e-3) -> Floats:
    """Matrix of second derivatives by central differences; parameters should be of the order of one."""
    size = at.size
    shift = np.eye(size) * step
    centre = loss(at)
    ahead = [loss(at + shift[i]) for i in range(size)]
    behind = [loss(at - shift[i]) for i in range(size)]
    matrix = np.empty((size, size))
    for i in range(size):
        matrix[i, i] = (ahead[i] - 2 * centre + behind[i]) / step**2
        for j in range(i):
            both = loss(at + shift[i] + shift[j]) + loss(at - shift[i] - shift[j])
            single = ahead[i] + behind[i] + ahead[j] + behind[j]
            matrix[i, j] = matrix[j, i] = (both - single + 2 * centre) / (2 * step**2)
    return matrix
