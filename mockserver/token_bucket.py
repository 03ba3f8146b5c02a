"""A token bucket that refills exactly: integers only, so that no poll and no pause makes it drift. Pure.

Symbols: r tokens a minute as the fraction p/q, t in ns. One unit is 1/(60·10⁹·q) of a token: a bucket gains p
units every nanosecond, whole, and its level after any sequence of looks is the one after a single look.
"""

from fractions import Fraction

_MINUTE_NS = 60 * 10**9


class TokenBucket:
    """Full at ``start_ns`` with what it gets in ``burst_s``. Instants never run backwards in it.

    An instant before the latest one that it saw counts as that one. ``tokens_per_min`` is taken as the
    decimal that it is written as (0.1 is a tenth), ``burst_s`` to the nanosecond.
    """

    def __init__(self, tokens_per_min: float, burst_s: float, start_ns: int) -> None:
        rate = Fraction(repr(tokens_per_min))
        self._units_per_ns = rate.numerator
        self._units_per_token = _MINUTE_NS * rate.denominator
        self._full = self._units_per_ns * round(burst_s * 1e9)
        self._level = self._full
        self._now_ns = start_ns

    @property
    def capacity(self) -> Fraction:
        """Tokens that a full bucket holds."""
        return Fraction(self._full, self._units_per_token)

    def take(self, tokens: int, now_ns: int) -> bool:
        """Take so many tokens if they are there; else take none."""
        self._refill(now_ns)
        units = tokens * self._units_per_token
        if units > self._level:
            return False
        self._level -= units
        return True

    def wait_ns(self, tokens: int, now_ns: int) -> int | None:
        """Nanoseconds after ``now_ns`` at which ``take`` first succeeds; None: the bucket is too small."""
        self._refill(now_ns)
        units = tokens * self._units_per_token
        if units > self._full:
            return None
        if units <= self._level:
            return 0
        return self._now_ns - now_ns + -(-(units - self._level) // self._units_per_ns)

    def give_back(self, tokens: int, now_ns: int) -> None:
        """Put tokens back; what does not fit is lost, as with every token that comes to a full bucket."""
        self._refill(now_ns)
        self._level = min(self._full, self._level + tokens * self._units_per_token)

    def remaining(self, now_ns: int) -> int:
        """Whole tokens that can be taken."""
        self._refill(now_ns)
        return self._level // self._units_per_token

    def reset_s(self, now_ns: int) -> float:
        """Seconds after ``now_ns`` until it is full, if nobody takes."""
        self._refill(now_ns)
        refill_ns = -(-(self._full - self._level) // self._units_per_ns)
        return (self._now_ns - now_ns + refill_ns) / 1e9

    def _refill(self, now_ns: int) -> None:
        if now_ns > self._now_ns:
            gained = self._units_per_ns * (now_ns - self._now_ns)
            self._level = min(self._full, self._level + gained)
            self._now_ns = now_ns
