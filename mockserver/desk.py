"""Who is served, by which tier, when, and what the response says of it. No clock, no socket, no engine. Pure.

Rules for whoever edits this file:

1. A refusal charges nothing; whoever is placed is charged by the tier that serves, once, and settled once.
2. A downgrade is silent: nothing but the response's echo may tell of it, and only where the echo is honest.
3. What happens to the k-th valid request follows from the configuration, the seed, k, and what was asked and
   settled before it, when.
"""

from dataclasses import dataclass
from random import Random

from mockserver import text
from mockserver.answers import answers_for
from mockserver.ask import Answer, Ask, Placed, Quota, RefusedError
from mockserver.limits import Shortage, TierLimits
from mockserver.routing import requested_tier, speed_of
from mockserver.server_config import ServerConfig
from mockserver.tier_config import TierConfig

MOST_OUTPUT_TOKENS = 2**20
"""Of one request, over all its answers; or what one answer may have, where that is more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A request of which only lengths are known, placed."""

    tier: TierConfig
    """The one that serves."""
    requested: TierConfig
    """The one that was asked for."""
    input_tokens: int
    """What the limits of ``tier`` were charged ..."""
    output_tokens: int
    """... with; what is not used is given back by ``Desk.settle``."""
    wait_ns: int = 0
    """How long a limit holds it back before it may be submitted."""
    echoed_service_tier: str | None = None
    """What the response names; None: nothing."""
    echoed_speed: str | None = None


class Desk:
    """Places requests and keeps the limits of all tiers, whose buckets are full at ``start_ns``.

    ``seed`` overrides the configuration's. Instants are those of any one clock; one before the latest seen
    counts as the latest. The same calls give the same answers.
    """

    def __init__(self, config: ServerConfig, *, seed: int | None = None, start_ns: int = 0) -> None:
        self.config = config
        self._seed = config.seed if seed is None else seed
        self._tiers = {tier.name: tier for tier in config.tiers}
        self._limits = {
            tier.name: TierLimits(tier.limits, start_ns) for tier in config.tiers if tier.limits is not None
        }
        self._asked = 0

    def requested(self, model: str, service_tier: str | None = None, speed: str | None = None) -> TierConfig:
        """The tier that is asked for; raises RefusedError (404, 400). Counts and charges nothing."""
        return requested_tier(self.config, model, service_tier, speed)

    def place(self, ask: Ask, now_ns: int) -> Placed:
        """Serve an ask or raise RefusedError: 404 model, 400 tier or context, 429 or 529 over a limit."""
        self.requested(ask.model, ask.service_tier, ask.speed)  # the first thing that is refused
        answers = self._answers(ask)
        longest = max(answers, key=lambda answer: answer.prompt_tokens + _bound(ask, answer))
        input_tokens, output_tokens = _charged(ask, answers)
        choice = self.choose(
            model=ask.model,
            service_tier=ask.service_tier,
            speed=ask.speed,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            context_tokens=longest.prompt_tokens + _bound(ask, longest),
            now_ns=now_ns,
        )
        return Placed(
            ask=ask,
            tier=choice.tier,
            requested=choice.requested,
            answers=answers,
            wait_ns=choice.wait_ns,
            echoed_service_tier=choice.echoed_service_tier,
            echoed_speed=choice.echoed_speed,
        )

    def choose(
        self,
        *,
        model: str,
        service_tier: str | None = None,
        speed: str | None = None,
        input_tokens: int,
        output_tokens: int,
        context_tokens: int | None = None,
        now_ns: int,
    ) -> Choice:
        """The same for a request of which only lengths are known, summed over its prompts and answers.

        ``context_tokens``: prompt and output bound of the longest single answer; by default all there is.
        """
        requested = self.requested(model, service_tier, speed)
        self._check_context(input_tokens + output_tokens if context_tokens is None else context_tokens)
        number, self._asked = self._asked, self._asked + 1
        tier, wait_ns = self._serving(requested, number, input_tokens, output_tokens, now_ns)
        echo_tier, echo_speed = self._echo(requested, tier, service_tier, speed)
        return Choice(
            tier=tier,
            requested=requested,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            wait_ns=wait_ns,
            echoed_service_tier=echo_tier,
            echoed_speed=echo_speed,
        )

    def settle(
        self, served: Placed | Choice, output_tokens: int, now_ns: int, *, cached_tokens: int = 0
    ) -> None:
        """Give back what a request that has ended, or was dropped, did not use of what it was charged.

        ``output_tokens`` over all answers; ``cached_tokens`` of the prompts were found in the prefix cache.
        """
        limits = self._limits.get(served.tier.name)
        if limits is None or served.tier.limits is None:
            return
        if isinstance(served, Placed):
            _, charged = _charged(served.ask, served.answers)
        else:
            charged = served.output_tokens
        cached = 0 if served.tier.limits.cached_input_counts else cached_tokens
        limits.settle(cached, charged - output_tokens, now_ns)

    def quotas(self, tier: TierConfig, now_ns: int) -> tuple[Quota, ...]:
        """What the limits of a tier leave; empty where it has none."""
        limits = self._limits.get(tier.name)
        return () if limits is None else limits.quotas(now_ns)

    def _answers(self, ask: Ask) -> tuple[Answer, ...]:
        """What is answered; without a limit it ends where the context does."""
        longest = self.config.max_context_tokens  # what cannot be is refused before its words are looked at
        if any(text.has_more_tokens(prompt, longest) for prompt in ask.prompts):
            self._check_context(longest + 1)
        if ask.max_tokens is not None:
            self._check_context(ask.max_tokens + 1)
        wire, default = self.config.wire, self.config.default_output_tokens
        self._check_total(len(ask.prompts) * ask.choices, ask.max_tokens or default)
        answers = answers_for(ask, default_output_tokens=default, wire=wire)
        room = self.config.max_context_tokens - max(answer.prompt_tokens for answer in answers)
        if ask.max_tokens is not None or default <= room:
            return answers
        return answers_for(ask, default_output_tokens=max(1, room), wire=wire)

    def _check_total(self, answers: int, tokens: int) -> None:
        """One request must not keep all others waiting while its words are made."""
        most = max(MOST_OUTPUT_TOKENS, self.config.max_context_tokens)
        if answers * tokens > most:
            raise RefusedError(
                400,
                f"{answers} answers of {tokens} tokens are not allowed; expected at most {most} tokens of "
                "output in one request",
                param="n",
            )

    def _check_context(self, tokens: int) -> None:
        if tokens > self.config.max_context_tokens:
            raise RefusedError(
                400,
                f"This model's maximum context length is {self.config.max_context_tokens} tokens; prompt and "
                "output together would be longer",
                param="messages",
                code="context_length_exceeded",
            )

    def _serving(
        self, requested: TierConfig, number: int, input_tokens: int, output_tokens: int, now_ns: int
    ) -> tuple[TierConfig, int]:
        """The tier that serves and how long it holds the request; downgrades lead on, never in a circle."""
        tier = requested
        for _ in self.config.tiers:
            if tier.downgrade_to is not None and self._drawn(tier, number):
                tier = self._tiers[tier.downgrade_to]
                continue
            limits = self._limits.get(tier.name)
            admitted = 0 if limits is None else limits.admit(input_tokens, output_tokens, now_ns)
            if not isinstance(admitted, Shortage):
                return tier, admitted
            if tier.limits is None or tier.limits.over != "downgrade" or tier.downgrade_to is None:
                raise _over_limit(tier, admitted, self.config.model_name)
            tier = self._tiers[tier.downgrade_to]
        raise AssertionError("config_check refuses downgrades that lead in a circle")

    def _drawn(self, tier: TierConfig, number: int) -> bool:
        """Whether request ``number`` is among the share that this tier has downgraded."""
        ratio = tier.downgrade_ratio
        return ratio > 0 and Random(f"{self._seed}/downgrade/{tier.name}/{number}").random() < ratio

    def _echo(
        self, requested: TierConfig, served: TierConfig, service_tier: str | None, speed: str | None
    ) -> tuple[str | None, str | None]:
        """What the response calls tier and speed, in the way that the requested tier's ``echo`` says."""
        if requested.echo == "absent":
            return None, None
        if requested.echo == "served":
            return next(iter(served.service_tiers), None), speed_of(self.config, served)
        named = service_tier if service_tier in requested.service_tiers else None
        return (
            named or next(iter(requested.service_tiers), None),
            speed or speed_of(self.config, requested),
        )


def _bound(ask: Ask, answer: Answer) -> int:
    """Tokens that an answer may have: the ask's limit, or what it has where there is none."""
    return ask.max_tokens if ask.max_tokens is not None else answer.output_tokens


def _charged(ask: Ask, answers: tuple[Answer, ...]) -> tuple[int, int]:
    """Input and output that limits are charged: each prompt once, each answer up to its bound."""
    prompts = answers[:: ask.choices]
    return (
        sum(answer.prompt_tokens for answer in prompts),
        sum(_bound(ask, answer) for answer in answers),
    )


def _over_limit(tier: TierConfig, short: Shortage, model: str) -> RefusedError:
    if tier.limits is not None and tier.limits.over == "overload":
        return RefusedError(529, f"Tier {tier.name} of {model} is overloaded", kind="overloaded")
    unit = "requests" if short.what == "requests" else f"{short.what} tokens"
    said = f"Rate limit of {model} in tier {tier.name}: {short.limit_per_min:g} {unit} per minute, "
    if short.wait_ns is None:
        return RefusedError(
            429,
            f"{said}and this request asks for {short.asked}, more than can be saved up",
            kind="rate_limited",
            param=short.what,
            code="rate_limit_exceeded",
        )
    wait_s = short.wait_ns / 1e9
    return RefusedError(
        429,
        f"{said}of which {short.asked} are free in {wait_s:.3f} s",
        kind="rate_limited",
        param=short.what,
        code="rate_limit_exceeded",
        retry_after_s=wait_s,
    )
