"""The limits of one tier: its token buckets taken together, and a queue before them. Pure, no clock.

A request takes from all buckets of its tier at one instant or from none. Those that are held back go in the
order in which they came: a later one, however small, starts no earlier than the one before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from mockserver.ask import Limited, Quota
from mockserver.tier_config import RateLimits
from mockserver.token_bucket import TokenBucket


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a request may not start now: the bucket that keeps it longest."""

    what: Limited
    limit_per_min: float
    asked: int
    wait_ns: int | None
    """Until it could; None: never, it asks for more than a full bucket holds."""


class TierLimits:
    """Buckets of a tier, full at ``start_ns``."""

    def __init__(self, config: RateLimits, start_ns: int) -> None:
        self._queues = config.over == "queue"
        self._head_ns = start_ns  # start of the last one that was held back: nobody behind it starts earlier
        rates: dict[Limited, float | None] = {
            "requests": config.requests_per_min,
            "input": config.input_tokens_per_min,
            "output": config.output_tokens_per_min,
        }
        self._rates = {what: rate for what, rate in rates.items() if rate is not None}
        self._buckets = {
            what: TokenBucket(rate, config.burst_s, start_ns) for what, rate in self._rates.items()
        }

    def admit(self, input_tokens: int, output_tokens: int, now_ns: int) -> int | Shortage:
        """Charge a request, and say how many ns later it may start: 0 unless the tier queues.

        A Shortage charges nothing. The tier queues where ``over`` says so, all but what could never start.
        """
        start_ns = max(now_ns, self._head_ns)
        short = self._shortage(input_tokens, output_tokens, start_ns)
        if short is not None:
            if short.wait_ns is None or not self._queues:
                return short
            start_ns += short.wait_ns
        if self._queues:
            self._head_ns = start_ns
        for _, amount, bucket in self._charges(input_tokens, output_tokens):
            taken = bucket.take(amount, start_ns)
            assert taken, "every bucket said that it would have enough by then"
        return start_ns - now_ns

    def settle(self, input_tokens: int, output_tokens: int, now_ns: int) -> None:
        """Give back what was charged and not used. It shortens no wait that was told already."""
        unused: tuple[tuple[Limited, int], ...] = (("input", input_tokens), ("output", output_tokens))
        for what, tokens in unused:
            bucket = self._buckets.get(what)
            if bucket is not None and tokens > 0:
                bucket.give_back(tokens, now_ns)

    def quotas(self, now_ns: int) -> tuple[Quota, ...]:
        """What each bucket has left; nothing for who would be behind somebody who is held back."""
        return tuple(
            Quota(
                what=what,
                limit=int(self._rates[what]),
                remaining=0 if now_ns < self._head_ns else bucket.remaining(now_ns),
                reset_s=bucket.reset_s(now_ns),
            )
            for what, bucket in self._buckets.items()
        )

    def _shortage(self, input_tokens: int, output_tokens: int, now_ns: int) -> Shortage | None:
        worst, longest_ns = None, 0
        for what, amount, bucket in self._charges(input_tokens, output_tokens):
            wait_ns = bucket.wait_ns(amount, now_ns)
            if wait_ns is None or wait_ns > longest_ns:
                worst = Shortage(what, self._rates[what], amount, wait_ns)
            if wait_ns is None:
                break
            longest_ns = max(longest_ns, wait_ns)
        return worst

    def _charges(self, input_tokens: int, output_tokens: int) -> Iterator[tuple[Limited, int, TokenBucket]]:
        amounts: dict[Limited, int] = {"requests": 1, "input": input_tokens, "output": output_tokens}
        for what, bucket in self._buckets.items():
            yield what, amounts[what], bucket
