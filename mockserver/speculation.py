"""Speculative decoding: how many tokens each step brings a sequence, and how a server spreads them. Pure.

A draft proposes g tokens a step and the model checks them in one pass: those before the first that it rejects
stand, and it adds one of its own. With acceptance a, a step brings (1 − a^(g+1))/(1 − a) tokens in the mean.
The pass works on g + 1 tokens of each sequence, and each drafted one attends to all before it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from mockserver.tier_config import Speculation

_DRAWN_STEPS = 16_384


def tokens_per_step(speculation: Speculation) -> float:
    """Mean tokens that a step brings a sequence: 1 + a + … + a^g."""
    return sum(speculation.acceptance_ratio**place for place in range(speculation.draft_tokens + 1))


def drafted_pairs(sequences: float, context_tokens: float, draft_tokens: int) -> float:
    """Query-key pairs of all that a step drafts for so many sequences of that context, summed over them.

    Each drafted token attends to its sequence's context, to those drafted before it and to itself.
    """
    return context_tokens * draft_tokens + 0.5 * sequences * draft_tokens * (draft_tokens + 1)


class Drafting:
    """Draws, seeded, what the steps of a sequence bring it."""

    def __init__(self, speculation: Speculation, seed: str) -> None:
        self.draft_tokens = speculation.draft_tokens
        self.draft_s = speculation.draft_tokens * speculation.draft_s
        """What drafting adds to a step."""
        accepted = speculation.acceptance_ratio
        self._scale = -1.0 / math.log(accepted) if accepted else 0.0
        self._rng = np.random.default_rng(list(f"{seed}/drafts".encode()))
        self._next = self._before = 0  # of the next pattern: its first step, and the tokens before it
        self._draw(_DRAWN_STEPS)

    def pattern(self, tokens: int) -> NDArray[np.uint8]:
        """Tokens that each step brings until a sequence has ``tokens`` more (≥ 1); the last one is cut."""
        first = self._next
        wanted = self._before + tokens
        if wanted > self._total[-1]:
            self._draw(max(_DRAWN_STEPS, tokens))  # a step brings one token at least
            first, wanted = 0, tokens  # what was left of the others is dropped
        last = int(self._total.searchsorted(wanted))
        pattern = self._counts[first : last + 1].copy()
        self._next, self._before = last + 1, int(self._total[last])
        pattern[-1] -= self._before - wanted
        return pattern

    def _draw(self, steps: int) -> None:
        """1 + min(g, G) with P(G ≥ j) = a^j: the whole part of an exponential of mean −1/ln a."""
        run = np.floor(self._scale * self._rng.standard_exponential(steps))
        self._counts = (1 + np.minimum(run, self.draft_tokens)).astype(np.uint8)
        self._total = np.cumsum(self._counts, dtype=np.int64)


class Coming:
    """Tokens that each of the coming steps will bring all sequences together, in a ring over step numbers."""

    def __init__(self) -> None:
        self._ring = np.zeros(1024, dtype=np.int64)

    def at(self, step: int) -> int:
        """Tokens of one step."""
        return int(self._ring[step & (len(self._ring) - 1)])

    def ahead(self, step: int, steps: int) -> list[int]:
        """Tokens of each of so many steps, at most a ring of them, from the oldest one on."""
        head, tail = self._parts(step, min(steps, len(self._ring)))
        return [*head.tolist(), *tail.tolist()]

    def take(self, step: int) -> int:
        """Tokens of the oldest step, whose place is then free for one that is a whole ring later."""
        place = step & (len(self._ring) - 1)
        tokens = int(self._ring[place])
        self._ring[place] = 0
        return tokens

    def add(self, step: int, counts: NDArray[np.uint8]) -> None:
        """Count a sequence in that brings ``counts`` tokens from ``step`` on, the oldest step there is."""
        if len(counts) > len(self._ring):
            self._widen(step, len(counts))
        head, tail = self._parts(step, len(counts))
        head += counts[: len(head)]
        if len(tail):
            tail += counts[len(head) :]

    def remove(self, step: int, counts: NDArray[np.uint8]) -> None:
        """Count out what ``add`` counted in, from ``step`` on."""
        head, tail = self._parts(step, len(counts))
        head -= counts[: len(head)]
        tail -= counts[len(head) :]

    def _parts(self, step: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        start = step & (len(self._ring) - 1)
        head = self._ring[start : start + count]
        return head, self._ring[: count - len(head)]

    def _widen(self, step: int, count: int) -> None:
        head, tail = self._parts(step, len(self._ring))
        old = np.concatenate((head, tail))
        self._ring = np.zeros(1 << (count - 1).bit_length(), dtype=np.int64)
        head, tail = self._parts(step, len(old))
        head += old[: len(head)]
        tail += old[len(head) :]


def smoothed(step_ends_ns: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Instants at which a server lets the tokens of a stream go that spreads those of a step.

    The k tokens that a step brought at its end E go out at E + j·d/k, j = 0 … k − 1, with d the time since
    the stream's step before: as evenly as a server can that does not know how long the next step will take.
    What is still there when the next step ends goes out then, so that order is kept. None leaves before E.
    ``step_ends_ns`` ascend; of unsmoothed ``token_ns`` both arrays are ``np.unique(token_ns,
    return_counts=True)``.
    """
    lasted_ns = np.diff(step_ends_ns, prepend=step_ends_ns[:1])
    place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    spread_ns = place * np.repeat(lasted_ns, counts) // np.repeat(counts, counts)
    flushed_ns = np.append(step_ends_ns[1:], np.iinfo(np.int64).max)
    instants: NDArray[np.int64] = np.minimum(
        np.repeat(step_ends_ns, counts) + spread_ns, np.repeat(flushed_ns, counts)
    )
    return instants
