"""Anthropic's Messages without a socket: requests, answers, and the official client in memory."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import pydantic

from loadtest.sse import EventReader
from mockserver import config
from mockserver.answers import answers_for
from mockserver.anthropic_voice import MessageVoice
from mockserver.ask import Ask, Placed, RefusedError, Usage
from mockserver.wire_anthropic import DIALECT
from mockserver.wire_config import Wire

CONFIG = config.load("fast-tier")
VERSION = {"anthropic-version": "2023-06-01"}
ID = "0123456789abcdef01234567"
TOOL = {"name": "look_up", "description": "finds it", "input_schema": {"type": "object"}}
CHOICE = {"type": "tool", "name": "look_up"}
PLAIN = Wire()


def body(**fields: Any) -> bytes:
    whole = {"model": "mock", "max_tokens": 8, "messages": [{"role": "user", "content": "a b c"}], **fields}
    return json.dumps({key: value for key, value in whole.items() if value is not ...}).encode()


def parsed(wire: Wire = PLAIN, headers: dict[str, str] = VERSION, **fields: Any) -> Ask:
    return DIALECT.parse(body(**fields), headers, wire)


def placed(ask: Ask, wire: Wire = PLAIN, **said: Any) -> Placed:
    tier = CONFIG.tiers[0]
    answers = answers_for(ask, default_output_tokens=16, wire=wire)
    return Placed(ask=ask, tier=tier, requested=tier, answers=answers, **said)


def voice(one: Placed, wire: Wire = PLAIN) -> MessageVoice:
    made = DIALECT.voice(one, wire=wire, request_id=ID, created_unix_s=0)
    assert isinstance(made, MessageVoice)
    return made


def usage_of(one: Placed, *, cached_tokens: int = 0, cache_write_tokens: int = 0) -> Usage:
    answer = one.answers[0]
    return Usage(
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        reasoning_tokens=answer.reasoning_tokens,
        cached_tokens=cached_tokens,
        cache_write_tokens=cache_write_tokens,
    )


def streamed(one: Placed, wire: Wire = PLAIN, at_once: list[int] | None = None) -> Iterator[bytes]:
    """What is written for a stream: tokens one by one, or as many at once as ``at_once`` says in turn."""
    says, usage, done, turn = voice(one, wire), usage_of(one), 0, 0
    yield says.greeting()
    yield says.opening(usage)
    while done < one.answers[0].output_tokens:
        count = min((at_once or [1])[turn % len(at_once or [1])], one.answers[0].output_tokens - done)
        yield says.tokens(0, count)
        done, turn = done + count, turn + 1
    yield says.choice_end(0)
    yield says.closing(usage)


def client_of(answer: Callable[[httpx2.Request], httpx2.Response]) -> anthropic.Anthropic:
    transport = httpx2.Client(transport=httpx2.MockTransport(answer))
    return anthropic.Anthropic(base_url="http://mock", api_key="any", http_client=transport, max_retries=0)


def served(wire: Wire = PLAIN, at_once: list[int] | None = None) -> anthropic.Anthropic:
    """The official client before a server in memory."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        try:
            ask = DIALECT.parse(request.content, dict(request.headers), wire)
        except RefusedError as refusal:
            return refused(refusal)
        one = placed(ask, wire, echoed_service_tier="default", echoed_speed=ask.speed)
        if ask.stream:
            said = b"".join(streamed(one, wire, at_once))
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=said)
        return httpx2.Response(
            200, headers={"content-type": "application/json"}, content=voice(one, wire).body(usage_of(one))
        )

    return client_of(answer)


def refused(refusal: RefusedError) -> httpx2.Response:
    return httpx2.Response(
        refusal.status,
        headers={"content-type": "application/json", **DIALECT.headers(ID, (), None, 0)},
        content=DIALECT.refusal_body(refusal, ID),
    )


def events_of(data: bytes) -> list[tuple[bytes, bytes]]:
    return list(EventReader().receive(data))


def extras(model: object) -> set[str]:
    """Names in what was read that the vendor's types do not have."""
    if isinstance(model, list):
        return set().union(*map(extras, model)) if model else set()
    if not isinstance(model, pydantic.BaseModel):
        return set()
    inner = [extras(getattr(model, name)) for name in type(model).model_fields]
    return set(model.model_extra or ()).union(*inner)
