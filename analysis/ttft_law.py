"""The law of the time to first token, fitted per tier: what a prompt costs, free of queue and network.

    TTFT = f(n) + W + e        f(n) = a + b·n + c·n²        (n: uncached prompt tokens)

W is the wait in the queue, e normal noise with spread σ·f + s0. The fixed part ``a`` holds network, ingest
and the rest of the step that was running; it moves by half a step between tiers of different batch and is never
compared. The increment D = f(n_high) − f(n_low) is prefill alone, and is a parameter of the fit:
f(n) = F + D·((1 − q)·u + q·u²) with u = (n − n_low)/(n_high − n_low).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from analysis import exgauss

Floats = npt.NDArray[np.float64]

OUTLIERS = 0.02
"""Share of requests that may lie anywhere: retransmissions, a stalled client, a server's hiccup."""
MODEL_FACTOR, MODEL_FLOOR = 1.3, 0.01
"""Measured on simulated servers: curvature alone is overconfident by a third, and 1 % of D is model error."""
FEWEST_REQUESTS = 12
FEWEST_PER_CLASS = 3
_THIN = 400  # requests on which starts are compared before one fit on all


@dataclass(frozen=True, slots=True)
class TtftLaw:
    """A fitted law. Times in s, lengths in tokens.

    ``curvature_error`` is the standard error of ln D that the likelihood's curvature gives, widened by
    ``MODEL_FACTOR``; ``log_increment_error`` adds the model's own error.
    """

    n_low: float
    n_high: float
    base_s: float
    increment_s: float
    bend: float
    queued_ratio: float
    queue_mean_s: float
    noise_ratio: float
    noise_s: float
    curvature_error: float
    bend_error: float
    """Standard error of ``bend``; NaN where two prompt lengths left it at 0."""

    @property
    def log_increment_error(self) -> float:
        """Standard error of ln D, model error included."""
        return math.hypot(self.curvature_error, MODEL_FLOOR)

    def coefficients(self) -> tuple[float, float, float]:
        """(a, b, c) of a + b·n + c·n²."""
        width = self.n_high - self.n_low
        c = self.increment_s * self.bend / width**2
        b = self.increment_s * (1 - self.bend) / width - 2 * c * self.n_low
        return self.base_s - b * self.n_low - c * self.n_low**2, b, c

    def ttft_s(self, prompt_tokens: Floats) -> Floats:
        """f(n): time to first token without queue and noise."""
        return _law(prompt_tokens, self.n_low, self.n_high, self.base_s, self.increment_s, self.bend)


def fit(prompt_tokens: Floats, ttft_s: Floats) -> TtftLaw | str:
    """Fit the law by maximum likelihood, or say in a sentence why it cannot be.

    Both arrays hold one value a request, none missing. Weak priors keep what the data cannot see (the mean wait
    of a queue that is never entered) from making the curvature singular; they are a tenth of one observation's
    worth on anything the data do see.
    """
    classes, counts = _classes(prompt_tokens)
    usable = classes[counts >= FEWEST_PER_CLASS]
    if prompt_tokens.size < FEWEST_REQUESTS:
        return f"{prompt_tokens.size} requests are too few for the TTFT law; it takes {FEWEST_REQUESTS}"
    if usable.size < 2 or usable[-1] < 1.5 * usable[0]:
        return "the prompt lengths are too much alike for the TTFT law; it takes two, at least 1.5× apart"
    problem = _Problem.of(prompt_tokens, ttft_s, float(usable[0]), float(usable[-1]), bent=usable.size > 2)
    found = _minimise(problem)
    return problem.law(found, _errors(problem, found))


@dataclass(frozen=True, slots=True)
class _Problem:
    """One data set in its own scale: TTFT in units of ``scale_s``, prompt lengths as u.

    Free parameters, in order: F, ln D, logit queued, ln μ, ln σ, ln s0, and q where three lengths allow it.
    """

    u: Floats
    ttft: Floats
    n_low: float
    n_high: float
    scale_s: float
    floor: float
    guess: Floats
    prior_mean: Floats
    prior_spread: Floats

    @classmethod
    def of(cls, n: Floats, ttft_s: Floats, n_low: float, n_high: float, *, bent: bool) -> "_Problem":
        scale_s = float(np.median(ttft_s))
        ttft = ttft_s / scale_s
        u = (n - n_low) / (n_high - n_low)
        base, increment, spread = _rough(u, ttft)
        guess = [base, math.log(increment), -1.0, math.log(spread), math.log(0.02), math.log(spread / 3)]
        spreads = [np.inf, np.inf, 2.0, 1.5, 1.5, 1.5]
        if bent:
            guess, spreads = [*guess, 0.05], [*spreads, np.inf]
        return cls(
            u=u,
            ttft=ttft,
            n_low=n_low,
            n_high=n_high,
            scale_s=scale_s,
            floor=OUTLIERS / (2 * float(ttft.max())),
            guess=np.array(guess),
            prior_mean=np.array(guess),
            prior_spread=np.array(spreads),
        )

    def thinned(self) -> "_Problem":
        step = max(1, self.u.size // _THIN)
        return _Problem(
            self.u[::step], self.ttft[::step], self.n_low, self.n_high, self.scale_s, self.floor,
            self.guess, self.prior_mean, self.prior_spread,
        )  # fmt: skip

    def loss(self, theta: Floats) -> float:
        """Minus log posterior."""
        base, log_increment, logit_queued, log_wait, log_ratio, log_noise = theta[:6]
        bend = theta[6] if theta.size > 6 else 0.0
        f = base + math.exp(log_increment) * ((1 - bend) * self.u + bend * self.u**2)
        spread = math.exp(log_ratio) * np.abs(f) + math.exp(log_noise)
        log_pdf = exgauss.log_wait_pdf(
            self.ttft - f,
            spread,
            float(special.expit(logit_queued)),
            math.exp(log_wait),
            self.floor / (1 - OUTLIERS),
        )
        prior = 0.5 * float(np.sum(((theta - self.prior_mean) / self.prior_spread) ** 2))
        return prior - float(log_pdf.sum())

    def law(self, theta: Floats, errors: Floats) -> TtftLaw:
        return TtftLaw(
            n_low=self.n_low,
            n_high=self.n_high,
            base_s=float(theta[0]) * self.scale_s,
            increment_s=math.exp(theta[1]) * self.scale_s,
            bend=float(theta[6]) if theta.size > 6 else 0.0,
            queued_ratio=float(special.expit(theta[2])),
            queue_mean_s=math.exp(theta[3]) * self.scale_s,
            noise_ratio=math.exp(theta[4]),
            noise_s=math.exp(theta[5]) * self.scale_s,
            curvature_error=MODEL_FACTOR * float(errors[1]),
            bend_error=MODEL_FACTOR * float(errors[6]) if theta.size > 6 else math.nan,
        )


def _law(n: Floats, n_low: float, n_high: float, base: float, increment: float, bend: float) -> Floats:
    u = (n - n_low) / (n_high - n_low)
    return np.asarray(base + increment * ((1 - bend) * u + bend * u**2))


def _classes(prompt_tokens: Floats) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Prompt lengths present (lengths within 2 % of one another are one class: tokenisers differ) and counts."""
    values = np.sort(prompt_tokens)
    group = np.concatenate(([0], np.cumsum(np.diff(values) > 0.02 * values[1:]))) if values.size else values
    labels, counts = np.unique(group, return_counts=True)
    return np.array([np.median(values[group == label]) for label in labels]), counts


def _rough(u: Floats, ttft: Floats) -> tuple[float, float, float]:
    """First guesses of base, increment and spread: lower quartiles, which queues hardly touch."""
    low, high = ttft[u <= np.quantile(u, 0.25)], ttft[u >= np.quantile(u, 0.75)]
    base, top = np.quantile(low, 0.25), np.quantile(high, 0.25)
    spread = np.mean([np.quantile(part, 0.5) - np.quantile(part, 0.1) for part in (low, high)])
    return float(base), max(float(top - base), 0.01), min(max(float(spread), 0.005), 1.0)


def _minimise(problem: _Problem) -> Floats:
    thin = problem.thinned()
    starts = [problem.guess]
    for queued, wait in ((1.0, 1.0), (-3.0, -1.0)):
        start = problem.guess.copy()
        start[2], start[3] = queued, start[3] + wait
        starts.append(start)
    tried = [_descend(thin, start) for start in starts]
    best = min(tried, key=thin.loss)
    return best if thin.u.size == problem.u.size else _descend(problem, best)


def _descend(problem: _Problem, start: Floats) -> Floats:
    bounds = [(None, None), (-8, 8), (-8, 8), (-9, 5), (-12, 0), (-12, 2), (-1, 1)][: start.size]
    return np.asarray(optimize.minimize(problem.loss, start, method="L-BFGS-B", bounds=bounds).x)


def _errors(problem: _Problem, theta: Floats) -> Floats:
    """Standard errors of the parameters from the curvature at the optimum."""
    values, vectors = np.linalg.eigh(_hessian(problem, theta))
    # A direction without curvature is one that the data do not bound: its variance is large, not dropped.
    return np.asarray(np.sqrt(vectors**2 @ (1 / np.maximum(values, 1e-6))))


def _hessian(problem: _Problem, theta: Floats, step: float = 1e-3) -> Floats:
    size = theta.size
    shift = np.eye(size) * step
    hessian = np.empty((size, size))
    centre = problem.loss(theta)
    ahead = [problem.loss(theta + shift[i]) for i in range(size)]
    behind = [problem.loss(theta - shift[i]) for i in range(size)]
    for i in range(size):
        hessian[i, i] = (ahead[i] - 2 * centre + behind[i]) / step**2
        for j in range(i):
            both = problem.loss(theta + shift[i] + shift[j]) + problem.loss(theta - shift[i] - shift[j])
            single = ahead[i] + behind[i] + ahead[j] + behind[j]
            hessian[i, j] = hessian[j, i] = (both - single + 2 * centre) / (2 * step**2)
    return hessian
