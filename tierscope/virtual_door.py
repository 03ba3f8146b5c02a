"""The server's side of a run in virtual time: desk, limits, faults, prefixes, engines. Pure.

The decisions are those of the real server, made by the same modules: who serves a request and when
(``mockserver.desk``), what befalls it (``mockserver.faults``), what is answered (``mockserver.answers``).
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace

from loadtest.plan import Plan
from loadtest.prose import Blocks
from loadtest.workload import Request
from mockserver import faults, prefix_blocks, speech, trace_blocks
from mockserver.answers import answers_for
from mockserver.ask import Answer, Ask, Quota, RefusedError
from mockserver.config import ServerConfig
from mockserver.desk import Choice, Desk
from mockserver.faults import Struck
from mockserver.job import Job, StepDone
from mockserver.server_config import engine_tier, smooths
from mockserver.tier_config import TierConfig
from mockserver.virtual import Finished, VirtualServer
from tierscope.virtual_ask import Asks

_FOREVER_NS = 2**62


@dataclass(slots=True)
class Flight:
    """One request on its way: what was sent, and where it belongs in its stage."""

    request: Request
    conversation: int
    position: int
    scheduled_ns: int
    sent_ns: int
    prompt_words: int
    """All that it sends, history included."""
    said: tuple[str, ...] = ()
    """The messages themselves, where the server looks at them ..."""
    pieces: Blocks | None = None
    """... or the pieces of a trace that stand for them, which is much quicker."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that the server took in, and what becomes of it there."""

    flight: Flight
    ask: Ask
    """All but its words."""
    arrived_ns: int
    choice: Choice
    struck: Struck
    answer: Answer

    @property
    def begins_ns(self) -> int:
        """When limits and faults let it into an engine; the head of a stream is sent then."""
        return self.arrived_ns + self.choice.wait_ns + round(self.struck.delay_s * 1e9)


@dataclass(frozen=True, slots=True)
class Served:
    """A visit that has ended."""

    visit: Visit
    finished: Finished
    quotas: tuple[Quota, ...]
    """What the limits of the tier that was asked for left when it began."""
    caches: bool
    """Whether its prompt was kept in a prefix cache."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that the server answered with an error at once."""

    error: RefusedError
    quotas: tuple[Quota, ...] = ()


class Door:
    """Takes requests in and tells of their ends. One for a whole run: limits and caches outlive a stage.

    ``on_step`` sees all steps with their engine's name, in order.
    """

    def __init__(
        self, config: ServerConfig, plan: Plan, *, on_step: Callable[[str, StepDone], None] | None = None
    ) -> None:
        self.config, self._asks = config, Asks(plan, config)
        self._server, self._desk = VirtualServer(config, on_step=on_step), Desk(config)
        self._caches = {
            tier.name: cache
            for tier in config.tiers
            if (cache := engine_tier(config, tier).prefix_cache) is not None
        }
        self._number = 0
        self._held: list[tuple[int, int, Visit]] = []
        self._inside: dict[int, tuple[Visit, tuple[Quota, ...]]] = {}

    @property
    def needs_words(self) -> bool:
        """Whether anything depends on what is said and not only on how long it is."""
        return bool(self._caches)

    @property
    def busy(self) -> bool:
        """Whether anything that was taken in has not ended."""
        return bool(self._held or self._inside)

    def arrive(self, flight: Flight, now_ns: int) -> Refused | None:
        """Take a request in, or tell the error that answers it. What cannot be read has no number."""
        tier: TierConfig | None = None
        try:
            ask = self._asks.of(flight.request)
            number, self._number = self._number, self._number + 1
            tier = self._requested(flight.request)
            struck = faults.struck(
                self.config.faults,
                seed=self.config.seed,
                number=number,
                tier=tier.name,
                arrived_ns=now_ns,
            )
            if struck.http_error is not None:
                raise faults.refusal(struck.http_error)
            choice = self._choose(flight, ask, now_ns)
        except RefusedError as error:
            return Refused(error, () if tier is None else self._desk.quotas(tier, now_ns))
        visit = Visit(flight, ask, now_ns, choice, struck, self._answer(flight))
        heapq.heappush(self._held, (visit.begins_ns, number, visit))
        return None

    def next_end(self, limit_ns: int) -> Served | None:
        """The next end of a request at or before ``limit_ns``; None if there is none."""
        while True:
            due_ns = self._held[0][0] if self._held else _FOREVER_NS
            finished = self._server.next_finish(min(limit_ns, due_ns))
            if finished is not None:
                visit, quotas = self._inside.pop(finished.job_id)
                tokens = len(finished.token_ns) + finished.lost_tokens
                self._desk.settle(
                    visit.choice, tokens, finished.ended_ns, cached_tokens=finished.done.cached_tokens
                )
                caches = visit.choice.tier.name in self._caches and visit.ask.cacheable_tokens is None
                return Served(visit, finished, quotas, caches)
            if due_ns > limit_ns:
                return None
            self._submit(heapq.heappop(self._held)[2], due_ns)

    def visible_tokens(self, flight: Flight) -> int:
        """How many tokens of the answer to a request are no reasoning."""
        answer = self._answer(flight)
        return answer.output_tokens - answer.reasoning_tokens

    def visible(self, flight: Flight) -> str:
        """What is visible of the answer to a request."""
        return speech.runs(self._answer(flight))[-1].said

    def _answer(self, flight: Flight) -> Answer:
        """What is answered; its words follow from the prompt's, where those are known."""
        ask = replace(self._asks.of(flight.request), prompts=("\n".join(flight.said),))
        wire, default = self.config.wire, self.config.default_output_tokens
        return answers_for(ask, default_output_tokens=default, wire=wire)[0]

    def _choose(self, flight: Flight, ask: Ask, now_ns: int) -> Choice:
        request = flight.request
        return self._desk.choose(
            model=request.tier.model or self.config.model_name,
            service_tier=named(request, "service_tier"),
            speed=named(request, "speed"),
            input_tokens=flight.prompt_words,
            output_tokens=ask.max_tokens or self.config.default_output_tokens,
            now_ns=now_ns,
        )

    def _requested(self, request: Request) -> TierConfig:
        return self._desk.requested(
            request.tier.model or self.config.model_name,
            named(request, "service_tier"),
            named(request, "speed"),
        )

    def _submit(self, visit: Visit, now_ns: int) -> None:
        flight, tier, answer = visit.flight, visit.choice.tier, visit.answer
        breaks = visit.struck.breaks if visit.ask.stream else None  # else they strike the body, at its end
        self._inside[flight.request.index] = visit, self._desk.quotas(visit.choice.requested, now_ns)
        self._server.submit(
            tier.name,
            Job(
                flight.request.index,
                flight.prompt_words,
                answer.output_tokens,
                blocks=self._blocks(visit),
            ),
            now_ns,
            cut_after_tokens=faults.strikes_at(breaks, answer.output_tokens) if breaks else None,
            tokens_per_event=self.config.wire.tokens_per_event,
            one_by_one=smooths(self.config, tier),
        )

    def _blocks(self, visit: Visit) -> tuple[int, ...]:
        """Prefixes of prompt and answer, for an engine that keeps any."""
        cache, flight, answer = self._caches.get(visit.choice.tier.name), visit.flight, visit.answer
        pieces = flight.pieces
        if cache is None or visit.ask.cacheable_tokens == 0:
            return ()
        if pieces is not None:
            ids = [] if pieces.fresh else (pieces.ids + pieces.first_mark).tolist()
            return trace_blocks.of_ids(
                ids,
                id_tokens=pieces.block_tokens,
                prompt_tokens=flight.prompt_words,
                block_tokens=cache.block_tokens,
                output_tokens=answer.output_tokens,
                nobodys=flight.request.index,
            )
        words = [word for message in (*flight.said, speech.said(answer)) for word in message.split()]
        return prefix_blocks.of_words(words, cache.block_tokens)


def named(request: Request, key: str) -> str | None:
    """What a request's tier puts under a key of the body, if that is text."""
    value = request.tier.body.get(key)
    return value if isinstance(value, str) else None
