"""A plan played against a server's engines in virtual time: records, in the order in which requests end.

The requests are the real run's (``loadtest.workload``), the server is the mock's own engine
(``mockserver.virtual``), and the network between them is the plan's: a latency each way and an exponential
jitter that keeps the order of deliveries. Timeouts, retry-after and early stops are not played. An answer has
as many words as its request asked for, and a conversation's later turns resend them.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadtest.arrivals import think_s
from loadtest.plan import Closed, Plan
from loadtest.records import RequestRecord
from loadtest.workload import Request, Source, open_source
from mockserver import config as server_config
from mockserver.config import ServerConfig
from mockserver.engine import Job
from mockserver.virtual import Finished, VirtualServer

_SALT_NETWORK = 5
_FOREVER_NS = 2**62


def simulate(plan: Plan, config: ServerConfig, source: Source | None = None) -> Iterator[RequestRecord]:
    """Yield one record per request, stage after stage.

    ``source`` is needed only for a plan whose files are not found from the working directory.
    """
    server, source = VirtualServer(config), source or open_source(plan)
    now_ns = first_index = 0
    for number in range(len(plan.stages)):
        stage = _Stage(source, server, number=number, start_ns=now_ns, first_index=first_index)
        for record in stage.run():
            now_ns = max(now_ns, record.ended_ns)
            yield record
        first_index += stage.begun * source.turns


@dataclass(slots=True)
class _Flight:
    request: Request
    conversation: int
    position: int
    sent_ns: int
    prompt_words: int
    """All that it sends, history included."""


@dataclass
class _Stage:
    """One stage: what is on its way to the server, and what is being served.

    Everything is a conversation: a request that stands alone is one of one turn.
    """

    source: Source
    server: VirtualServer
    number: int
    start_ns: int
    first_index: int
    begun: int = 0
    """Conversations."""
    under_way: list[tuple[int, int, _Flight]] = field(default_factory=list)
    """Heap of (arrival at the server, index, flight)."""
    served: dict[int, _Flight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan, self.config = self.source.plan, self.server.config
        self.spec = self.plan.stages[self.number]
        self.latency_ns = round(self.plan.network.latency_s * 1e9)
        self.due = self.source.instants(self.number)

    def run(self) -> Iterator[RequestRecord]:
        """Play the stage to the end of its last request."""
        loop = self.spec.arrivals
        for _ in range(loop.streams if isinstance(loop, Closed) else 1):
            self._begin_next(self.start_ns)
        while self.under_way or self.served:
            limit_ns = self.under_way[0][0] if self.under_way else _FOREVER_NS
            finished = self.server.next_finish(limit_ns)
            if finished is not None:
                flight = self.served.pop(finished.job_id)
                record = _answered(flight, finished, self.plan, self.config)
            else:
                _, _, flight = heapq.heappop(self.under_way)
                refused = self._deliver(flight)
                if refused is None:
                    continue
                record = refused
            yield record
            self._go_on(flight, record)

    def _begin_next(self, now_ns: int) -> None:
        """Begin what comes next, if anything does: now in a closed loop, at its instant in an open one."""
        if isinstance(self.spec.arrivals, Closed):
            sent_ns = now_ns
        else:
            offset_ns = next(self.due, None)
            if offset_ns is None:
                return
            sent_ns = self.start_ns + offset_ns
        if self._send(self.begun, 0, sent_ns, history_words=0):
            self.begun += 1

    def _send(self, conversation: int, turn: int, sent_ns: int, *, history_words: int) -> bool:
        """Send a turn, unless the stage has had its requests or its time."""
        position = conversation * self.source.turns + turn
        if self.spec.requests is not None and position >= self.spec.requests:
            return False
        if self.spec.duration_s is not None and sent_ns - self.start_ns >= self.spec.duration_s * 1e9:
            return False
        index = self.first_index + position
        request = self.source.request(self.number, position, index=index)
        words = history_words + self.source.prompt_words(request)
        flight = _Flight(request, conversation, position, sent_ns, words)
        heapq.heappush(self.under_way, (sent_ns + self.latency_ns, index, flight))
        return True

    def _go_on(self, flight: _Flight, record: RequestRecord) -> None:
        """After an answer: the conversation's next turn, or else the stream's next conversation."""
        request, sessions, loop = flight.request, self.plan.workload.sessions, self.spec.arrivals
        if sessions is not None and record.outcome == "ok" and request.turn + 1 < sessions.turns:
            history_words = flight.prompt_words + request.max_tokens
            sent_ns = record.ended_ns + round(sessions.think_s * 1e9)
            if self._send(flight.conversation, request.turn + 1, sent_ns, history_words=history_words):
                return
        if isinstance(loop, Closed):
            pause_s = think_s(loop, seed=self.plan.seed, stage_number=self.number, position=flight.position)
            self._begin_next(record.ended_ns + round(pause_s * 1e9))

    def _deliver(self, flight: _Flight) -> RequestRecord | None:
        """Hand a request to its tier's engine, or return the record of its refusal."""
        request, arrives_ns = flight.request, flight.sent_ns + self.latency_ns
        if not request.turn and not isinstance(self.spec.arrivals, Closed):
            self._begin_next(arrives_ns)
        tier = server_config.tier_for(self.config, _service_tier(request))
        if tier is None:
            return _refused(flight, self.plan, self.config, "no tier serves this service_tier")
        if flight.prompt_words + request.max_tokens > self.config.max_context_tokens:
            return _refused(flight, self.plan, self.config, "prompt and output exceed the model's context")
        self.server.submit(tier.name, Job(request.index, flight.prompt_words, request.max_tokens), arrives_ns)
        self.served[request.index] = flight
        return None


def _service_tier(request: Request) -> str | None:
    value = request.tier.body.get("service_tier")
    return value if isinstance(value, str) else None


def _answered(flight: _Flight, finished: Finished, plan: Plan, config: ServerConfig) -> RequestRecord:
    """The record of a served request: each token's emission, delayed by the network."""
    event_ns = _delivered(finished, plan, flight.request.index)
    tier = next(tier for tier in config.tiers if tier.name == finished.tier)
    seen = event_ns if plan.workload.stream else event_ns[-1:]
    return RequestRecord(
        **_common(flight, config),
        outcome="ok",
        ended_ns=event_ns[-1],
        headers_ns=seen[0],
        first_text_ns=seen[0] if plan.workload.stream else None,
        event_ns=event_ns if plan.workload.stream else [],
        event_kinds=[("text", len(event_ns))] if plan.workload.stream else [],
        streamed=plan.workload.stream,
        status=200,
        finish_reason="length",
        echoed_tier=tier.service_tiers[0],
        prompt_tokens=flight.prompt_words,
        cached_tokens=0,
        output_tokens=len(event_ns),
        tokens_source="usage",
    )


def _refused(flight: _Flight, plan: Plan, config: ServerConfig, why: str) -> RequestRecord:
    """The record of a request that the server answers with 400, after one round trip."""
    answered_ns = flight.sent_ns + 2 * round(plan.network.latency_s * 1e9)
    return RequestRecord(
        **_common(flight, config),
        outcome="http_error",
        ended_ns=answered_ns,
        headers_ns=answered_ns,
        status=400,
        detail=why,
    )


def _common(flight: _Flight, config: ServerConfig) -> dict[str, Any]:
    request = flight.request
    return {
        "index": request.index,
        "stage": request.stage,
        "requested_tier": request.tier.name,
        "model": request.tier.model or config.model_name,
        "prompt_class_tokens": request.prompt_tokens,
        "max_tokens": request.max_tokens,
        "scheduled_ns": flight.sent_ns,
        "sent_ns": flight.sent_ns,
        "stamp_source": "virtual",
        "warmup": request.warmup,
        "session": request.session,
        "turn": request.turn,
    }


def _delivered(finished: Finished, plan: Plan, index: int) -> list[int]:
    """Instants at which the client sees the tokens: latency, exponential jitter, order kept."""
    network = plan.network
    rng = np.random.default_rng((plan.seed, _SALT_NETWORK, index))
    delay_s = network.latency_s + rng.exponential(network.jitter_s, size=len(finished.token_ns))
    arrived: list[int] = np.maximum.accumulate(
        finished.token_ns + np.rint(delay_s * 1e9).astype(np.int64)
    ).tolist()
    return arrived
