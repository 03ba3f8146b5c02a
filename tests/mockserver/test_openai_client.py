"""The vendor's own Python client against a real mock server, as anybody would use it."""

import json
from collections.abc import Iterator
from typing import Any, Literal

import anthropic
import msgspec
import openai
import pydantic
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam

from mockserver import config
from mockserver.config import ServerConfig
from mockserver.tier_config import RateLimits
from mockserver.wire_config import Fault, Wire
from tests.mockserver.served import served

PLAIN = msgspec.structs.replace(config.load("fast-tier"), ingest_s=0.0, default_output_tokens=8)
ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "tell me a word"}]
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
}
FUNCTION: FunctionToolParam = {"type": "function", "name": "look_up", "parameters": {}, "strict": False}


def with_wire(**fields: Any) -> ServerConfig:
    return msgspec.structs.replace(PLAIN, wire=Wire(**fields))


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=30)


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    with served(PLAIN) as url, client_of(url) as made:
        yield made


@pytest.fixture(scope="module")
def thinking() -> Iterator[OpenAI]:
    """A client of a server that reasons, pads and tells usage in every chunk."""
    with (
        served(with_wire(reasoning_ratio=0.5, obfuscation=True, running_usage=True)) as url,
        client_of(url) as made,
    ):
        yield made


def test_a_chat_is_answered_whole(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="mock", messages=ASKED, max_completion_tokens=6)
    assert answer.choices[0].message.role == "assistant"
    assert len((answer.choices[0].message.content or "").split()) == 6
    assert answer.choices[0].finish_reason == "length"
    assert answer.service_tier == "default"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        4,
        6,
        10,
    )
    assert (answer._request_id or "").startswith("req_")


@pytest.mark.parametrize("n", [1, 2])
def test_a_chat_is_streamed_and_says_the_same(client: OpenAI, n: int) -> None:
    asked: dict[str, Any] = {"model": "mock", "messages": ASKED, "n": n, "seed": 3}
    whole = client.chat.completions.create(**asked)
    said = [""] * n
    usage = None
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
    assert said == [choice.message.content for choice in whole.choices]
    assert len(set(said)) == n
    assert usage == whole.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (4, 8 * n)


def test_the_streaming_helper_adds_a_chat_up(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="mock", messages=ASKED, stream_options={"include_usage": True}, service_tier="fast"
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content
    assert [delta == "" for delta in deltas] == [True] + [False] * 8  # the role comes first
    assert final.choices[0].finish_reason == "stop"
    assert final.service_tier == "priority"
    assert final.usage is not None
    assert final.usage.completion_tokens == 8


def test_the_streaming_helper_parses_a_call_of_a_tool(client: OpenAI) -> None:
    with client.chat.completions.stream(
        model="mock", messages=ASKED, tools=[TOOL], tool_choice="required"
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [event.name for event in done] == ["look_up"]
    assert final.choices[0].finish_reason == "tool_calls"
    (call,) = final.choices[0].message.tool_calls or []
    assert set(json.loads(call.function.arguments)) == {"text"}
    following = client.chat.completions.create(
        model="mock",
        messages=[
            *ASKED,
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": "look_up", "arguments": call.function.arguments},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": call.id, "content": "it is so"},
        ],
    )
    assert following.usage is not None
    assert following.usage.prompt_tokens == 4 + 8 + 3


class Weather(pydantic.BaseModel):
    """Where, how warm, and what it is like."""

    degrees: int = pydantic.Field(ge=-50)
    city: str
    sky: Literal["clear", "grey"]


def test_structured_outputs_and_strict_tools_parse_into_what_was_asked_for(client: OpenAI) -> None:
    chat = client.chat.completions.parse(model="mock", messages=ASKED, response_format=Weather)
    assert isinstance(chat.choices[0].message.parsed, Weather)
    assert len(chat.choices[0].message.parsed.city.split()) == 8
    tool = openai.pydantic_function_tool(Weather)
    called = client.chat.completions.parse(model="mock", messages=ASKED, tools=[tool], tool_choice="required")
    assert [type(call.function.parsed_arguments) for call in called.choices[0].message.tool_calls or []] == [
        Weather
    ]
    response = client.responses.parse(model="mock", input="tell me a word", text_format=Weather)
    assert isinstance(response.output_parsed, Weather)
    with client.responses.stream(model="mock", input="tell me a word", text_format=Weather) as stream:
        assert stream.get_final_response().output_parsed == response.output_parsed


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_a_limit_ends_no_structured_output_which_is_whole_and_so_the_client_parses_it(
    client: OpenAI, limit: int
) -> None:
    chat = client.chat.completions.parse(
        model="mock", messages=ASKED, response_format=Weather, max_tokens=limit
    )
    assert isinstance(chat.choices[0].message.parsed, Weather)
    response = client.responses.parse(
        model="mock", input="tell me a word", text_format=Weather, max_output_tokens=limit
    )
    assert (type(response.output_parsed), response.status) == (Weather, "completed")
    assert chat.usage is not None
    assert response.usage is not None
    assert chat.usage.completion_tokens == response.usage.output_tokens == limit


def test_reasoning_comes_before_text_and_is_counted(thinking: OpenAI) -> None:
    thought = said = ""
    counted = []
    for chunk in thinking.chat.completions.create(
        model="mock", messages=ASKED, stream=True, stream_options={"include_usage": True}
    ):
        assert chunk.usage is not None
        counted.append(chunk.usage.completion_tokens)
        for choice in chunk.choices:
            assert chunk.obfuscation
            more = getattr(choice.delta, "reasoning_content", "")
            assert not (more and said)
            thought, said = thought + more, said + (choice.delta.content or "")
    assert (len(thought.split()), len(said.split())) == (4, 4)
    assert counted == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8]
    assert chunk.usage is not None
    assert chunk.usage.completion_tokens_details is not None
    assert chunk.usage.completion_tokens_details.reasoning_tokens == 4


def test_a_stop_sequence_ends_a_chat_before_it(client: OpenAI) -> None:
    free = client.chat.completions.create(model="mock", messages=ASKED).choices[0].message.content or ""
    third = free.split()[2]
    met = client.chat.completions.create(model="mock", messages=ASKED, stop=third)
    assert (met.choices[0].message.content, met.choices[0].finish_reason) == (
        free[: free.index(third)],
        "stop",
    )
    assert met.usage is not None
    assert met.usage.completion_tokens <= 3


def test_completions_take_several_prompts_and_token_ids(client: OpenAI) -> None:
    answer = client.completions.create(model="mock", prompt=["one two", "three"], n=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert {len(choice.text.split()) for choice in answer.choices} == {3}
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 12)
    stream = client.completions.create(model="mock", prompt=[1, 2, 3], max_tokens=3, stream=True)
    assert len("".join(chunk.choices[0].text for chunk in stream).split()) == 3


def test_a_response_is_answered_whole_and_streamed(client: OpenAI) -> None:
    whole = client.responses.create(model="mock", input="tell me a word", max_output_tokens=5)
    assert (whole.status, len(whole.output_text.split())) == ("incomplete", 5)
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    events = list(
        client.responses.create(model="mock", input="tell me a word", max_output_tokens=5, stream=True)
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert said == whole.output_text
    assert events[-1].type == "response.incomplete"


def test_the_streaming_helper_adds_a_response_up(thinking: OpenAI) -> None:
    with thinking.responses.stream(model="mock", input="tell me a word", service_tier="fast") as stream:
        kinds = [event.type for event in stream if event.type.endswith("delta")]
        final = stream.get_final_response()
    assert kinds == ["response.reasoning_summary_text.delta"] * 4 + ["response.output_text.delta"] * 4
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert (final.status, final.service_tier, len(final.output_text.split())) == ("completed", "priority", 4)
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens) == (4, 8)
    assert final.usage.output_tokens_details.reasoning_tokens == 4


def test_the_streaming_helper_adds_a_call_of_a_function_up(client: OpenAI) -> None:
    with client.responses.stream(
        model="mock",
        input="tell me a word",
        tools=[FUNCTION],
        tool_choice={"type": "function", "name": "look_up"},
    ) as stream:
        final = stream.get_final_response()
    (call,) = final.output
    assert call.type == "function_call"
    assert (call.name, set(json.loads(call.arguments))) == ("look_up", {"text"})


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["mock"]
    assert client.models.retrieve("mock").owned_by == "tierscope"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


def test_every_model_that_is_listed_can_be_retrieved_whatever_its_name() -> None:
    odd = ("meta-llama/Llama-3", "a model: the second", "100%", "what?", "größer#1", "a%2Fb")
    tiers = (msgspec.structs.replace(PLAIN.tiers[0], model_names=odd), PLAIN.tiers[1])
    with served(msgspec.structs.replace(PLAIN, tiers=tiers)) as url:
        with client_of(url) as theirs:
            listed = [model.id for model in theirs.models.list()]
            assert {*odd} < {*listed}
            assert [theirs.models.retrieve(name).id for name in listed] == listed
        with anthropic.Anthropic(base_url=url, api_key="any", max_retries=0) as other:
            assert [other.models.retrieve(model.id).id for model in other.models.list()] == listed


def test_refusals_become_the_clients_own_errors(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt", messages=ASKED)
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="mock", messages=ASKED, max_tokens=0)
    assert (bad.value.type, bad.value.param) == ("invalid_request_error", "max_tokens")
    assert (bad.value.request_id or "").startswith("req_")
    with pytest.raises(openai.BadRequestError) as long:
        client.responses.create(model="mock", input="x", max_output_tokens=1_000_000)
    assert long.value.code == "context_length_exceeded"


def test_a_strict_server_refuses_what_only_engines_know() -> None:
    with served(with_wire(refuse_unknown=True)) as url, client_of(url) as strict:
        with pytest.raises(openai.BadRequestError) as refused:
            strict.chat.completions.create(model="mock", messages=ASKED, extra_body={"ignore_eos": True})
        assert (refused.value.param, refused.value.code) == ("ignore_eos", "unknown_parameter")
        strict.chat.completions.create(model="mock", messages=ASKED, max_tokens=1)


def test_a_limit_is_the_clients_rate_limit_error_and_headers_tell_what_is_left() -> None:
    first, *others = PLAIN.tiers
    limits = RateLimits(requests_per_min=1, output_tokens_per_min=600)
    limited = msgspec.structs.replace(PLAIN, tiers=(msgspec.structs.replace(first, limits=limits), *others))
    with served(limited) as url, client_of(url) as made:
        raw = made.chat.completions.with_raw_response.create(model="mock", messages=ASKED, max_tokens=6)
        assert raw.headers["x-ratelimit-limit-requests"] == "1"
        assert raw.headers["x-ratelimit-remaining-requests"] == "0"
        assert raw.headers["x-ratelimit-limit-tokens"] == "600"
        assert int(raw.headers["openai-processing-ms"]) >= 0
        with pytest.raises(openai.RateLimitError) as refused:
            made.chat.completions.create(model="mock", messages=ASKED)
        assert (refused.value.type, refused.value.code) == ("requests", "rate_limit_exceeded")
        assert 0 < int(refused.value.response.headers["retry-after"]) <= 60


@pytest.mark.parametrize("kind", ["http_error", "stream_error"])
def test_faults_become_the_clients_own_errors(kind: Any) -> None:
    faulty = msgspec.structs.replace(PLAIN, faults=(Fault(kind=kind, after_tokens=2),))
    expected = openai.InternalServerError if kind == "http_error" else openai.APIError
    with served(faulty) as url, client_of(url) as made, pytest.raises(expected) as broken:
        for _ in made.chat.completions.create(model="mock", messages=ASKED, stream=True):
            pass
    assert broken.value.type == "server_error"
