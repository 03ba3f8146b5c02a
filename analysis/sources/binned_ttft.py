"""The TTFT law fitted to counts per bucket, by maximum likelihood. Pure.

The probability of a bucket is the difference of the law's distribution function at its edges, so that no
value is invented inside it. With z = t − f(n), s the noise and W the wait, queued with probability π and
mean μ:

    P(TTFT ≤ t) = Φ(z/s) − π · exp(s²/2μ² − z/μ) · Φ(z/s − s/μ)
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis import likelihood
from analysis.ragged import Floats
from analysis.sources.aggregate import Binned
from analysis.ttft_fit import FEWEST_AT_A_LENGTH, FEWEST_REQUESTS, LEAST_SPAN, MOST_KNOTS, OUTLIERS
from analysis.ttft_law import MODEL_FACTOR, TtftLaw, parabola

_FIRST_SHAPE = 6
_BOUNDS = [(None, None), (-8, 8), (-8, 8), (-9, 5), (-12, 0), (-12, 2)]
_SHAPE_SPREAD = 0.15  # as in ttft_fit: of the prior of g about a straight line


def fit(classes: dict[int, Binned]) -> TtftLaw | str:
    """Fit the law to the TTFT histograms of exact prompt classes, or say in a clause why it cannot be."""
    kept = {n: one for n, one in sorted(classes.items()) if one.count >= FEWEST_AT_A_LENGTH}
    total = sum(one.count for one in kept.values())
    if total < FEWEST_REQUESTS:
        return (
            f"{total} answers in exact prompt classes are too few for the TTFT law; it takes "
            f"{FEWEST_REQUESTS}"
        )
    lengths = np.array(list(kept), dtype=np.float64)
    if lengths.size < 2 or lengths[-1] < LEAST_SPAN * max(lengths[0], 1.0):
        return (
            f"the TTFT law takes prompt classes {LEAST_SPAN} times apart, {FEWEST_AT_A_LENGTH} requests each"
        )
    if lengths.size > MOST_KNOTS:
        return f"{lengths.size} prompt classes are more than the law has knots for, {MOST_KNOTS}"
    problem = _Problem.of(lengths, list(kept.values()))
    bounds = [*_BOUNDS, *[(0.0, 1.0)] * (lengths.size - 2)]
    found = likelihood.descend(problem.losses, problem.starts(), bounds, scale=total)
    return problem.law(found, likelihood.covariance(problem.losses, found))


@dataclass(frozen=True, slots=True)
class _Problem:
    """One tier's histograms in units of ``scale_s``; a row a filled bucket of one class.

    Parameters: F, ln D, logit π, ln μ, ln σ, ln s0, and the law's shape at inner classes.
    """

    lengths: Floats
    classes: Floats
    lower: Floats
    upper: Floats
    counts: Floats
    scale_s: float
    spread: float
    medians: Floats

    @classmethod
    def of(cls, lengths: Floats, shapes: list[Binned]) -> "_Problem":
        medians_s = np.array([_at(one, 0.5) for one in shapes])
        scale_s = float(np.median(medians_s))
        rows = [_rows(one, place) for place, one in enumerate(shapes)]
        classes, lower, upper, counts = np.concatenate(rows, axis=1)
        wide = float(np.mean([(_at(one, 0.5) - _at(one, 0.1)) for one in shapes])) / scale_s
        spread = min(max(wide, 0.005), 1.0)
        return cls(
            lengths, classes, lower / scale_s, upper / scale_s, counts, scale_s, spread, medians_s / scale_s
        )

    def starts(self) -> list[Floats]:
        found = []
        for down, queued, noise in ((1.0, 0.0, 0.3), (0.5, -2.0, 0.5), (0.0, -3.0, 1.0)):
            levels = self.medians - down * self.spread
            increment = max(float(levels[-1] - levels[0]), 0.01)
            shape = np.clip((levels[1:-1] - levels[0]) / increment, 0.0, 1.0)
            nuisance = [queued, math.log(self.spread), -4.0, math.log(self.spread * noise)]
            found.append(np.array([levels[0], math.log(increment), *nuisance, *shape]))
        return found

    def losses(self, thetas: Floats) -> Floats:
        """Minus log posterior at each row; the priors are those of ``ttft_fit``."""
        logit_queued, log_wait, log_ratio, log_noise = thetas[:, 2:_FIRST_SHAPE].T
        f = _levels(thetas)[:, self.classes.astype(np.int64)]
        spread = np.exp(log_ratio)[:, None] * np.abs(f) + np.exp(log_noise)[:, None]
        queued, wait = special.expit(logit_queued)[:, None], np.exp(log_wait)[:, None]
        share = _below(self.upper - f, spread, queued, wait) - _below(self.lower - f, spread, queued, wait)
        top = 2 * float(self.upper[np.isfinite(self.upper)].max(initial=1.0))
        flat = OUTLIERS * np.minimum(self.upper - self.lower, top) / top
        log_share = np.log(np.maximum((1 - OUTLIERS) * share, 0.0) + flat)
        scale, straight = math.log(self.spread), self._straight()
        prior = (
            ((logit_queued + 1.0) / 2.0) ** 2
            + ((log_wait - scale) / 1.5) ** 2
            + ((log_ratio + 4.0) / 1.5) ** 2
            + ((log_noise - scale + 1.0) / 1.5) ** 2
            + np.sum(((thetas[:, _FIRST_SHAPE:] - straight) / _SHAPE_SPREAD) ** 2, axis=1)
        )
        return np.asarray(0.5 * prior - log_share @ self.counts)

    def law(self, theta: Floats, covariance: Floats) -> TtftLaw:
        """The law at ``theta``, in seconds."""
        per_class = np.bincount(self.classes.astype(np.int64), self.counts)
        return TtftLaw(
            lengths=self.lengths,
            levels_s=_levels(theta) * self.scale_s,
            fewest=int(per_class[[0, -1]].min()),
            queued_ratio=float(special.expit(theta[2])),
            queue_mean_s=math.exp(theta[3]) * self.scale_s,
            noise_ratio=math.exp(theta[4]),
            noise_s=math.exp(theta[5]) * self.scale_s,
            curvature_error=MODEL_FACTOR * math.sqrt(covariance[1, 1]),
            bend_error_s=self._bend_error_s(theta, covariance),
        )

    def _straight(self) -> Floats:
        return np.asarray((self.lengths[1:-1] - self.lengths[0]) / (self.lengths[-1] - self.lengths[0]))

    def _bend_error_s(self, theta: Floats, covariance: Floats) -> float:
        if self.lengths.size < 3:
            return math.nan
        weights = parabola(self.lengths)[2] * math.exp(theta[1])
        slopes = np.zeros(theta.size)
        slopes[1] = weights @ _shape(theta)
        slopes[_FIRST_SHAPE:] = weights[1:-1]
        return MODEL_FACTOR * self.scale_s * math.sqrt(float(slopes @ covariance @ slopes))


def _below(z: Floats, spread: Floats, queued: Floats, wait: Floats) -> Floats:
    """P(noise + wait ≤ z)."""
    ratio = spread / wait
    tail = 0.5 * ratio**2 - z / wait + special.log_ndtr(z / spread - ratio)
    return np.asarray(special.ndtr(z / spread) - queued * np.exp(np.minimum(tail, 0.0)))


def _rows(shape: Binned, place: int) -> Floats:
    """(class, lower edge, upper edge, count) of the filled buckets."""
    filled = np.flatnonzero(shape.counts)
    edges = np.concatenate(([0.0], shape.edges, [np.inf]))
    return np.stack(
        (np.full(filled.size, float(place)), edges[filled], edges[filled + 1], shape.counts[filled])
    )


def _at(shape: Binned, q: float) -> float:
    """A quantile for a start: the edge of an open bucket where it has no value."""
    found = shape.quantile(q)
    known = [one for one in (found.value, found.low, found.high) if one is not None]
    return known[0] if known else float(shape.edges[0])


def _shape(thetas: Floats) -> Floats:
    ends = thetas[..., :1] * 0.0
    return np.concatenate((ends, thetas[..., _FIRST_SHAPE:], ends + 1.0), axis=-1)


def _levels(thetas: Floats) -> Floats:
    return np.asarray(thetas[..., :1] + np.exp(thetas[..., 1:2]) * _shape(thetas))
