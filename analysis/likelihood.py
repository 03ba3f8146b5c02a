"""Maximum likelihood in small: descend from several starts, and read errors off the curvature."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from scipy import optimize

Floats = npt.NDArray[np.float64]
Losses = Callable[[Floats], Floats]
"""Minus log likelihood at each row of a matrix. Points are asked for together: for the few hundred
observations of a run, one call of numpy costs as much as the numbers in it."""
Bounds = Sequence[tuple[float | None, float | None]]

_FLATTEST = 1e-6
_SLOPE_STEP = float(np.sqrt(np.finfo(np.float64).eps))
# Not L-BFGS-B: since SciPy 1.15 it calls a threaded LAPACK for matrices of seven rows, ten times slower here.


def descend(losses: Losses, starts: Sequence[Floats], bounds: Bounds, *, scale: float) -> Floats:
    """The lowest of the minima found from the ``starts``, by sequential quadratic programming.

    ``scale`` is the number of observations: the descent sees the loss per observation, without which its
    first step leaves the valley.
    """

    def per_observation(at: Floats) -> tuple[float, Floats]:
        shift = np.eye(at.size) * _SLOPE_STEP
        found = losses(np.concatenate((at[None], at + shift))) / scale
        return float(found[0]), (found[1:] - found[0]) / _SLOPE_STEP

    found = [
        optimize.minimize(per_observation, start, jac=True, method="SLSQP", bounds=bounds, tol=1e-10)
        for start in starts
    ]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x, dtype=np.float64)


def covariance(losses: Losses, at: Floats) -> Floats:
    """Covariance of the parameters, from the curvature of a minus log likelihood at its minimum.

    A direction without curvature is one that the data do not bound: its variance is large, not dropped.
    """
    values, vectors = np.linalg.eigh(hessian(losses, at))
    return np.asarray((vectors / np.maximum(values, _FLATTEST)) @ vectors.T)


def hessian(losses: Losses, at: Floats, step: float = 1e-3) -> Floats:
    """Matrix of second derivatives by central differences; parameters should be of the order of one."""
    size = at.size
    shift = np.eye(size) * step
    rows, columns = np.tril_indices(size, -1)
    both = shift[rows] + shift[columns]
    points = np.concatenate((at[None], at + shift, at - shift, at + both, at - both))
    centre, ahead, behind, up, down = np.split(losses(points), np.cumsum([1, size, size, rows.size]))
    single = ahead + behind
    matrix = np.diag((single - 2 * centre) / step**2)
    mixed = (up + down - single[rows] - single[columns] + 2 * centre) / (2 * step**2)
    matrix[rows, columns] = matrix[columns, rows] = mixed
    return matrix
