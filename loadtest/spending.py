"""What a run has cost and could cost yet, against its ceiling. Pure.

S dollars spent by requests that have ended, R the most that those in flight can cost, n the most that the
next one can: it may leave if S + R + n ≤ ceiling. So the ceiling holds whatever the answers are, as far as
the prices do and the server keeps to ``max_tokens``.

A prompt costs at most one token a byte. That is five times too much for words, so it is taken as at most k
times the tokens that were aimed at, where k is 1.5, or 1.25 times the largest such ratio a server has told.
"""

from loadtest.plan import Plan, Target, Tier
from loadtest.records import RequestRecord
from loadtest.workload import Request
from tierscope.errors import BadInputError
from tierscope.prices import Book, Price

_LEAST_FACTOR = 1.5
_MARGIN = 1.25
_SPARE_TOKENS = 64
"""What chat templates add to a prompt, above."""
_FREE = ("connect_error", "http_error", "rate_limited", "overloaded")
"""Outcomes for which no provider charges: nothing was generated."""
_WHOLE = ("ok", "no_output")
"""Outcomes whose usage is the last word."""


class Spending:
    """Dollars of one run, or of the share that one of several processes may spend.

    Raises BadInputError if the book has no price for one of the plan's tiers.
    """

    def __init__(self, plan: Plan, target: Target, book: Book, *, processes: int = 1) -> None:
        ceiling_usd = plan.control.cost_ceiling_usd
        self.spent_usd = 0.0
        self.reserved_usd = 0.0
        self._ceiling_usd = None if ceiling_usd is None else ceiling_usd / processes
        self._book = book
        self._prices: dict[str, Price] = {}
        self._reserves: dict[int, float] = {}
        self._factor = _LEAST_FACTOR
        if ceiling_usd is not None:
            self._prices = {tier.name: _priced(book, target, tier) for tier in plan.tiers}

    def admits(self, request: Request, request_bytes: int) -> bool:
        """Whether a request may leave; if so, the most it can cost is set aside for it."""
        if self._ceiling_usd is None:
            return True
        most_usd = self._most_usd(request, request_bytes)
        if self.spent_usd + self.reserved_usd + most_usd > self._ceiling_usd:
            return False
        self._reserves[request.index] = most_usd
        self.reserved_usd += most_usd
        return True

    def settle(self, record: RequestRecord) -> None:
        """A request that was admitted has ended: what it cost replaces what was set aside."""
        most_usd = self._reserves.pop(record.index, None)
        if most_usd is None:
            return
        self.reserved_usd = self.reserved_usd - most_usd if self._reserves else 0.0
        self.spent_usd += self._cost_usd(record, most_usd)
        if record.prompt_tokens:
            told = record.prompt_tokens / max(1, record.prompt_class_tokens)
            self._factor = max(self._factor, _MARGIN * told)

    def refusal(self) -> str:
        """Say in a sentence why nothing more leaves."""
        return (
            f"the next request could take the cost past {self._ceiling_usd:.6g} $ (cost_ceiling_usd): "
            f"{self.spent_usd:.6g} $ are spent, up to {self.reserved_usd:.6g} $ are in flight"
        )

    def _most_usd(self, request: Request, request_bytes: int) -> float:
        price = self._prices[request.tier.name]
        tokens = min(float(request_bytes), self._factor * request.prompt_tokens + _SPARE_TOKENS)
        as_input = price.cost_usd(tokens, 0, 0, request.max_tokens)
        return max(as_input, price.cost_usd(0, 0, tokens, request.max_tokens))

    def _cost_usd(self, record: RequestRecord, most_usd: float) -> float:
        """What an attempt cost: by its usage, or all that was set aside where that is not known."""
        if record.outcome in _FREE or record.sent_ns is None:
            return 0.0
        if record.prompt_tokens is None or record.output_tokens is None or record.outcome not in _WHOLE:
            return most_usd
        served = self._book.price(record.model, record.echoed_tier) if record.echoed_tier else None
        cached, written = record.cached_tokens or 0, record.cache_write_tokens or 0
        return (served or self._prices[record.requested_tier]).cost_usd(
            record.prompt_tokens - cached - written, cached, written, record.output_tokens
        )


def _priced(book: Book, target: Target, tier: Tier) -> Price:
    model = tier.model or target.model
    names = [value for name in ("service_tier", "speed") if isinstance(value := tier.body.get(name), str)]
    for name in (*names, tier.name, *(() if names else ("standard",))):
        if price := book.price(model, name):
            return price
    raise BadInputError(
        f"control.cost_ceiling_usd: no price is known for {model} on tier {(names or [tier.name])[0]}; "
        "name a price file (--prices) that has one"
    )
