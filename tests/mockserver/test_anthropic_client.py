"""The official ``anthropic`` client against a mock server that runs, without a workaround."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anthropic
import pydantic
import pytest
from anthropic.types import MessageParam, TextBlock, ThinkingBlock, ToolParam, ToolUseBlock

from mockserver import text
from mockserver.hardware import Deployment
from mockserver.server_config import ServerConfig
from mockserver.tier_config import PrefixCache, RateLimits, TierConfig
from mockserver.wire_config import Fault, FaultKind, Wire
from tests.mockserver.served import served

QUESTION: list[MessageParam] = [{"role": "user", "content": "why is the sky blue"}]
TOOL: ToolParam = {
    "name": "look_up",
    "description": "finds it",
    "input_schema": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
}
CACHE = PrefixCache(block_tokens=16)
STANDARD = TierConfig(name="standard", service_tiers=("default", "auto"), prefix_cache=CACHE)
FAST = TierConfig(name="fast", service_tiers=("priority", "fast"), prefix_cache=CACHE)


def server(*tiers: TierConfig, wire: Wire | None = None, faults: tuple[Fault, ...] = ()) -> ServerConfig:
    return ServerConfig(
        name="s",
        deployment=Deployment(chip="H100", model="Llama-3.1-8B"),
        tiers=tiers or (STANDARD, FAST),
        max_context_tokens=20_000,
        ingest_s=0.0,
        wire=wire or Wire(),
        faults=faults,
    )


def client_at(url: str, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="any", **options)


@pytest.fixture(scope="module")
def client() -> Iterator[anthropic.Anthropic]:
    """A client of a server with a standard and a fast tier, either with a prefix cache."""
    with served(server()) as url, client_at(url) as made:
        yield made


def test_a_message_comes_whole(client: anthropic.Anthropic) -> None:
    message = client.messages.create(model="mock", max_tokens=12, messages=QUESTION)
    assert isinstance(message.content[0], TextBlock)
    assert text.count_tokens(message.content[0].text) == 12 == message.usage.output_tokens
    assert message.usage.input_tokens == 5
    assert (message.stop_reason, message.usage.service_tier) == ("max_tokens", "standard")
    assert message._request_id is not None
    assert message._request_id.removeprefix("req_") == message.id.removeprefix("msg_")


def test_a_stream_adds_up_to_the_same_message(client: anthropic.Anthropic) -> None:
    whole = client.messages.create(model="mock", max_tokens=12, messages=QUESTION)
    with client.messages.stream(model="mock", max_tokens=12, messages=QUESTION) as stream:
        pieces = list(stream.text_stream)
        added = stream.get_final_message()
    assert len(pieces) == 12
    assert [block.to_dict() for block in added.content] == [block.to_dict() for block in whole.content]
    assert added.usage.to_dict() == whole.usage.to_dict()
    assert added.stop_reason == whole.stop_reason


def test_thinking_comes_before_text_and_is_signed() -> None:
    with served(server(wire=Wire(reasoning_ratio=0.02))) as url, client_at(url) as client:
        with client.messages.stream(
            model="mock",
            max_tokens=2000,
            thinking={"type": "enabled", "budget_tokens": 1024},
            messages=QUESTION,
            stop_sequences=["e"],
        ) as stream:
            kinds = [event.type for event in stream]
            message = stream.get_final_message()
        thought, said = message.content
        assert isinstance(thought, ThinkingBlock)
        assert isinstance(said, TextBlock)
        assert text.count_tokens(thought.thinking) == 40 == kinds.count("thinking")
        assert thought.signature
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "e")
        assert "e" not in said.text
        silent = client.messages.create(
            model="mock",
            max_tokens=60,
            thinking={"type": "adaptive", "display": "omitted"},
            messages=[*QUESTION, {"role": "assistant", "content": message.content}, *QUESTION],
        )
        assert isinstance(silent.content[0], ThinkingBlock)
        assert silent.content[0].thinking == ""


def test_a_tool_is_called_with_arguments_that_are_json(client: anthropic.Anthropic) -> None:
    with client.messages.stream(
        model="mock",
        max_tokens=9,
        messages=QUESTION,
        tools=[TOOL],
        tool_choice={"type": "tool", "name": "look_up"},
    ) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert isinstance(message.content[0], ToolUseBlock)
    assert message.content[0].name == "look_up"
    assert isinstance(message.content[0].input["what"], str)
    assert kinds.count("input_json") == 1 + 9  # the first is empty
    assert message.stop_reason == "tool_use"
    result: MessageParam = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": message.content[0].id, "content": "found"}],
    }
    so_far: list[MessageParam] = [*QUESTION, {"role": "assistant", "content": message.content}, result]
    after = client.messages.create(model="mock", max_tokens=3, tools=[TOOL], messages=so_far)
    assert after.usage.input_tokens > message.usage.input_tokens


class Weather(pydantic.BaseModel):
    place: str
    degrees: int


def test_an_answer_is_json_of_the_schema_that_was_asked_for(client: anthropic.Anthropic) -> None:
    message = client.messages.parse(model="mock", max_tokens=20, messages=QUESTION, output_format=Weather)
    assert isinstance(message.parsed_output, Weather)
    assert message.parsed_output.place
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 20)


def test_a_speed_is_served_or_needs_its_beta(client: anthropic.Anthropic) -> None:
    fast = client.messages.create(model="mock", max_tokens=3, messages=QUESTION, speed="fast")
    assert (fast.usage.speed, fast.usage.service_tier) == ("fast", "standard")
    slow = client.messages.create(model="mock", max_tokens=3, messages=QUESTION, service_tier="standard_only")
    assert slow.usage.speed == "standard"
    with served(server(wire=Wire(fast_needs_beta=True))) as url, client_at(url) as strict:
        with pytest.raises(anthropic.BadRequestError, match="speed"):
            strict.messages.create(model="mock", max_tokens=3, messages=QUESTION, speed="fast")
        preview = strict.beta.messages.create(
            model="mock",
            max_tokens=3,
            messages=[{"role": "user", "content": "a"}],
            speed="fast",
            betas=["fast-mode-2026-02-01"],
        )
        assert preview.usage.speed == "fast"


def test_a_model_without_the_speed_refuses_it_or_serves_standard_in_silence() -> None:
    with (
        served(server(STANDARD)) as url,
        client_at(url) as client,
        pytest.raises(anthropic.BadRequestError, match="speed"),
    ):
        client.messages.create(model="mock", max_tokens=3, messages=QUESTION, speed="fast")
    removed = TierConfig(name="fast", service_tiers=("fast",), downgrade_to="standard", downgrade_ratio=1.0)
    with served(server(STANDARD, removed)) as url, client_at(url) as client:
        message = client.messages.create(model="mock", max_tokens=3, messages=QUESTION, speed="fast")
        assert message.usage.speed == "standard"


def test_a_limit_is_told_in_headers_and_refuses_with_a_wait() -> None:
    limits = RateLimits(requests_per_min=1, input_tokens_per_min=6000, output_tokens_per_min=3000)
    tier = TierConfig(name="fast", service_tiers=("fast",), limits=limits)
    with served(server(STANDARD, tier)) as url, client_at(url, max_retries=0) as client:
        raw = client.messages.with_raw_response.create(
            model="mock", max_tokens=3, messages=QUESTION, speed="fast"
        )
        assert raw.headers["anthropic-fast-output-tokens-limit"] == "3000"
        assert raw.headers["anthropic-ratelimit-requests-remaining"] == "0"
        with pytest.raises(anthropic.RateLimitError) as caught:
            client.messages.create(model="mock", max_tokens=3, messages=QUESTION, speed="fast")
        headers = caught.value.response.headers
        assert 0 < int(headers["retry-after"]) <= 60
        assert caught.value.type == "rate_limit_error"
        assert caught.value.request_id == headers["request-id"]
        reset = datetime.fromisoformat(headers["anthropic-ratelimit-requests-reset"])
        assert 0 < (reset - datetime.now(UTC)).total_seconds() <= 62
        other = client.messages.with_raw_response.create(model="mock", max_tokens=3, messages=QUESTION)
        assert not [name for name in other.headers if name.startswith("anthropic-")]


def test_the_client_waits_as_long_as_it_is_told_and_is_served() -> None:
    limits = RateLimits(requests_per_min=120, burst_s=0.5)
    with served(server(TierConfig(name="one", limits=limits))) as url, client_at(url) as client:
        ask = client.messages.with_raw_response.create
        answers = [ask(model="mock", max_tokens=3, messages=QUESTION) for _ in range(2)]
    assert [answer.retries_taken for answer in answers] == [0, 1]


def test_an_overloaded_tier_says_so() -> None:
    limits = RateLimits(requests_per_min=1, over="overload")
    tier = TierConfig(name="one", limits=limits)
    with served(server(tier)) as url, client_at(url, max_retries=0) as client:
        client.messages.create(model="mock", max_tokens=3, messages=QUESTION)
        with pytest.raises(anthropic.OverloadedError) as caught:
            client.messages.create(model="mock", max_tokens=3, messages=QUESTION)
    assert caught.value.type == "overloaded_error"


def test_an_error_comes_within_a_stream() -> None:
    fault = Fault(kind="stream_error", status=529, after_tokens=3)
    with served(server(faults=(fault,))) as url, client_at(url) as client:
        seen: list[str] = []
        with (
            client.messages.stream(model="mock", max_tokens=9, messages=QUESTION) as stream,
            pytest.raises(anthropic.APIStatusError) as caught,
        ):
            seen.extend(stream.text_stream)
    assert len(seen) <= 3
    assert caught.value.type == "overloaded_error"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("http_error", anthropic.InternalServerError),
        ("stream_error", anthropic.APIStatusError),
        ("garbage", json.JSONDecodeError),
    ],
)
def test_what_a_stream_says_wrong_does_not_escape_the_client(kind: FaultKind, error: type[Exception]) -> None:
    fault = Fault(kind=kind, after_tokens=3)
    with (
        served(server(faults=(fault,))) as url,
        client_at(url, max_retries=0) as client,
        pytest.raises(error),
        client.messages.stream(model="mock", max_tokens=9, messages=QUESTION) as stream,
    ):
        stream.until_done()


def test_what_does_not_exist_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="other", max_tokens=3, messages=QUESTION)
    assert caught.value.type == "not_found_error"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.count_tokens(model="other", messages=QUESTION)
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.list()
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="mock", max_tokens=30_000, messages=QUESTION, timeout=60)


def test_tokens_are_counted_without_an_answer(client: anthropic.Anthropic) -> None:
    counted = client.messages.count_tokens(model="mock", messages=QUESTION, system="be brief", tools=[TOOL])
    message = client.messages.create(
        model="mock", messages=QUESTION, system="be brief", tools=[TOOL], max_tokens=1
    )
    assert counted.input_tokens == message.usage.input_tokens


def test_a_marked_prefix_is_written_once_and_read_again(client: anthropic.Anthropic) -> None:
    long = " ".join(f"word{number}" for number in range(64))

    def ask(question: str, *, speed: Any = anthropic.omit, marked: bool = True) -> tuple[int, int, int]:
        mark: Any = {"type": "ephemeral"} if marked else None
        usage = client.messages.create(
            model="mock",
            max_tokens=2,
            system=[{"type": "text", "text": long, "cache_control": mark}],
            messages=[{"role": "user", "content": question}],
            speed=speed,
        ).usage
        assert usage.cache_creation_input_tokens is not None
        assert usage.cache_read_input_tokens is not None
        return usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.input_tokens

    assert ask("first one", marked=False) == (0, 0, 66)
    assert ask("first one") == (0, 64, 2)
    assert ask("a second one") == (64, 0, 3)
    assert ask("a third", marked=False) == (0, 0, 66)
    assert ask("a third", speed="fast") == (0, 64, 2)  # each tier has a cache of its own


def test_models_are_listed(client: anthropic.Anthropic) -> None:
    assert [model.id for model in client.models.list()] == ["mock"]
    assert client.models.retrieve("mock").max_input_tokens == 20_000


def test_the_asynchronous_client_streams(client: anthropic.Anthropic) -> None:
    async def words() -> list[str]:
        async with (
            anthropic.AsyncAnthropic(base_url=str(client.base_url), api_key="any") as made,
            made.messages.stream(model="mock", max_tokens=7, messages=QUESTION) as stream,
        ):
            return [piece async for piece in stream.text_stream]

    assert len(asyncio.run(words())) == 7
