"""Who is served: by which tier, over which limits, and what a response says of it."""

from typing import Any

import msgspec
import numpy as np
import pytest

from mockserver import text
from mockserver.ask import Ask, Placed, RefusedError
from mockserver.desk import Choice, Desk
from mockserver.hardware import Deployment
from mockserver.server_config import ServerConfig
from mockserver.tier_config import RateLimits, TierConfig

S = 10**9
STANDARD = TierConfig(name="standard", service_tiers=("default", "auto"))
FAST = TierConfig(name="fast", service_tiers=("priority", "fast"))
SPARK = TierConfig(name="spark", service_tiers=("spark",), model_names=("spark-1",))


def server(*tiers: TierConfig) -> ServerConfig:
    deployment = Deployment(chip="H100", model="Llama-3.1-8B")
    return ServerConfig(
        name="s", deployment=deployment, tiers=tiers, max_context_tokens=1000, default_output_tokens=100
    )


def with_limits(tier: TierConfig, **given: Any) -> TierConfig:
    """The tier with limits (keys of RateLimits) and whatever else is given."""
    limits = {key: given.pop(key) for key in tuple(given) if key in RateLimits.__struct_fields__}
    return msgspec.structs.replace(tier, limits=RateLimits(**limits), **given)


def ask(**given: Any) -> Ask:
    return Ask(**{"model": "mock", "prompts": ("one two three",), "max_tokens": 10, **given})


def choose(
    desk: Desk,
    now_ns: int = 0,
    output_tokens: int = 10,
    *,
    model: str = "mock",
    service_tier: str | None = None,
    speed: str | None = None,
) -> Choice:
    return desk.choose(
        model=model,
        service_tier=service_tier,
        speed=speed,
        input_tokens=100,
        output_tokens=output_tokens,
        now_ns=now_ns,
    )


def refused(desk: Desk, now_ns: int = 0, output_tokens: int = 10, **asked: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        choose(desk, now_ns, output_tokens, **asked)
    return caught.value


@pytest.mark.parametrize(
    ("asked", "tier", "echoed", "speed"),
    [
        ({}, "standard", "default", "standard"),
        ({"service_tier": "auto"}, "standard", "default", "standard"),
        ({"service_tier": "standard_only"}, "standard", "default", "standard"),
        ({"service_tier": "fast"}, "fast", "priority", "fast"),
        ({"speed": "fast"}, "fast", "priority", "fast"),
        ({"speed": "standard"}, "standard", "default", "standard"),
        ({"speed": "fast", "service_tier": "default"}, "fast", "priority", "fast"),
        ({"speed": "standard", "service_tier": "priority"}, "fast", "priority", "fast"),
        ({"model": "spark-1"}, "spark", "spark", "standard"),
        ({"model": "spark-1", "service_tier": "default"}, "spark", "spark", "standard"),
        ({"service_tier": "spark"}, "spark", "spark", "standard"),
    ],
)
def test_a_request_is_served_by_what_it_asks_for_and_told_so(
    asked: dict[str, Any], tier: str, echoed: str, speed: str
) -> None:
    choice = choose(Desk(server(STANDARD, FAST, SPARK)), **asked)
    assert (choice.tier.name, choice.requested.name) == (tier, tier)
    assert (choice.echoed_service_tier, choice.echoed_speed) == (echoed, speed)


def test_speeds_that_are_listed_are_the_only_ones() -> None:
    quick = msgspec.structs.replace(FAST, speeds=("turbo",))
    desk = Desk(server(STANDARD, quick))
    assert choose(desk, speed="turbo").tier.name == "fast"
    assert choose(desk, speed="turbo").echoed_speed == "turbo"
    assert choose(desk).echoed_speed == "standard"
    assert (
        refused(desk, speed="fast").message
        == "speed: 'fast' is not served here; expected one of: standard, turbo"
    )


@pytest.mark.parametrize(
    ("asked", "status", "param", "says"),
    [
        ({"model": "gpt"}, 404, "model", "The model 'gpt' does not exist; this server has 'mock', 'spark-1'"),
        ({"service_tier": "flex"}, 400, "service_tier", "one of: auto, default, priority, fast, spark"),
        ({"speed": "warp"}, 400, "speed", "'warp' is not served here; expected one of: standard, fast"),
        ({"model": "spark-1", "speed": "fast"}, 400, "speed", "expected one of: standard"),
        ({"model": "spark-1", "service_tier": "priority"}, 400, "service_tier", "one of: auto, spark"),
        ({"model": "x" * 10**6}, 404, "model", "does not exist"),
    ],
)  # fmt: skip
def test_what_nobody_serves_is_refused_with_what_is_served(
    asked: dict[str, Any], status: int, param: str, says: str
) -> None:
    refusal = refused(Desk(server(STANDARD, FAST, SPARK)), **asked)
    assert (refusal.status, refusal.param) == (status, param)
    assert says in refusal.message
    assert len(refusal.message) < 300


def test_prompt_and_output_must_fit_into_the_context() -> None:
    desk = Desk(server(STANDARD))
    assert choose(desk, output_tokens=900).output_tokens == 900
    refusal = refused(desk, output_tokens=901)
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")
    for limit in (998, 10**7):  # 3 words of prompt; the second would be an answer of ten million words
        with pytest.raises(RefusedError, match="maximum context length is 1000"):
            desk.place(ask(max_tokens=limit, stop=("nowhere",)), 0)
    assert desk.place(ask(max_tokens=997), 0).answers[0].output_tokens == 997


def test_an_answer_without_a_limit_ends_where_the_context_does() -> None:
    desk = Desk(server(STANDARD))
    assert desk.place(ask(max_tokens=None), 0).answers[0].output_tokens == 100
    assert desk.place(ask(max_tokens=None, prompts=("word " * 950,)), 0).answers[0].output_tokens == 50
    with pytest.raises(RefusedError, match="maximum context"):
        desk.place(ask(max_tokens=None, prompts=("word " * 1000,)), 0)


def test_answers_are_charged_up_to_their_bound_and_prompts_once() -> None:
    tier = with_limits(STANDARD, input_tokens_per_min=600, output_tokens_per_min=600)
    desk = Desk(server(tier))
    placed = desk.place(ask(prompts=("a b", "c d e"), choices=2, max_tokens=50), 0)
    assert len(placed.answers) == 4
    assert [quota.remaining for quota in desk.quotas(tier, 0)] == [595, 400]
    desk.settle(placed, 30, 0, cached_tokens=4)
    assert [(quota.what, quota.remaining) for quota in desk.quotas(tier, 0)] == [
        ("input", 599),
        ("output", 570),
    ]


def test_cached_input_is_given_back_unless_it_counts() -> None:
    tier = with_limits(STANDARD, input_tokens_per_min=600, cached_input_counts=True)
    desk = Desk(server(tier))
    desk.settle(desk.place(ask(), 0), 10, 0, cached_tokens=3)
    assert desk.quotas(tier, 0)[0].remaining == 597


def test_beyond_a_limit_is_429_until_what_it_says_has_passed() -> None:
    desk = Desk(server(STANDARD, with_limits(FAST, output_tokens_per_min=600, burst_s=10.0)))
    assert choose(desk, output_tokens=100, speed="fast").tier.name == "fast"
    refusal = refused(desk, S, output_tokens=50, speed="fast")
    assert (refusal.status, refusal.kind, refusal.retry_after_s) == (429, "rate_limited", 4.0)
    assert "600 output tokens per minute" in refusal.message
    refused(desk, 5 * S - 1, output_tokens=50, speed="fast")
    assert choose(desk, 5 * S, output_tokens=50, speed="fast").tier.name == "fast"
    assert choose(desk, output_tokens=600).tier.name == "standard"  # limits are the tier's own


def test_what_can_never_be_admitted_is_429_without_a_time() -> None:
    refusal = refused(Desk(server(with_limits(STANDARD, output_tokens_per_min=100))), output_tokens=101)
    assert (refusal.status, refusal.retry_after_s) == (429, None)


def test_an_overloaded_tier_answers_529() -> None:
    desk = Desk(server(with_limits(STANDARD, requests_per_min=1, over="overload")))
    choose(desk)
    assert (refused(desk).status, refused(desk).kind) == (529, "overloaded")


def test_a_queue_holds_requests_in_order() -> None:
    desk = Desk(server(with_limits(STANDARD, requests_per_min=60, burst_s=1.0, over="queue")))
    assert [choose(desk, now_ns=k * S // 4).wait_ns for k in range(4)] == [
        0,
        3 * S // 4,
        6 * S // 4,
        9 * S // 4,
    ]


@pytest.mark.parametrize(
    ("echo", "tier", "speed"),
    [("served", "default", "standard"), ("requested", "fast", "fast"), ("absent", None, None)],
)
def test_a_downgrade_tells_of_itself_only_where_the_echo_is_honest(
    echo: str, tier: str | None, speed: str | None
) -> None:
    fast = with_limits(FAST, requests_per_min=1, over="downgrade", downgrade_to="standard", echo=echo)
    desk = Desk(server(STANDARD, fast))
    choose(desk, service_tier="fast")
    choice = choose(desk, service_tier="fast")
    assert (choice.tier.name, choice.requested.name) == ("standard", "fast")
    assert (choice.echoed_service_tier, choice.echoed_speed) == (tier, speed)


def test_downgrades_lead_on_and_the_one_that_serves_is_charged() -> None:
    low = with_limits(TierConfig(name="low"), requests_per_min=1)
    middle = with_limits(STANDARD, requests_per_min=1, over="downgrade", downgrade_to="low")
    fast = with_limits(FAST, requests_per_min=1, over="downgrade", downgrade_to="standard")
    desk = Desk(server(middle, fast, low))
    assert [choose(desk, speed="fast").tier.name for _ in range(3)] == ["fast", "standard", "low"]
    assert refused(desk, speed="fast").status == 429
    assert [desk.quotas(tier, 0)[0].remaining for tier in (middle, fast, low)] == [0, 0, 0]


def test_a_share_of_requests_is_downgraded_and_follows_from_the_seed() -> None:
    fast = msgspec.structs.replace(FAST, downgrade_to="standard", downgrade_ratio=0.3)

    def served(seed: int) -> list[bool]:
        desk = Desk(server(STANDARD, fast), seed=seed)
        return [choose(desk, speed="fast").tier.name == "standard" for _ in range(2000)]

    assert served(1) == served(1) != served(2)
    assert np.mean(served(1)) == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / 2000) ** 0.5)


def test_a_refused_request_changes_nothing_for_those_after_it() -> None:
    fast = with_limits(
        FAST, output_tokens_per_min=500, burst_s=60.0, downgrade_to="standard", downgrade_ratio=0.5
    )
    desk, spared = Desk(server(STANDARD, fast)), Desk(server(STANDARD, fast))
    for _ in range(30):
        refused(desk, speed="warp")
        refused(desk, model="gpt")
        refused(desk, output_tokens=1000)
        with pytest.raises(RefusedError):
            desk.place(ask(max_tokens=999), 0)
        assert choose(desk, speed="fast").tier.name == choose(spared, speed="fast").tier.name


def test_place_and_choose_agree() -> None:
    fast = with_limits(
        FAST, output_tokens_per_min=100, over="downgrade", downgrade_to="standard", downgrade_ratio=0.2
    )
    one, other = Desk(server(STANDARD, fast)), Desk(server(STANDARD, fast))
    for k in range(50):
        placed = one.place(ask(speed="fast"), k * S)
        choice = other.choose(model="mock", speed="fast", input_tokens=3, output_tokens=10, now_ns=k * S)
        assert isinstance(placed, Placed)
        for field in ("tier", "requested", "wait_ns", "echoed_service_tier", "echoed_speed"):
            assert getattr(placed, field) == getattr(choice, field)
        one.settle(placed, k % 10, k * S)
        other.settle(choice, k % 10, k * S)
    assert one.quotas(fast, 50 * S) == other.quotas(fast, 50 * S)


@pytest.mark.parametrize(("prompts", "choices", "tokens"), [(1, 1024, 1024), (16, 64, 1024), (2048, 1, 512)])
def test_one_request_has_so_much_output_and_no_more_however_it_is_split(
    prompts: int, choices: int, tokens: int
) -> None:
    wide = msgspec.structs.replace(server(with_limits(STANDARD, requests_per_min=2)), max_context_tokens=4096)
    desk = Desk(wide)
    most: dict[str, Any] = {"prompts": ("one",) * prompts, "choices": choices}
    assert (
        sum(answer.output_tokens for answer in desk.place(ask(**most, max_tokens=tokens), 0).answers) == 2**20
    )
    with pytest.raises(
        RefusedError, match="expected at most 1048576 tokens of output in one request"
    ) as more:
        desk.place(ask(**most, max_tokens=tokens + 1), 0)
    assert (more.value.status, more.value.param) == (400, "n")
    (quota,) = desk.quotas(wide.tiers[0], 0)
    assert quota.remaining == 1
    longest = msgspec.structs.replace(wide, max_context_tokens=2**21, default_output_tokens=2**20 + 1)
    assert len(Desk(longest).place(ask(max_tokens=None), 0).answers) == 1
    with pytest.raises(RefusedError, match="2 answers of 1048577 tokens"):
        Desk(longest).place(ask(max_tokens=None, choices=2), 0)


def test_a_prompt_beyond_the_context_is_refused_before_it_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(server(STANDARD))
    assert desk.place(ask(prompts=("a " * 990,)), 0).answers[0].prompt_tokens == 990
    monkeypatch.setattr(text, "count_tokens", lambda said: pytest.fail(f"counted {len(said)} characters"))
    with pytest.raises(RefusedError) as long:
        desk.place(ask(prompts=("a", "a " * 1001)), 0)
    assert (long.value.status, long.value.code) == (400, "context_length_exceeded")
