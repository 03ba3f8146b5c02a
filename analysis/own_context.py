"""What a token more of own context costs a step: the KV read of one token, seen from outside.

Between the first or last token of one own stream and the next such instant the set of own streams stands
still: an epoch. Own contexts C and their number n are known in each, and so is the step y, the median of the
gaps that carry no prompt. From one epoch to the next

    Δy = κ·ΔC + s·Δn + noise

κ in seconds per token is KV bytes of a token over bandwidth, whoever else shares the step: other users come
and go slowly, and differences between neighbours do not see them.
"""

import math
from dataclasses import dataclass

import numpy as np

from analysis import intervals, ragged
from analysis.deliveries import Gaps
from analysis.lengths import prompt_tokens
from analysis.ragged import Floats, Ints
from analysis.table import Requests

FEWEST = 24
"""Differences between epochs that it takes."""
FEWEST_STEPS = 3
CLEAN_QUANTILE, CLEAN_RATIO = 0.2, 1.3
"""A gap longer than so many times that quantile of a run's gaps carries a prompt and is left out."""
HUBER = 1.345
_ROUNDS = 15


@dataclass(frozen=True, slots=True)
class ContextSlope:
    """κ and its standard error, seconds per token."""

    slope_s: float
    error_s: float

    @property
    def z(self) -> float:
        """Errors by which κ differs from 0."""
        return self.slope_s / self.error_s if self.error_s > 0 else math.copysign(math.inf, self.slope_s)


@dataclass(frozen=True, slots=True)
class Epochs:
    """One value an epoch in which steps were seen, in time order."""

    tokens: Floats
    """Own context."""
    streams: Floats
    step_s: Floats
    steps: Floats
    """Gaps it was taken from."""


def measure(requests: Requests, gaps: Gaps) -> ContextSlope | None:
    """Fit κ to one tier's good requests; None where epochs are too few or their contexts all alike."""
    rows: list[Floats] = []
    run = requests.column("run")
    for number in np.unique(run).tolist():
        mine = run == number
        found = epochs(requests.where(mine), gaps.where(mine))
        weight = 1 / (1 / found.steps[1:] + 1 / found.steps[:-1])
        moved = [np.diff(values) for values in (found.step_s, found.tokens, found.streams)]
        rows.append(np.stack([*moved, weight]))
    step, tokens, streams, weight = np.concatenate([*rows, np.empty((4, 0))], axis=1)
    return fit(step, tokens, streams, weight) if step.size >= FEWEST else None


def epochs(requests: Requests, gaps: Gaps) -> Epochs:
    """Epochs of one run in which at least ``FEWEST_STEPS`` clean gaps of each stream lie whole."""
    context = prompt_tokens(requests) + np.nan_to_num(requests.column("output_tokens")) / 2
    known = np.isfinite(context) & (np.diff(requests.offsets) > 0)
    first, last = (
        pick(requests.event_ns, requests.offsets)[known].astype(np.int64)
        for pick in (ragged.first, ragged.last)
    )
    edges = np.concatenate((first, last))
    order = np.argsort(edges, kind="stable")
    tokens = np.cumsum(np.concatenate((context[known], -context[known]))[order])
    streams = np.cumsum(np.concatenate((np.ones(first.size), -np.ones(last.size)))[order])
    return _with_steps(edges[order], tokens, streams, gaps)


def _with_steps(edges: Ints, tokens: Floats, streams: Floats, gaps: Gaps) -> Epochs:
    clean_ns = CLEAN_RATIO * np.quantile(gaps.gap_ns, CLEAN_QUANTILE) if gaps.gap_ns.size else 0.0
    place = np.searchsorted(edges, gaps.begin_ns, side="right") - 1
    after = np.concatenate((edges, [2**62]))[np.minimum(place + 1, edges.size)]
    whole = (place >= 0) & (gaps.begin_ns + gaps.gap_ns <= after) & (gaps.gap_ns <= clean_ns)
    order = np.lexsort((gaps.gap_ns[whole], place[whole]))
    counts = np.bincount(place[whole], minlength=edges.size)
    step = ragged.quantiles(gaps.gap_ns[whole][order], ragged.offsets_of(counts), 0.5) / 1e9
    enough = counts >= FEWEST_STEPS * np.maximum(streams, 1)
    return Epochs(tokens[enough], streams[enough], step[enough], counts[enough].astype(np.float64))


def fit(step: Floats, tokens: Floats, streams: Floats, weight: Floats) -> ContextSlope | None:
    """Weighted Huber regression of differences of the step on those of context and streams.

    A step that carries a prompt is an outlier here. Errors allow for autocorrelation: what disturbs an epoch
    is in two differences.
    """
    regressors = np.stack([tokens, streams], axis=1)
    held = weight / weight.mean()
    # One scale each, so that neither is lost beside the other.
    scale = np.sqrt(held @ regressors**2 / step.size)
    if not scale[0] > 0:
        return None
    scaled = regressors / np.where(scale > 0, scale, 1.0)
    robust = np.ones(step.size)
    residual = step
    for _ in range(_ROUNDS):
        both = held * robust
        inverse = np.linalg.pinv(scaled.T @ (both[:, None] * scaled), rcond=1e-6, hermitian=True)
        found = inverse @ (scaled.T @ (both * step))
        residual = step - scaled @ found
        size = 1.4826 * float(np.median(np.abs(residual) * np.sqrt(held)))
        if not size > 0:
            break
        robust = np.minimum(1.0, HUBER * size / np.maximum(np.abs(residual) * np.sqrt(held), 1e-300))
    influence = (held * robust * residual) * (scaled @ inverse[0])
    _, error, _ = intervals.mean_error(influence)
    return ContextSlope(float(found[0] / scale[0]), error * step.size / float(scale[0]))
