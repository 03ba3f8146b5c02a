"""What the requests of each API say, after the vendors' published types (2026)."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from loadtest.plan import Api, Closed, Plan, Stage, Tier, Workload
from loadtest.wire import WIRES
from loadtest.workload import Message, Request

TALK = (Message("user", "one two"), Message("assistant", "three"), Message("user", "four"))
TURNS = [{"role": message.role, "content": message.text} for message in TALK]

ITEMS: list[dict[str, Any]] = [
    TURNS[0],
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "three"}]},
    TURNS[2],
]


def plan(**more: Any) -> Plan:
    return Plan(
        name="p",
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),),
        workload=Workload(prompt_tokens=(4,), output_tokens=8, **more),
    )


def body(
    api: Api, *, tier: Tier | None = None, messages: Sequence[Message] = TALK[:1], **workload: Any
) -> Any:
    asked = tier or Tier(name="a")
    request = Request(index=0, stage="s", warmup=False, tier=asked, prompt_tokens=4, max_tokens=8)
    return json.loads(WIRES[api].body(plan(**workload), request, model="m", messages=messages))


USAGE = {"include_usage": True}
BODIES: dict[Api, tuple[str, dict[str, Any]]] = {
    "openai": (
        "/v1/chat/completions",
        {"messages": TURNS, "max_tokens": 8, "stream": True, "stream_options": USAGE, "ignore_eos": True},
    ),
    "completions": (
        "/v1/completions",
        {
            "prompt": "one two\nthree\nfour", "max_tokens": 8, "stream": True, "stream_options": USAGE,
            "ignore_eos": True,
        },
    ),
    "responses": (
        "/v1/responses",
        {"input": ITEMS, "max_output_tokens": 8, "stream": True, "ignore_eos": True},
    ),
    "anthropic": ("/v1/messages", {"messages": TURNS, "max_tokens": 8, "stream": True}),
}  # fmt: skip
APIS = pytest.mark.parametrize("api", WIRES)


@APIS
def test_a_request_says_the_whole_conversation_and_bounds_its_answer(api: Api) -> None:
    path, expected = BODIES[api]
    assert WIRES[api].path == path
    assert body(api, messages=TALK) == {"model": "m"} | expected


@APIS
def test_an_answer_in_one_piece_is_asked_for_without_stream_options(api: Api) -> None:
    asked = body(api, stream=False)
    assert asked["stream"] is False
    assert "stream_options" not in asked


@pytest.mark.parametrize(
    ("api", "field"),
    [
        ("openai", "stop"),
        ("completions", "stop"),
        ("responses", "stop"),
        ("anthropic", "stop_sequences"),
    ],
)
def test_stop_words_go_under_the_name_that_the_api_has_for_them(api: Api, field: str) -> None:
    assert body(api, stop=("END", "\n\n"))[field] == ["END", "\n\n"]
    assert field not in body(api)


@APIS
def test_a_strict_server_is_not_sent_a_field_it_does_not_know(api: Api) -> None:
    assert "ignore_eos" not in body(api, ignore_eos=False)


@APIS
def test_a_tier_adds_its_own_fields_and_wins(api: Api) -> None:
    tier = Tier(name="fast", model="other", body={"service_tier": "priority", "stream": False, "a": {"b": 1}})
    asked = body(api, tier=tier)
    assert (asked["service_tier"], asked["stream"], asked["a"]) == ("priority", False, {"b": 1})


def test_a_tier_adds_to_a_table_and_loses_nothing_of_it() -> None:
    tier = Tier(name="t", body={"stream_options": {"continuous_usage_stats": True}, "max_tokens": 3})
    asked = body("openai", tier=tier)
    assert asked["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert asked["max_tokens"] == 3


def test_the_newer_name_of_the_output_bound_replaces_the_older_one() -> None:
    asked = body("openai", tier=Tier(name="a", body={"max_completion_tokens": 8}))
    assert asked["max_completion_tokens"] == 8
    assert "max_tokens" not in asked


def test_a_system_message_goes_where_anthropic_wants_it() -> None:
    system = Message("system", "be brief")
    asked = body("anthropic", messages=[system, *TALK])
    assert (asked["system"], asked["messages"]) == ("be brief", TURNS)
    assert body("openai", messages=[system, TALK[0]])["messages"][0]["role"] == "system"


@APIS
def test_making_a_body_changes_no_tier(api: Api) -> None:
    tier = Tier(name="t", body={"stream_options": {"x": 1}, "metadata": {"y": {"z": 1}}})
    before = msgspec.json.encode(tier)
    body(api, tier=tier)
    assert msgspec.json.encode(tier) == before


@pytest.mark.parametrize(
    ("api", "name", "value"),
    [
        ("openai", "Authorization", "Bearer k"),
        ("completions", "Authorization", "Bearer k"),
        ("responses", "Authorization", "Bearer k"),
        ("anthropic", "x-api-key", "k"),
    ],
)
def test_a_key_is_sent_and_no_key_is_not(api: Api, name: str, value: str) -> None:
    assert WIRES[api].headers("k")[name] == value
    assert name not in WIRES[api].headers("")


@APIS
def test_a_key_comes_from_the_environment_under_its_vendors_name_or_ours(api: Api) -> None:
    wire = WIRES[api]
    vendors = "ANTHROPIC_API_KEY" if api == "anthropic" else "OPENAI_API_KEY"
    assert wire.key({vendors: " a "}) == "a"
    assert wire.key({vendors: "a", "TIERSCOPE_API_KEY": "b"}) == "b"
    assert wire.key({"OTHER_KEY": "a"}) == ""
