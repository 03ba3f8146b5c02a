"""What a client sees of an answer, as the record a real run would have made of it. Pure.

Where a response has words of its own, they are those of OpenAI's chat completions.
"""

from typing import Any, Literal

import msgspec

from loadtest.delta import error_line, folded
from loadtest.plan import Plan
from loadtest.records import EventKind, Outcome, RequestRecord
from mockserver import faults, openai_errors
from mockserver.ask import Quota
from mockserver.config import ServerConfig
from mockserver.faults import GARBAGE
from tierscope.virtual_door import Flight, Refused, Served, named
from tierscope.virtual_events import Events, broken_before_garbage, delivered, moments, sent

_HUNG_UP = {"cut": "the server closed the connection", "reset": "Connection reset by peer"}
Told = Literal["whole", "running", "nothing"]
"""What usage was read: the one at the end, the last one beside an event, or none."""
_STATUSES: dict[int, Outcome] = {429: "rate_limited", 503: "overloaded", 529: "overloaded"}


def record(served: Served, plan: Plan, config: ServerConfig) -> RequestRecord:
    """The record of a request that was taken in, as streamed or as whole as the plan asks."""
    if plan.workload.stream:
        return _streamed(served, plan, config)
    return _whole(served, plan, config)


def refusal_record(flight: Flight, refused: Refused, plan: Plan, config: ServerConfig) -> RequestRecord:
    """The record of a request that is answered with an error, after one round trip."""
    error = refused.error
    answered_ns = flight.sent_ns + 2 * round(plan.network.latency_s * 1e9)
    retry_after_s = error.retry_after_s
    return RequestRecord(
        **_common(flight, config),
        outcome=_STATUSES.get(error.status, "http_error"),
        ended_ns=answered_ns,
        headers_ns=answered_ns,
        status=error.status,
        detail=folded(f"HTTP {error.status}: {error_line(openai_errors.error_object(error))}"),
        retry_after_s=None if retry_after_s is None else float(-int(-retry_after_s // 1)),
        rate_limit_headers=_limit_headers(refused.quotas),
    )


def _streamed(served: Served, plan: Plan, config: ServerConfig) -> RequestRecord:
    visit, flight = served.visit, served.visit.flight
    events = sent(served, config)
    seen_ns, end_ns = delivered(events, plan.network, plan.seed, flight.request.index)
    outcome, detail = _outcome(served)
    kept = events.readable
    seen_ns, tokens, reasoning = seen_ns[:kept], events.tokens[:kept], min(events.reasoning, kept)
    told = _told(served, config, ended=outcome in ("ok", "truncated"), events=kept)
    running = _tells_usage_so_far(served, config)
    return RequestRecord(
        **_common(flight, config),
        **_usage(served, told=told, output_tokens=int(tokens.sum()), events=kept),
        outcome=outcome,
        detail=detail,
        ended_ns=end_ns,
        headers_ns=visit.begins_ns + round(plan.network.latency_s * 1e9),
        first_text_ns=int(seen_ns[reasoning]) if kept > reasoning else None,
        event_ns=seen_ns.tolist(),
        event_kinds=_kinds(reasoning, kept),
        event_tokens=tokens.tolist() if running and kept else None,
        coalesced_events=kept - len(moments(seen_ns)[0]),
        status=200,
        finish_reason="length" if outcome == "ok" else None,
        echoed_tier=_echo(served),
        rate_limit_headers=_limit_headers(served.quotas),
    )


def _tells_usage_so_far(served: Served, config: ServerConfig) -> bool:
    """Whether every chunk has usage, as the server does of itself or was asked to."""
    ask = served.visit.ask
    return config.wire.running_usage or (ask.include_usage and ask.running_usage)


def _told(served: Served, config: ServerConfig, *, ended: bool, events: int) -> Told:
    """The usage that is read of a stream of which so many events are."""
    visit = served.visit
    if ended and served.finished.cut_ns is None and visit.ask.include_usage and not visit.struck.no_usage:
        return "whole"
    chunks = events > 0 or config.wire.role_first
    return "running" if chunks and _tells_usage_so_far(served, config) else "nothing"


def _whole(served: Served, plan: Plan, config: ServerConfig) -> RequestRecord:
    """An answer in one body: faults strike the body, and the job runs to its end in any case."""
    visit, struck = served.visit, served.visit.struck
    ended_ns = served.finished.ended_ns
    if struck.stall is not None:
        ended_ns += round(struck.stall.wait_s * 1e9)
    made_ns, tokens = moments(served.finished.done.token_ns)
    body = Events(made_ns, tokens, 0, 0, ended_ns)
    end_ns = delivered(body, plan.network, plan.seed, visit.flight.request.index)[1]
    outcome: Outcome = "ok"
    breaks, detail = struck.breaks, ""
    if breaks is not None and breaks.kind in _HUNG_UP:
        outcome, detail = "truncated", f"{_HUNG_UP[breaks.kind]} inside the response"
    elif struck.garbage is not None:
        outcome, detail = "stream_error", f"unreadable response: {_GARBAGE_ERROR}"
    told: Told = "whole" if outcome == "ok" and not struck.no_usage else "nothing"
    return RequestRecord(
        **_common(visit.flight, config),
        **_usage(served, told=told, output_tokens=int(tokens.sum()), events=0),
        outcome=outcome,
        detail=detail,
        ended_ns=end_ns,
        headers_ns=end_ns,
        streamed=False,
        status=200,
        finish_reason="length" if outcome == "ok" else None,
        echoed_tier=_echo(served) if outcome == "ok" else None,
        rate_limit_headers=_limit_headers(served.quotas),
    )


def _outcome(served: Served) -> tuple[Outcome, str]:
    """How a stream ended, and what is said of it."""
    struck = served.visit.struck
    if struck.garbage is not None and not broken_before_garbage(served):
        return "stream_error", f"unreadable event: {_GARBAGE_ERROR}"
    if served.finished.cut_ns is not None and struck.breaks is not None:
        if struck.breaks.kind == "stream_error":
            return "stream_error", error_line(openai_errors.error_object(faults.refusal(struck.breaks)))
        return "truncated", f"{_HUNG_UP[struck.breaks.kind]} inside the response"
    if struck.no_end:
        return "truncated", "the stream ended without a finish reason or end mark"
    return "ok", ""


def _kinds(reasoning: int, events: int) -> list[tuple[EventKind, int]]:
    runs: list[tuple[EventKind, int]] = [("reasoning", reasoning), ("text", events - reasoning)]
    return [(kind, count) for kind, count in runs if count]


def _usage(served: Served, *, told: Told, output_tokens: int, events: int) -> dict[str, Any]:
    """Counts of tokens: the server's where it tells them, else what can be seen."""
    if told == "nothing":
        return {"output_tokens": events or None, "tokens_source": "events" if events else None}
    prompt, cached = served.visit.flight.prompt_words, served.finished.done.cached_tokens
    found = {"prompt_tokens": prompt, "output_tokens": output_tokens, "tokens_source": "usage"}
    if told == "whole":
        found["cached_tokens"] = cached
        found["cache_write_tokens"] = (prompt - cached or None) if served.caches else None
    return found


def _echo(served: Served) -> str | None:
    """The tier that the response names, as speed where that was asked for."""
    choice = served.visit.choice
    if named(served.visit.flight.request, "speed") is not None:
        return choice.echoed_speed
    return choice.echoed_service_tier


def _limit_headers(quotas: tuple[Quota, ...]) -> dict[str, str]:
    return {name: value for name, value in openai_errors.headers("", quotas).items() if "ratelimit" in name}


def _common(flight: Flight, config: ServerConfig) -> dict[str, Any]:
    request = flight.request
    return {
        "index": request.index,
        "stage": request.stage,
        "requested_tier": request.tier.name,
        "model": request.tier.model or config.model_name,
        "prompt_class_tokens": request.prompt_tokens,
        "max_tokens": request.max_tokens,
        "scheduled_ns": flight.scheduled_ns,
        "sent_ns": flight.sent_ns,
        "stamp_source": "virtual",
        "warmup": request.warmup,
        "session": request.session,
        "turn": request.turn,
    }


def _why_unreadable(event: bytes) -> str:
    try:
        msgspec.json.decode(event.removeprefix(b"data:").strip())
    except msgspec.DecodeError as error:
        return str(error)
    raise AssertionError("the garbage that faults send can be read")


_GARBAGE_ERROR = _why_unreadable(GARBAGE)
