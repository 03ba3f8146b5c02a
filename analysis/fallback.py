"""Did requests for the fast tier run at standard speed? Share, moments, and what the server said of them.

    y = ln(median gap / tokens per delivery)        of each request, prompt lengths evened out

The slower tier's own requests give the law of y at standard speed. The fast tier's are of that law or of a
faster one (``speed_mixture``): the share follows by EM, moments by a CUSUM over the log likelihood ratio. An
echo is not looked at for that, so that it can be compared with what was measured.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis import lengths, numbers, speed_mixture, speeds
from analysis.arms import Arm
from analysis.model import Estimate, Fallback, FallbackEpisode, ServedCount, ServedSpeed
from analysis.ragged import Bools, Floats, Ints
from analysis.speed_mixture import Mixture
from analysis.summary import NO_ECHO
from loadtest.records import RunInfo

LEAST_RATIO = 1.1
"""Tiers whose speeds are closer than this cannot be told apart request by request."""
CLEAR = 0.9
MOST_EPISODES = 50
FEWEST_IN_EPISODE = 2


@dataclass(frozen=True, slots=True)
class Sorted:
    """Requests of both tiers that have a speed, by what that speed says."""

    slower: Arm
    faster: Arm
    mixture: Mixture
    rows: tuple[Ints, Ints]
    """Rows of the good requests of (slower, faster) that have a speed."""
    values: tuple[Floats, Floats]
    """Their y."""

    @property
    def score(self) -> Floats:
        """Log likelihood ratio of the faster tier's requests, standard over fast."""
        return self.mixture.score(self.values[1])


def find(pair: tuple[Arm, Arm], infos: Sequence[RunInfo]) -> Fallback:
    """Look for requests of the faster of two tiers that ran at the speed of the slower one."""
    found = sort(pair)
    if isinstance(found, str):
        return Fallback(
            standard_tier=pair[0].tier,
            fast_tier=pair[1].tier,
            share=Estimate(value=None),
            identified=False,
            speed_ratio=None,
            episodes=[],
            served=[],
            sentence=found,
        )
    probability = found.mixture.probability(found.values[1])
    share = _share(probability)
    episodes = _episodes(found, infos)
    ratio = math.exp(found.mixture.slow.centre - found.mixture.fast.centre)
    return Fallback(
        standard_tier=found.slower.tier,
        fast_tier=found.faster.tier,
        share=share,
        identified=True,
        speed_ratio=ratio,
        episodes=episodes[:MOST_EPISODES],
        served=_served(found, probability),
        sentence=_sentence(found, probability, share, ratio, len(episodes)),
    )


def sort(pair: tuple[Arm, Arm]) -> Sorted | str:
    """Fit both speeds, or say in a sentence why that cannot be."""
    times = [np.log(speeds.token_s(arm)) for arm in pair]
    rows = [np.flatnonzero(np.isfinite(one)) for one in times]
    for arm, known in zip(pair, rows, strict=True):
        if known.size < speed_mixture.FEWEST:
            return (
                f"{numbers.counted(known.size, 'request')} of {arm.tier} with a measured speed are too few "
                f"to look for requests that another tier served; it takes {speed_mixture.FEWEST}."
            )
    tokens = [lengths.prompt_tokens(arm.good)[known] for arm, known in zip(pair, rows, strict=True)]
    values = [one[known] for one, known in zip(times, rows, strict=True)]
    # The quickest requests of a fast tier are fast however many another tier served.
    slow, fast = (0, 1) if np.quantile(values[0], 0.1) >= np.quantile(values[1], 0.1) else (1, 0)
    slope, middle = _length_effect(values[slow], tokens[slow])
    evened = [
        value - slope * (np.nan_to_num(length, nan=middle) - middle)
        for value, length in zip(values, tokens, strict=True)
    ]
    mixture = speed_mixture.fit(
        evened[fast], speed_mixture.fit_law(evened[slow]), least_gap=math.log(LEAST_RATIO)
    )
    if mixture.slow.centre - mixture.fast.centre < math.log(LEAST_RATIO):
        return (
            f"{pair[fast].tier} and {pair[slow].tier} ran at one speed: either neither is faster, or all "
            f"requests for one were served by the other. Timing of this run cannot say which."
        )
    return Sorted(pair[slow], pair[fast], mixture, (rows[slow], rows[fast]), (evened[slow], evened[fast]))


def _length_effect(values: Floats, tokens: Floats) -> tuple[float, float]:
    """Slope of y in the prompt's tokens on the slower tier, all of whose requests are of one speed."""
    known = np.isfinite(tokens)
    middle = float(tokens[known].mean()) if known.any() else 0.0
    moved = tokens[known] - middle
    spread = float(moved @ moved)
    return (float(moved @ values[known]) / spread if spread > 0 else 0.0), middle


def _share(probability: Floats) -> Estimate:
    """Mean probability; the interval is that of a sum of independent coins, at most all doubtful requests."""
    count = probability.size
    value = float(probability.mean())
    half = 1.96 * math.sqrt(float(np.sum(probability * (1 - probability)))) / count
    low = min(max(value - half, 0.0), float(np.mean(probability > CLEAR)))
    high = max(min(value + half, 1.0), float(np.mean(probability > 1 - CLEAR)))
    return Estimate(value=value, low=min(low, value), high=max(high, value))


def _episodes(found: Sorted, infos: Sequence[RunInfo]) -> list[FallbackEpisode]:
    """Stretches of standard speed on the faster tier, run by run in order of sending."""
    if not found.mixture.supported:
        return []
    sent = found.faster.good.column("sent_at_s")[found.rows[1]]
    runs = found.faster.good.column("run")[found.rows[1]]
    episodes: list[FallbackEpisode] = []
    for number, info in enumerate(infos):
        mine = np.flatnonzero(runs == number)
        slow = speed_mixture.moments(found.score[mine])
        for begin, end in _stretches(slow):
            if end - begin >= FEWEST_IN_EPISODE:
                episodes.append(
                    FallbackEpisode(
                        run_id=info.run_id,
                        begin_s=float(sent[mine[begin]]),
                        end_s=float(sent[mine[end - 1]]),
                        requests=end - begin,
                    )
                )
    return episodes


def _stretches(true: Bools) -> list[tuple[int, int]]:
    """Begin and end (exclusive) of each stretch of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], true, [False])).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _served(found: Sorted, probability: Floats) -> list[ServedCount]:
    """Requested × echoed × measured, counted; the slower tier's by the likelihoods alone."""
    counts: Counter[tuple[str, str, ServedSpeed]] = Counter()
    standard = 1 / (1 + np.exp(-np.clip(found.mixture.score(found.values[0]), -50, 50)))
    for arm, rows, chance in (
        (found.slower, found.rows[0], standard),
        (found.faster, found.rows[1], probability),
    ):
        for echo, p in zip(arm.good.text("echoed_tier")[rows].tolist(), chance.tolist(), strict=True):
            counts[arm.tier, echo or NO_ECHO, _speed(p)] += 1
    return [
        ServedCount(requested=requested, echoed=echoed, measured=measured, count=count)
        for (requested, echoed, measured), count in sorted(counts.items())
    ]


def _speed(standard: float) -> ServedSpeed:
    if standard > CLEAR:
        return "standard"
    return "fast" if standard < 1 - CLEAR else "unclear"


def _sentence(found: Sorted, probability: Floats, share: Estimate, ratio: float, episodes: int) -> str:
    fast, slow = found.faster.tier, found.slower.tier
    count = numbers.counted(probability.size, "request")
    if not found.mixture.supported:
        return f"None of {count} of {fast} ran at {slow}'s speed, which is {ratio:.2f} times as slow."
    often = f", in {numbers.counted(episodes, 'stretch', 'stretches')}" if episodes else ""
    return (
        f"{numbers.estimate(share, numbers.PERCENT)} of {count} of {fast} ran at {slow}'s speed{often}; the "
        f"others were {ratio:.2f} times as fast."
    )
