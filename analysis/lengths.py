"""Prompt lengths as the analysis groups them: exact classes where a plan has them, else as the server counts.

A class is a stratum of the experiment, with as many requests of each tier, so its mean can be taken away.
Lengths that were drawn, grew with a conversation or came from a trace all differ; a line evens them out.
"""

from collections.abc import Sequence

import numpy as np

from analysis.ragged import Bools, Floats, Ints
from analysis.table import Requests
from loadtest.records import RunInfo

COLUMN = "length_class"
"""The exact class of a request in tokens; NaN where its plan has none."""
BINS = 8
"""Into so many groups of equal size lengths are put where there are no classes."""


def with_classes(requests: Requests, infos: Sequence[RunInfo]) -> Requests:
    """The same requests with the column ``length_class``."""
    run, aimed = requests.column("run"), requests.column("prompt_class_tokens")
    exact = np.zeros(len(requests), dtype=np.bool_)
    for number, info in enumerate(infos):
        work = info.plan.workload
        if work.sessions is None:  # there, only the first of several turns has the length of its class
            exact |= (run == number) & np.isin(aimed, work.classes)
    frame = requests.frame.assign(**{COLUMN: np.where(exact, aimed, np.nan)})
    return Requests(frame, requests.event_ns, requests.event_tokens, requests.offsets)


def prompt_tokens(requests: Requests) -> Floats:
    """Length of each prompt in tokens as the server counted it; as it was aimed at where it did not."""
    counted = requests.column("prompt_tokens")
    return np.where(np.isnan(counted), requests.column("prompt_class_tokens"), counted)


def groups(requests: Requests, tokens: Floats) -> Ints:
    """Number of the group of each request, by rising length: its class, or one of ``BINS`` of equal size.

    ``tokens`` are the lengths that count, one a request; requests without one are in group 0.
    """
    classes = requests.column(COLUMN)
    loose = np.isnan(classes) & np.isfinite(tokens)
    level = np.nan_to_num(classes)
    if loose.any():
        edges = np.unique(np.quantile(tokens[loose], np.linspace(0, 1, BINS + 1)[1:-1]))
        place = np.searchsorted(edges, tokens[loose], side="right")
        level[loose] = np.concatenate((edges, [np.inf]))[place]
    return np.unique(level, return_inverse=True)[1].astype(np.int64)


def evened(values: Sequence[Floats], classes: Sequence[Floats], tokens: Sequence[Floats]) -> list[Floats]:
    """Values of several tiers without what their prompts' lengths make of them.

    In a class the mean over all tiers is taken away, outside of classes a line in ``tokens``. Its slope is
    common to all tiers and fitted within each, so that a difference between tiers stays.
    """
    means = _class_means(np.concatenate(values), np.concatenate(classes))
    slope, centre = _common_slope(
        values, [np.isnan(c) & np.isfinite(t) for c, t in zip(classes, tokens, strict=True)], tokens
    )
    found, start = [], 0
    for value, kind, length in zip(values, classes, tokens, strict=True):
        mean = means[start : start + value.size]
        line = slope * (np.nan_to_num(length, nan=centre) - centre)
        found.append(value - np.where(np.isnan(kind), line, mean))
        start += value.size
    return found


def _class_means(values: Floats, classes: Floats) -> Floats:
    labels, places = np.unique(np.nan_to_num(classes, nan=-1.0), return_inverse=True)
    counts = np.maximum(np.bincount(places, minlength=labels.size), 1)
    return np.asarray((np.bincount(places, values, minlength=labels.size) / counts)[places])


def _common_slope(
    values: Sequence[Floats], loose: Sequence[Bools], tokens: Sequence[Floats]
) -> tuple[float, float]:
    """Least-squares slope within tiers, and the mean length; 0 and 0 where nothing can be fitted."""
    used = [length[mine] for length, mine in zip(tokens, loose, strict=True)]
    lengths = np.concatenate([*used, np.empty(0)])
    if not lengths.size:
        return 0.0, 0.0
    x = np.concatenate([one - one.mean() for one in used if one.size])
    y = np.concatenate(
        [value[mine] - value[mine].mean() for value, mine in zip(values, loose, strict=True) if mine.any()]
    )
    spread = float(x @ x)
    return (float(x @ y) / spread if spread > 0 else 0.0), float(lengths.mean())
