"""The law of the time to first token: what a prompt costs, free of queue and network.

    TTFT = f(n) + W + e        n: uncached prompt tokens

W is the wait in the queue: 0, or exponential with mean μ if the request is queued. e is normal noise with
spread σ·f + s0. f rises in straight lines between knots at the prompt lengths that were asked, so that it
bends with attention's n² and jumps with a server's chunks as it will; a parabola forced through a stair would
invent a difference where there is none. The fixed part of f holds network, ingest and the rest of the step
that was running; it moves by half a step between tiers of different batch and is never compared. The
increment D = f(n_high) − f(n_low) is prefill alone.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MODEL_FACTOR, MODEL_FLOOR = 1.3, 0.01
"""Curvature alone is overconfident by a third on simulated servers, and 1 % of D is the model's own error."""


@dataclass(frozen=True, slots=True)
class TtftLaw:
    """A fitted law. Times in s, lengths in tokens; arrays have one value a knot."""

    lengths: Floats
    """Knots, ascending; the first and last are n_low and n_high."""
    levels_s: Floats
    """f at the knots."""
    fewest: int
    """Requests at the end, shortest or longest, that has fewer of them."""
    queued_ratio: float
    queue_mean_s: float
    """μ, of those that queue."""
    noise_ratio: float
    noise_s: float
    curvature_error: float
    """Standard error of ln D by the likelihood's curvature, times ``MODEL_FACTOR``."""
    bend_error_s: float
    """Standard error of the quadratic coefficient, s per token²; NaN with two knots."""

    @property
    def n_low(self) -> float:
        """Shortest prompt of the law."""
        return float(self.lengths[0])

    @property
    def n_high(self) -> float:
        """Longest prompt of the law."""
        return float(self.lengths[-1])

    @property
    def increment_s(self) -> float:
        """D = f(n_high) − f(n_low)."""
        return float(self.levels_s[-1] - self.levels_s[0])

    @property
    def log_increment_error(self) -> float:
        """Standard error of ln D, the model's own error included."""
        return math.hypot(self.curvature_error, MODEL_FLOOR)

    @property
    def mean_wait_s(self) -> float:
        """Mean wait in the queue over all requests."""
        return self.queued_ratio * self.queue_mean_s

    def coefficients(self) -> tuple[float, float, float]:
        """(a, b, c) of the parabola a + b·n + c·n² nearest to the knots; c is 0 with two of them."""
        a, b, c = (parabola(self.lengths) @ self.levels_s).tolist()
        return a, b, c

    def ttft_s(self, prompt_tokens: Floats) -> Floats:
        """f(n) between the knots; beyond them its ends."""
        return np.interp(prompt_tokens, self.lengths, self.levels_s)


def parabola(lengths: Floats) -> Floats:
    """Matrix that takes levels at the knots to (a, b, c) by least squares; c is 0 with two knots."""
    scale = lengths[-1]
    powers = np.vander(lengths / scale, min(3, lengths.size), increasing=True)
    solved = np.linalg.pinv(powers) / scale ** np.arange(powers.shape[1])[:, None]
    return solved if lengths.size > 2 else np.vstack([solved, np.zeros(2)])
