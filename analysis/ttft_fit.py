"""The TTFT law fitted to one tier's requests by maximum likelihood.

The increment is a parameter of its own, f = F + D·g with g = 0 and 1 at the ends, so that its error is read
off the curvature of the likelihood without detours.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from analysis import exgauss, likelihood
from analysis.ttft_law import MODEL_FACTOR, Floats, TtftLaw, parabola

OUTLIERS = 0.02
"""Share of requests that may lie anywhere: retransmissions, a stalled client, a server's hiccup."""
FEWEST_REQUESTS, FEWEST_AT_A_LENGTH = 12, 3
LEAST_SPAN = 1.5
MOST_KNOTS = 8
_THIN = 400  # requests on which starts are compared, before one descent on all of them
_FIRST_SHAPE = 6  # place of the first interior knot among the parameters
_BOUNDS = [(None, None), (-8, 8), (-8, 8), (-9, 5), (-12, 0), (-12, 2), *[(0, 1)] * MOST_KNOTS]
_FALL_SPREAD = 0.02  # of the prior against g falling: a longer prompt does not take less
_SHAPE_SPREAD = 0.15  # of the prior of g about a straight line: a pure n² bends by 0.25, a stair by 0.2


def fit(prompt_tokens: Floats, ttft_s: Floats) -> TtftLaw | str:
    """Fit the law by maximum likelihood, or say in a clause why it cannot be.

    Both arrays hold one positive value a request. Weak priors keep what the data cannot see (the mean wait of
    a queue that is never entered) from making the curvature singular, and a queue
    from passing for prefill.
    """
    if prompt_tokens.size < FEWEST_REQUESTS:
        return f"{prompt_tokens.size} answers are too few for the TTFT law; it takes {FEWEST_REQUESTS}"
    lengths = knots(prompt_tokens)
    if lengths.size < 2 or lengths[-1] < LEAST_SPAN * max(lengths[0], 1.0):
        return (
            f"the TTFT law takes prompt lengths {LEAST_SPAN} times apart, {FEWEST_AT_A_LENGTH} requests each"
        )
    problem = _Problem.of(prompt_tokens, ttft_s, lengths)
    starts, thin = problem.starts(), problem.thinned()
    bounds = _BOUNDS[: starts[0].size]
    found = likelihood.descend(thin.losses, starts, bounds, scale=thin.ttft.size)
    if thin.ttft.size < problem.ttft.size:
        found = likelihood.descend(problem.losses, [found], bounds, scale=problem.ttft.size)
    return problem.law(found, likelihood.covariance(problem.losses, found))


def knots(prompt_tokens: Floats) -> Floats:
    """Lengths between which f is straight: those asked, if few and each asked often, else quantiles.

    Lengths within 2 % of one another are one (tokenisers count differently).
    """
    values = np.sort(prompt_tokens)
    group = np.concatenate(([0], np.cumsum(np.diff(values) > 0.02 * np.maximum(values[:-1], 1.0))))
    counts = np.bincount(group)
    means = np.bincount(group, values) / counts
    often = counts >= FEWEST_AT_A_LENGTH
    if (
        often.sum() <= MOST_KNOTS
        and counts[often].sum() >= 0.9 * values.size
        and means.size < values.size / 3
    ):
        return np.asarray(means[often])
    spread = np.unique(np.quantile(values, [0.05, 0.35, 0.65, 0.95]))
    nearest = np.abs(values[:, None] - spread).argmin(axis=1)
    return spread[np.bincount(nearest, minlength=spread.size) >= FEWEST_AT_A_LENGTH]


@dataclass(frozen=True, slots=True)
class _Problem:
    """One data set in its own scale: TTFT in units of ``scale_s``.

    Free parameters, in order: F, ln D, logit of the queued share, ln μ, ln σ, ln s0, and g at the inner
    knots. ``weights`` has a row a request: how much of each knot's level is in its f.
    """

    lengths: Floats
    weights: Floats
    ttft: Floats
    scale_s: float
    spread: float
    """Rough scatter of TTFT at one length: the scale of the priors of μ and s0."""

    @classmethod
    def of(cls, n: Floats, ttft_s: Floats, lengths: Floats) -> "_Problem":
        scale_s = float(np.median(ttft_s))
        weights = np.stack([np.interp(n, lengths, hat) for hat in np.eye(lengths.size)], axis=1)
        problem = cls(lengths, weights, ttft_s / scale_s, scale_s, 1.0)
        spreads = problem.level(0.5) - problem.level(0.1)
        return replace(problem, spread=min(max(float(np.mean(spreads)), 0.005), 1.0))

    @property
    def straight(self) -> Floats:
        """Shape g at the inner knots if f were one straight line."""
        return np.asarray((self.lengths[1:-1] - self.lengths[0]) / (self.lengths[-1] - self.lengths[0]))

    def level(self, q: float) -> Floats:
        """The ``q`` quantile of TTFT of the requests nearest to each knot."""
        nearest = self.weights.argmax(axis=1)
        return np.array([np.quantile(self.ttft[nearest == knot], q) for knot in range(self.lengths.size)])

    def thinned(self) -> "_Problem":
        step = max(1, self.ttft.size // _THIN)
        return replace(self, weights=self.weights[::step], ttft=self.ttft[::step])

    def starts(self) -> list[Floats]:
        """Where to descend from: laws through several quantiles, each with a queue for what is above."""
        found = []
        for q, queued, noise in ((0.05, 1.0, 0.1), (0.25, 0.0, 0.3), (0.25, -2.0, 0.5), (0.5, -3.0, 1.0)):
            levels = self.level(q)
            increment = max(float(levels[-1] - levels[0]), 0.01)
            wait = max(float(np.mean(self.ttft - self.weights @ levels)), self.spread)
            shape = np.clip((levels[1:-1] - levels[0]) / increment, 0.0, 1.0)
            nuisance = [queued, math.log(wait), -4.0, math.log(self.spread * noise)]
            found.append(np.array([levels[0], math.log(increment), *nuisance, *shape]))
        return found

    def losses(self, thetas: Floats) -> Floats:
        """Minus log posterior at each row."""
        logit_queued, log_wait, log_ratio, log_noise = thetas[:, 2:_FIRST_SHAPE].T
        f = _levels(thetas) @ self.weights.T
        log_pdf = exgauss.log_wait_pdf(
            self.ttft - f,
            np.exp(log_ratio)[:, None] * np.abs(f) + np.exp(log_noise)[:, None],
            special.expit(logit_queued)[:, None],
            np.exp(log_wait)[:, None],
            OUTLIERS / (1 - OUTLIERS) / (2 * float(self.ttft.max())),
        )
        scale = math.log(self.spread)
        prior = (
            ((logit_queued + 1.0) / 2.0) ** 2
            + ((log_wait - scale) / 1.5) ** 2
            + ((log_ratio + 4.0) / 1.5) ** 2
            + ((log_noise - scale + 1.0) / 1.5) ** 2
            + np.sum(((thetas[:, _FIRST_SHAPE:] - self.straight) / _SHAPE_SPREAD) ** 2, axis=1)
            + np.sum((np.minimum(np.diff(_shape(thetas)), 0.0) / _FALL_SPREAD) ** 2, axis=1)
        )
        return np.asarray(0.5 * prior - log_pdf.sum(axis=1))

    def law(self, theta: Floats, covariance: Floats) -> TtftLaw:
        """The law at ``theta``, in seconds."""
        return TtftLaw(
            lengths=self.lengths,
            levels_s=_levels(theta) * self.scale_s,
            fewest=int(np.bincount(self.weights.argmax(axis=1), minlength=self.lengths.size)[[0, -1]].min()),
            queued_ratio=float(special.expit(theta[2])),
            queue_mean_s=math.exp(theta[3]) * self.scale_s,
            noise_ratio=math.exp(theta[4]),
            noise_s=math.exp(theta[5]) * self.scale_s,
            curvature_error=MODEL_FACTOR * math.sqrt(covariance[1, 1]),
            bend_error_s=self._bend_error_s(theta, covariance),
        )

    def _bend_error_s(self, theta: Floats, covariance: Floats) -> float:
        if self.lengths.size < 3:
            return math.nan
        weights = parabola(self.lengths)[2] * math.exp(theta[1])
        slopes = np.zeros(theta.size)  # of the quadratic coefficient against each parameter
        slopes[1] = weights @ _shape(theta)
        slopes[_FIRST_SHAPE:] = weights[1:-1]
        return MODEL_FACTOR * self.scale_s * math.sqrt(float(slopes @ covariance @ slopes))


def _shape(thetas: Floats) -> Floats:
    """Shape g at all knots: of one set of parameters, or of each row of them."""
    ends = thetas[..., :1] * 0.0
    return np.concatenate((ends, thetas[..., _FIRST_SHAPE:], ends + 1.0), axis=-1)


def _levels(thetas: Floats) -> Floats:
    return np.asarray(thetas[..., :1] + np.exp(thetas[..., 1:2]) * _shape(thetas))
