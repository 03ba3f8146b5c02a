"""The law of the time to first token, fitted per tier: what a prompt costs, free of queue and network.

    TTFT = f(n) + W + e        f(n) = a + b·n + c·n²        (n: uncached prompt tokens)

W is the wait in the queue: 0, or exponential with mean μ if the request is queued. e is normal noise with
spread σ·f + s0. The fixed part ``a`` holds network, ingest and the rest of the step that was running; it
moves by half a step between tiers of different batch and is never compared. The increment D = f(n_high) −
f(n_low) is prefill alone, and is a parameter of the fit: f(n) = F + D·((1 − q)·u + q·u²) with u = (n −
n_low)/(n_high − n_low).
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from analysis import exgauss, likelihood

Floats = npt.NDArray[np.float64]

OUTLIERS = 0.02
"""Share of requests that may lie anywhere: retransmissions, a stalled client, a server's hiccup."""
MODEL_FACTOR, MODEL_FLOOR = 1.3, 0.01
"""Curvature alone is overconfident by a third on simulated servers, and 1 % of D is the model's own error."""
FEWEST_REQUESTS, FEWEST_AT_A_LENGTH = 12, 3
LEAST_SPAN = 1.5
_THIN = 400  # requests on which starts are compared, before one descent on all of them
_BOUNDS = [(None, None), (-8, 8), (-8, 8), (-9, 5), (-12, 0), (-12, 2), (-1, 1)]


@dataclass(frozen=True, slots=True)
class TtftLaw:
    """A fitted law. Times in s, lengths in tokens; n_low and n_high hold 90 % of the prompts between them."""

    n_low: float
    n_high: float
    base_s: float
    """f(n_low)."""
    increment_s: float
    """D = f(n_high) − f(n_low)."""
    bend: float
    """q: share of D that is quadratic in n."""
    queued_ratio: float
    queue_mean_s: float
    """μ, of those that queue."""
    noise_ratio: float
    noise_s: float
    curvature_error: float
    """Standard error of ln D by the likelihood's curvature, times ``MODEL_FACTOR``."""
    bend_error: float
    """Standard error of q; NaN where no length lay between the ends and q is 0."""

    @property
    def log_increment_error(self) -> float:
        """Standard error of ln D, the model's own error included."""
        return math.hypot(self.curvature_error, MODEL_FLOOR)

    def coefficients(self) -> tuple[float, float, float]:
        """(a, b, c) of a + b·n + c·n²."""
        width = self.n_high - self.n_low
        c = self.increment_s * self.bend / width**2
        b = self.increment_s * (1 - self.bend) / width - 2 * c * self.n_low
        return self.base_s - b * self.n_low - c * self.n_low**2, b, c

    def ttft_s(self, prompt_tokens: Floats) -> Floats:
        """f(n): time to first token without queue and noise."""
        u = (prompt_tokens - self.n_low) / (self.n_high - self.n_low)
        return np.asarray(self.base_s + self.increment_s * ((1 - self.bend) * u + self.bend * u**2))


def fit(prompt_tokens: Floats, ttft_s: Floats) -> TtftLaw | str:
    """Fit the law by maximum likelihood, or say in a clause why it cannot be.

    Both arrays hold one positive value a request. Weak priors keep what the data cannot see (the mean wait of
    a queue that is never entered) from making the curvature singular.
    """
    if prompt_tokens.size < FEWEST_REQUESTS:
        return (
            f"{prompt_tokens.size} answered requests are too few for the TTFT law; it takes {FEWEST_REQUESTS}"
        )
    low, high = (float(end) for end in np.quantile(prompt_tokens, [0.05, 0.95]))
    if high < LEAST_SPAN * max(low, 1.0):
        return f"the TTFT law takes prompt lengths that are {LEAST_SPAN} times apart at least"
    problem = _Problem.of(prompt_tokens, ttft_s, low, high)
    short, middle, long = (int(count) for count in np.histogram(problem.u, [-np.inf, 0.1, 0.9, np.inf])[0])
    if min(short, long) < FEWEST_AT_A_LENGTH:
        return f"the TTFT law takes {FEWEST_AT_A_LENGTH} requests at either end of the prompt lengths"
    starts = problem.starts(bent=middle >= FEWEST_AT_A_LENGTH)
    bounds = _BOUNDS[: starts[0].size]
    thin = problem.thinned()
    found = likelihood.descend(thin.loss, starts, bounds, scale=thin.u.size)
    if thin.u.size < problem.u.size:
        found = likelihood.descend(problem.loss, [found], bounds, scale=problem.u.size)
    return problem.law(found, likelihood.standard_errors(problem.loss, found))


@dataclass(frozen=True, slots=True)
class _Problem:
    """One data set in its own scale: TTFT in units of ``scale_s``, prompt lengths as u.

    Free parameters, in order: F, ln D, logit of the queued share, ln μ, ln σ, ln s0, and q where there are
    lengths between the ends.
    """

    u: Floats
    ttft: Floats
    n_low: float
    n_high: float
    scale_s: float
    spread: float
    """Rough scatter of TTFT at one length: the scale of the priors of μ and s0."""

    @classmethod
    def of(cls, n: Floats, ttft_s: Floats, n_low: float, n_high: float) -> "_Problem":
        scale_s = float(np.median(ttft_s))
        u, ttft = (n - n_low) / (n_high - n_low), ttft_s / scale_s
        ends = [ttft[u <= np.quantile(u, 0.25)], ttft[u >= np.quantile(u, 0.75)]]
        spread = float(np.mean([np.quantile(end, 0.5) - np.quantile(end, 0.1) for end in ends]))
        return cls(u, ttft, n_low, n_high, scale_s, min(max(spread, 0.005), 1.0))

    def thinned(self) -> "_Problem":
        step = max(1, self.u.size // _THIN)
        return replace(self, u=self.u[::step], ttft=self.ttft[::step])

    def starts(self, *, bent: bool) -> list[Floats]:
        """Where to descend from: laws through several quantiles, each with a queue for what is above."""
        low, high = (
            self.ttft[self.u <= np.quantile(self.u, 0.25)],
            self.ttft[self.u >= np.quantile(self.u, 0.75)],
        )
        found = []
        for q, queued, noise in ((0.05, 1.0, 0.1), (0.25, 0.0, 0.3), (0.25, -2.0, 0.5), (0.5, -3.0, 1.0)):
            base = float(np.quantile(low, q))
            increment = max(float(np.quantile(high, q)) - base, 0.01)
            wait = max(float(np.mean(low)) - base, self.spread)
            start = [base, math.log(increment), queued, math.log(wait), -4.0, math.log(self.spread * noise)]
            found.append(np.array([*start, 0.05] if bent else start))
        return found

    def loss(self, theta: Floats) -> float:
        """Minus log posterior."""
        base, log_increment, logit_queued, log_wait, log_ratio, log_noise = theta[:6]
        bend = theta[6] if theta.size > 6 else 0.0
        f = base + math.exp(log_increment) * ((1 - bend) * self.u + bend * self.u**2)
        log_pdf = exgauss.log_wait_pdf(
            self.ttft - f,
            math.exp(log_ratio) * np.abs(f) + math.exp(log_noise),
            float(special.expit(logit_queued)),
            math.exp(log_wait),
            OUTLIERS / (1 - OUTLIERS) / (2 * float(self.ttft.max())),
        )
        scale = math.log(self.spread)
        prior = (
            ((logit_queued + 1.0) / 2.0) ** 2
            + ((log_wait - scale) / 1.5) ** 2
            + ((log_ratio + 4.0) / 1.5) ** 2
            + ((log_noise - scale + 1.0) / 1.5) ** 2
        )
        return float(0.5 * prior - log_pdf.sum())

    def law(self, theta: Floats, errors: Floats) -> TtftLaw:
        """The law at ``theta``, in seconds."""
        bent = theta.size > 6
        return TtftLaw(
            n_low=self.n_low,
            n_high=self.n_high,
            base_s=float(theta[0]) * self.scale_s,
            increment_s=math.exp(theta[1]) * self.scale_s,
            bend=float(theta[6]) if bent else 0.0,
            queued_ratio=float(special.expit(theta[2])),
            queue_mean_s=math.exp(theta[3]) * self.scale_s,
            noise_ratio=math.exp(theta[4]),
            noise_s=math.exp(theta[5]) * self.scale_s,
            curvature_error=MODEL_FACTOR * float(errors[1]),
            bend_error=MODEL_FACTOR * float(errors[6]) if bent else math.nan,
        )
