"""The law of a step, fitted to the levels of a sweep: time against batch and mean context.

    t(B, c) = ((W + e·(1 − (1 − q)^B) + κ·B·c)⁴ + (f·B)⁴)^¼ + o + s·B

W bytes of weights, e those of experts that the batch touches, κ of a token of KV, each over bandwidth; f
arithmetic of a sequence; o and s overheads of a step and of a sequence. Four families, from a straight line
to all of it, and BIC says which the data can carry. Coefficients are not negative. Residuals are those of
ln t, with the level as the unit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from analysis.intervals import Floats
from analysis.model import Curve
from analysis.sweep import Level

FAMILIES: dict[str, tuple[int, ...]] = {
    "linear": (0, 3, 6),
    "experts": (0, 1, 2, 3, 6),
    "knee": (0, 3, 4, 5, 6),
    "experts and knee": (0, 1, 2, 3, 4, 5, 6),
}
"""Free parameters, places in ``NAMES``; the others are 0."""
NAMES = ("W", "e", "q", "κ", "f", "o", "s")
FLOOR = 0.005
"""Least error of ln t of a level: what the model itself is worth."""
BETTER = 2.0
"""By so much must BIC fall for a richer family."""
FEWEST_LEVELS = 4
_LARGEST_Q = 0.9
_HUBER = 2.0
_DRAWN = 60
_QS = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.35, 0.6)
_NUDGE, _FURTHEST, _LEAST_KNOWN = 1e-4, 3.0, 1e-4


@dataclass(frozen=True, slots=True)
class StepLaw:
    """A fitted law: all parameters (times in s), covariance of the scaled free ones."""

    family: str
    theta: Floats
    """In the order of ``NAMES``."""
    covariance: Floats
    """Of the free parameters, relative to ``scale``."""
    scale: Floats
    misfit: float
    """Standard deviation of what is left of ln t: a server of another law has a large one."""
    smallest: float
    largest: float
    """Batches between which it was measured."""

    def step_s(self, batch: Floats | float, context_tokens: Floats | float) -> Floats:
        """Time of a step with ``batch`` sequences of this mean context."""
        return formula(self.theta, np.asarray(batch, dtype=np.float64), np.asarray(context_tokens))

    def drawn_steps_s(self, batch: Floats, contexts: Floats, rng: np.random.Generator) -> Floats:
        """Curves over ``batch`` as likely as the data leave them, one row for each of ``contexts``.

        ln t moves with the coefficients in first order: drawing coefficients and cutting them off at 0 would
        tear apart those that only together are known.
        """
        free = list(FAMILIES[self.family])
        values, vectors = np.linalg.eigh(self.covariance)
        normal = rng.standard_normal((contexts.size, len(free)))
        moved = normal * np.sqrt(np.maximum(values, 0.0)) @ vectors.T
        centre = self.step_s(batch, contexts[:, None])
        log_change = np.zeros(centre.shape)
        for place, (parameter, scale) in enumerate(zip(free, self.scale.tolist(), strict=True)):
            nudged = self.theta.copy()
            nudged[parameter] += _NUDGE * scale
            slope = np.log(formula(nudged, batch, contexts[:, None]) / centre) / _NUDGE
            log_change += slope * moved[:, place, None]
        return np.asarray(centre * np.exp(np.clip(log_change, -_FURTHEST, _FURTHEST)))


def formula(theta: Floats, batch: Floats, context_tokens: Floats) -> Floats:
    """t(B, c) of one set of parameters, or of each where the last axis of ``theta`` holds them."""
    weights, experts, q, kv, compute, overhead, sequence = np.moveaxis(np.asarray(theta), -1, 0)
    memory = weights + experts * (1 - (1 - q) ** batch) + kv * batch * context_tokens
    busy = (memory**4 + (compute * batch) ** 4) ** 0.25
    return np.asarray(busy + overhead + sequence * batch)


def fit(levels: Sequence[Level]) -> StepLaw | str:
    """Fit all families to levels of own streams alone, or say in a clause why none can be."""
    used = [one for one in levels if one.step_s.value is not None and one.active > 0 and one.context_tokens]
    batch = np.array([one.active for one in used], dtype=np.float64)
    if np.unique(batch).size < FEWEST_LEVELS:
        return f"{np.unique(batch).size} batches are too few for a law of the step; it takes {FEWEST_LEVELS}"
    context = np.array([one.context_tokens for one in used])
    log_step = np.log(np.array([one.step_s.value for one in used], dtype=np.float64))
    error = np.array([_error(one) for one in used])
    best: StepLaw | None = None
    best_bic = math.inf
    for family, free in FAMILIES.items():
        if len(free) > batch.size - 1:
            continue
        law, loss = _fit(family, free, batch, context, log_step, error)
        bic = loss + len(free) * math.log(batch.size)
        if bic < best_bic - (BETTER if best is not None else 0.0):
            best, best_bic = law, bic
    return best if best is not None else "the levels are too few for any law of the step"


def curve(tier: str, levels: Sequence[Level]) -> Curve | None:
    """The fitted step against batch at the levels' median context, for drawing; None without a law."""
    law = fit(levels) if levels else ""
    if isinstance(law, str):
        return None
    context = float(np.median([one.context_tokens for one in levels if one.context_tokens]))
    batch = np.geomspace(law.smallest, law.largest, _DRAWN)
    return Curve(name=tier, x=batch.tolist(), y=law.step_s(batch, context).tolist())


def _error(level: Level) -> float:
    found = level.step_s
    if found.low is None or found.high is None or not found.low > 0:
        return 2 * FLOOR
    return math.hypot(FLOOR, math.log(found.high / found.low) / 4)


def _fit(
    family: str, free: tuple[int, ...], batch: Floats, context: Floats, log_step: Floats, error: Floats
) -> tuple[StepLaw, float]:
    """The best of a few descents; the loss is twice that of Huber's, in units of the errors."""
    step = np.exp(log_step)
    shortest, most = float(step.min()), float(batch.max())
    scale = np.array([shortest, shortest, 0.1, shortest / float((batch * context).max()),
                      shortest / most, shortest, shortest / most])[list(free)]  # fmt: skip

    def residuals(x: Floats) -> Floats:
        """One row for each row of free parameters."""
        theta = np.zeros((x.shape[0], len(NAMES)))
        theta[:, list(free)] = x * scale
        return np.asarray((np.log(formula(theta[:, None, :], batch, context)) - log_step) / error)

    def residual(x: Floats) -> Floats:
        return np.asarray(residuals(x[None])[0])

    def slopes(x: Floats) -> Floats:
        rows = residuals(np.concatenate((x[None], x + _NUDGE * np.eye(x.size))))
        return np.asarray((rows[1:] - rows[0]).T / _NUDGE)

    top = np.array([_LARGEST_Q / 0.1 if place == 2 else 1e4 for place in free])
    starts = [
        np.clip(start[list(free)] / scale, 1e-6, top - 1e-6)
        for start in _starts(free, batch, context, step, error)
    ]
    found = [
        optimize.least_squares(
            residual, start, jac=slopes, bounds=(0.0, top), loss="huber", f_scale=_HUBER, max_nfev=100
        )
        for start in starts
    ]
    best = min(found, key=lambda one: float(one.cost))
    theta = np.zeros(len(NAMES))
    theta[list(free)] = best.x * scale
    jacobian = np.asarray(best.jac)
    freedom = max(1, batch.size - len(free))
    inflated = max(1.0, 2 * float(best.cost) / freedom)
    covariance = inflated * np.linalg.inv(jacobian.T @ jacobian + _LEAST_KNOWN * np.eye(len(free)))
    covariance = (covariance + covariance.T) / 2
    misfit = float(np.sqrt(np.sum((residual(best.x) * error) ** 2) / freedom))
    law = StepLaw(family, theta, covariance, scale, misfit, float(batch.min()), most)
    return law, 2 * float(best.cost)


def _starts(
    free: tuple[int, ...], batch: Floats, context: Floats, step: Floats, error: Floats
) -> list[Floats]:
    """Where to descend from: the best law without a knee, which is linear once q is given, and its variants.

    Least squares without negative coefficients (Lawson and Hanson, 1974) in relative errors, for each of
    some q; a knee starts with half of the slope as arithmetic.
    """
    weight = 1 / (step * error)
    found: list[tuple[float, Floats]] = []
    for q in _QS if 1 in free else (0.0,):
        columns = [np.ones(batch.size), 1 - (1 - q) ** batch, batch * context, batch]
        solved, loss = optimize.nnls(np.stack(columns, axis=1) * weight[:, None], step * weight)
        theta = np.zeros(len(NAMES))
        theta[[0, 1, 3, 6]], theta[2] = solved, q
        found.append((float(loss), theta))
    found.sort(key=lambda one: one[0])
    starts = [theta for _, theta in found[:2]]
    if 4 in free:
        for theta in starts[:2].copy():
            bent = theta.copy()
            bent[4], bent[6] = 0.7 * float((step / batch).min()), 0.5 * theta[6]
            bent[5], bent[0] = 0.4 * theta[0], 0.6 * theta[0]
            starts.append(bent)
    return starts
