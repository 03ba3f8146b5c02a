"""Hidden load: the other users of a tier, whom nobody sees and who share its steps. Pure and seeded.

It says how many sequences should be decoding at an instant and draws what a new one asks. The engine does
the rest: it starts hidden sequences where some are missing and sets some aside where own requests take their
place.
"""

import math
from dataclasses import dataclass
from random import Random

_WANDER_STEPS = 10  # updates of the slow modulation in one of its correlation times
WANDER_LIMIT = 2.5  # standard deviations; beyond, it is held there


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal lengths: mean tokens, and the coefficient of variation (standard deviation / mean)."""

    mean_tokens: float
    variation_ratio: float
    max_tokens: int

    def draw(self, rng: Random, *, biased: bool = False) -> int:
        """One length. ``biased``: of a sequence met at a random instant, where long ones are met more often.

        Length bias turns LogN(μ, σ²) into LogN(μ + σ², σ²).
        """
        variance = math.log1p(self.variation_ratio**2)
        mu = math.log(self.mean_tokens) + (0.5 if biased else -0.5) * variance
        return min(self.max_tokens, max(1, round(rng.lognormvariate(mu, math.sqrt(variance)))))


class Background:
    """The hidden load of one tier.

    ``target_batch`` is the number of sequences decoding in a step, own ones included, around which the load
    wanders: with standard deviation ``wander_ratio`` of the target and correlation time ``wander_s``
    (an Ornstein-Uhlenbeck process on a grid of instants, so that it does not depend on who looks when).
    """

    def __init__(
        self,
        *,
        target_batch: int,
        prompt: Lengths,
        output: Lengths,
        seed: str,
        start_ns: int = 0,
        wander_ratio: float = 0.0,
        wander_s: float = 10.0,
    ) -> None:
        self.target_batch = target_batch
        self._prompt, self._output = prompt, output
        self._rng = Random(f"{seed}/lengths")
        self._wander_rng = Random(f"{seed}/wander")
        self._wander_ratio = wander_ratio
        self._grid_ns = max(1, round(wander_s * 1e9 / _WANDER_STEPS))
        self._wander = self._wander_rng.gauss(0.0, 1.0)
        self._until_ns = start_ns + self._grid_ns
        self._desired = self._rounded()

    @property
    def until_ns(self) -> int:
        """From this instant on ``desired`` may be another number."""
        return self._until_ns

    def desired(self, now_ns: int) -> int:
        """How many sequences should decode in a step that starts at ``now_ns`` (never decreasing)."""
        while now_ns >= self._until_ns:
            keep = math.exp(-1.0 / _WANDER_STEPS)
            kick = self._wander_rng.gauss(0.0, math.sqrt(1.0 - keep * keep))
            self._wander = keep * self._wander + kick
            self._until_ns += self._grid_ns
            self._desired = self._rounded()
        return self._desired

    def draw(self) -> tuple[int, int]:
        """Prompt and output tokens of a new hidden request."""
        return self._prompt.draw(self._rng), max(2, self._output.draw(self._rng))

    def draw_running(self) -> tuple[int, int, int]:
        """Prompt, output and already generated tokens of a sequence met at a random instant of its decode."""
        prompt = self._prompt.draw(self._rng)
        output = max(2, self._output.draw(self._rng, biased=True))
        return prompt, output, self._rng.randint(1, output - 1)

    def pick(self, count: int) -> int:
        """A number in [0, count), each as likely: which hidden sequence to set aside."""
        return int(self._rng.random() * count)

    def _rounded(self) -> int:
        held = min(WANDER_LIMIT, max(-WANDER_LIMIT, self._wander))
        return max(min(1, self.target_batch), round(self.target_batch * (1.0 + self._wander_ratio * held)))
