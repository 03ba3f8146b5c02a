"""Every API, streamed and not, against a server that we did not write: llama.cpp with a real 270 M model."""

import msgspec
import pytest

from loadtest import derive, endpoint, reading, stamps, timeline
from loadtest.clock import RunClock
from loadtest.exchange import Exchange
from loadtest.plan import Api, Closed, Plan, Stage, Target, Tier, Timeouts, Workload
from loadtest.records import RequestRecord
from loadtest.request_bytes import RequestBuilder
from loadtest.transport import Transport
from loadtest.wire import WIRES
from loadtest.workload import Message, Request
from tests.real.llama import Llama

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]

TOKENS = 12
TALK = (
    Message("user", "Count from one to nine."),
    Message("assistant", "one two three"),
    Message("user", "Go on."),
)
PLAN = Plan(
    name="p",
    tiers=(Tier(name="t", body={"ignore_eos": True}),),  # llama.cpp knows it in all of its APIs
    stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),),
    workload=Workload(prompt_tokens=(16,), output_tokens=TOKENS),
)
APIS = pytest.mark.parametrize("api", WIRES)
FINISHES: dict[Api, str] = {
    "openai": "length", "completions": "length", "responses": "completed", "anthropic": "max_tokens",
}  # fmt: skip


def ask(server: Llama, api: Api, plan: Plan) -> tuple[Exchange, RequestRecord]:
    """Send one request the way a run does."""
    request = Request(
        index=0,
        stage="s",
        warmup=False,
        tier=plan.tiers[0],
        prompt_tokens=16,
        max_tokens=TOKENS,
        session="a",
        turn=1,
    )
    wire, where = WIRES[api], endpoint.parse(server.url, WIRES[api].path)
    builder = RequestBuilder(plan, Target(url=server.url, model="m", api=api), key="", run_id="r")
    stamping = stamps.probe()
    transport = Transport(where, Timeouts(), RunClock(), stamping)
    try:
        exchange = transport.call(builder.build(request, TALK)).run()
    finally:
        transport.close()
        stamping.close()
    return exchange, timeline.record(request, exchange, wire, model="m", scheduled_ns=0)


@APIS
def test_a_stream_is_read_to_its_last_token(llama: Llama, api: Api) -> None:
    exchange, made = ask(llama, api, PLAN)
    assert (made.outcome, made.detail, made.status) == ("ok", "", 200)
    assert (made.output_tokens, made.tokens_source, made.finish_reason) == (TOKENS, "usage", FINISHES[api])
    # One event a token, but that a token of half a letter waits for the other half.
    assert TOKENS - 2 <= len(made.event_ns) <= TOKENS
    assert made.event_kinds == [("text", len(made.event_ns))]
    assert (made.prompt_tokens or 0) > 8
    assert 0 <= (made.cached_tokens or 0) < (made.prompt_tokens or 0)
    assert (made.session, made.turn) == ("a", 1)
    ttft_s, tpot_s, e2e_s = derive.ttft_s(made), derive.tpot_s(made), derive.e2e_s(made)
    assert ttft_s is not None
    assert tpot_s is not None
    assert e2e_s is not None
    assert 0 < ttft_s < ttft_s + tpot_s < e2e_s
    assert reading.answer(exchange, WIRES[api]).strip()


@APIS
def test_an_answer_in_one_piece_has_its_tokens_and_no_instants(llama: Llama, api: Api) -> None:
    whole = msgspec.structs.replace(PLAN, workload=msgspec.structs.replace(PLAN.workload, stream=False))
    exchange, made = ask(llama, api, whole)
    assert (made.outcome, made.detail, made.streamed) == ("ok", "", False)
    assert (made.output_tokens, made.tokens_source, made.finish_reason) == (TOKENS, "usage", FINISHES[api])
    assert (made.event_ns, derive.ttft_s(made), derive.tpot_s(made)) == ([], None, None)
    assert (derive.e2e_s(made) or 0) > 0
    assert reading.answer(exchange, WIRES[api]).strip()


@APIS
def test_a_request_that_is_refused_says_why(llama: Llama, api: Api) -> None:
    bad = Tier(name="t", body={"messages": [{"role": "user", "content": {}}], "input": 5, "prompt": {}})
    _, made = ask(llama, api, msgspec.structs.replace(PLAN, tiers=(bad,)))
    assert made.outcome == "http_error"
    assert made.detail.startswith(f"HTTP {made.status}: ")
