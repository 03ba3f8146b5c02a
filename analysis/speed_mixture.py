"""One speed or two? A mixture of two Student t laws whose slower one is known. Pure.

Log times per token of a fast tier are either of that tier or, where another tier served in silence, of the
other, whose law is known from that tier's own requests. Tails are those of t with four degrees of freedom, so
that a request stalled by others is not taken for a slower tier.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from analysis.ragged import Bools, Floats

FREEDOM = 4.0
LEAST_SPREAD = 0.004
"""Smallest scale of a law: half a per cent is the least that a step is known to."""
FEWEST = 8
CLEARLY_BETTER = 10.0
"""Difference of BIC from which two speeds are believed."""
_ROUNDS, _MOST = 200, 4000
_CONSTANT = math.lgamma((FREEDOM + 1) / 2) - math.lgamma(FREEDOM / 2) - 0.5 * math.log(FREEDOM * math.pi)


@dataclass(frozen=True, slots=True)
class Law:
    """A t law of log seconds per token."""

    centre: float
    spread: float

    def log_pdf(self, x: Floats) -> Floats:
        """Log density at ``x``."""
        z = (x - self.centre) / self.spread
        return np.asarray(_CONSTANT - math.log(self.spread) - (FREEDOM + 1) / 2 * np.log1p(z * z / FREEDOM))


@dataclass(frozen=True, slots=True)
class Mixture:
    """What of a sample is of the known law and what is of a faster one."""

    share: float
    """Of the known, slower law."""
    slow: Law
    fast: Law
    supported: bool
    """Whether two laws explain the sample clearly better than the fast one alone."""

    def score(self, x: Floats) -> Floats:
        """Log likelihood ratio, slow over fast."""
        return self.slow.log_pdf(x) - self.fast.log_pdf(x)

    def probability(self, x: Floats) -> Floats:
        """Probability of each value to be of the slow law."""
        if not self.supported:
            return np.zeros(x.size)
        prior = min(max(self.share, 1e-6), 1 - 1e-6)
        return np.asarray(special.expit(self.score(x) + special.logit(prior)))


def fit_law(x: Floats) -> Law:
    """The t law nearest to a sample, by its EM; ``x`` is not empty."""
    x = _thinned(x)
    centre = float(np.median(x))
    law = Law(centre, max(1.4826 * float(np.median(np.abs(x - centre))), LEAST_SPREAD))
    for _ in range(_ROUNDS):
        before, law = law, _nearer(law, x, np.ones(x.size))
        if _still(before, law):
            break
    return law


def _nearer(law: Law, x: Floats, weight: Floats) -> Law:
    """One round of EM: values far out pull less."""
    z = (x - law.centre) / law.spread
    pull = weight * (FREEDOM + 1) / (FREEDOM + z * z)
    centre = float(pull @ x / pull.sum())
    spread = math.sqrt(float(pull @ (x - centre) ** 2) / float(weight.sum()))
    return Law(centre, max(spread, LEAST_SPREAD))


def _still(before: Law, after: Law) -> bool:
    return max(abs(after.centre - before.centre), abs(after.spread - before.spread)) < 1e-6 * after.spread


def _thinned(x: Floats) -> Floats:
    """At most ``_MOST`` values, evenly taken."""
    return x[:: -(-x.size // _MOST)]


def fit(x: Floats, slow: Law, *, least_gap: float) -> Mixture:
    """Split a sample into the law ``slow`` and one that is faster by at least ``least_gap`` (of logarithms).

    ``x`` has at least ``FEWEST`` values. Where two laws are no clear gain, all of it is of the fast one.
    """
    x = _thinned(x)
    alone = fit_law(x)
    single = float(alone.log_pdf(x).sum())
    best, best_log = Mixture(0.0, slow, alone, supported=False), -math.inf
    for quantile in (0.05, 0.25, 0.5, 0.75):
        found, log = _descend(x, slow, float(np.quantile(x, quantile)), least_gap)
        if found is not None and log > best_log:
            best, best_log = found, log
    gain = 2 * (best_log - single) - math.log(x.size)
    if gain > CLEARLY_BETTER:
        return best
    return Mixture(0.0, slow, alone, supported=False)


def _descend(x: Floats, slow: Law, start: float, least_gap: float) -> tuple[Mixture | None, float]:
    """EM from a first guess of the fast centre; None where the two would be too close."""
    fast, share = Law(min(start, slow.centre - least_gap), slow.spread), 0.5
    for _ in range(_ROUNDS):
        part = Mixture(share, slow, fast, supported=True).probability(x)
        if part.sum() > x.size - 2:
            return None, -math.inf
        before, share, fast = fast, float(part.mean()), _nearer(fast, x, 1 - part)
        if _still(before, fast):
            break
    if slow.centre - fast.centre < least_gap:
        return None, -math.inf
    both = np.logaddexp(
        slow.log_pdf(x) + math.log(max(share, 1e-9)), fast.log_pdf(x) + math.log(max(1 - share, 1e-9))
    )
    return Mixture(share, slow, fast, supported=True), float(both.sum())


def moments(score: Floats, *, alarm: float = 6.0, clip: float = 4.0) -> Bools:
    """True from where a series turned slow to where it turned fast again, by a two-sided CUSUM.

    The sum of clipped log likelihood ratios starts anew whenever it falls below 0; at ``alarm`` the series
    has turned, at the value after the sum's latest start (Page, Biometrika 41, 1954).
    """
    turned = np.zeros(score.size, dtype=np.bool_)
    slow, total, start = False, 0.0, 0
    for place, step in enumerate(np.clip(score, -clip, clip).tolist()):
        total += -step if slow else step
        if total <= 0:
            total, start = 0.0, place + 1
        elif total >= alarm:
            slow = not slow
            turned[start:] = slow
            total, start = 0.0, place + 1
    return turned
