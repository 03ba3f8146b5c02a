"""The ceiling of cost: kept whatever the answers are, by prices that anybody can multiply."""

import re
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.plan import Closed, Control, Plan, Stage, Target, Tier, Workload
from loadtest.records import Outcome, RequestRecord
from loadtest.spending import Spending
from loadtest.workload import Request
from tierscope.errors import BadInputError
from tierscope.prices import Book, Price

TIERS = (Tier(name="standard"), Tier(name="fast", body={"service_tier": "priority"}))
TARGET = Target(url="http://h", model="m")


def price(input_usd: float, output_usd: float) -> Price:
    return Price(
        models=("m",), tiers=("x",), input_usd_per_mtok=input_usd, output_usd_per_mtok=output_usd,
        cache_write_usd_per_mtok=1.25 * input_usd, cache_read_usd_per_mtok=0.1 * input_usd,
        as_of=date(2026, 11, 1), source="test",
    )  # fmt: skip


BOOK = Book({("m", "standard"): price(4, 20), ("m", "priority"): price(8, 40)})


def plan(ceiling_usd: float | None) -> Plan:
    return Plan(
        name="p",
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=9),),
        workload=Workload(prompt_tokens=(1000,), output_tokens=100),
        tiers=TIERS,
        control=Control(cost_ceiling_usd=ceiling_usd),
    )


def request(index: int, tier: int = 0) -> Request:
    return Request(index=index, stage="s", warmup=False, tier=TIERS[tier], prompt_tokens=1000, max_tokens=100)


def record(index: int, outcome: Outcome = "ok", **more: Any) -> RequestRecord:
    known: dict[str, Any] = {
        "requested_tier": "standard",
        "prompt_tokens": 1000,
        "output_tokens": 100,
        "sent_ns": 1,
    }
    known |= more
    return RequestRecord(
        index=index, stage="s", model="m", prompt_class_tokens=1000, max_tokens=100, scheduled_ns=0,
        outcome=outcome, stamp_source="kernel", ended_ns=9, **known,
    )  # fmt: skip


def test_what_is_set_aside_is_the_most_a_request_can_cost() -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    assert spending.admits(request(0), 10_000)
    # 1.5 · 1000 + 64 tokens written to the cache at 5 $, 100 tokens out at 20 $, per million
    assert spending.reserved_usd == pytest.approx((1564 * 5 + 100 * 20) / 1e6)


def test_a_prompt_costs_at_most_a_token_a_byte() -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    assert spending.admits(request(0), 300)
    assert spending.reserved_usd == pytest.approx((300 * 5 + 100 * 20) / 1e6)


def test_an_answer_replaces_what_was_set_aside_by_what_it_cost() -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    spending.admits(request(0), 10_000)
    spending.settle(record(0, cached_tokens=600, cache_write_tokens=300))
    assert spending.reserved_usd == 0
    assert spending.spent_usd == pytest.approx((100 * 4 + 600 * 0.4 + 300 * 5 + 100 * 20) / 1e6)


def test_the_tier_that_served_is_the_one_that_is_paid() -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    spending.admits(request(0, tier=1), 10_000)
    spending.settle(record(0, requested_tier="fast", echoed_tier="standard"))
    assert spending.spent_usd == pytest.approx((1000 * 4 + 100 * 20) / 1e6)


@pytest.mark.parametrize("outcome", ["connect_error", "http_error", "rate_limited", "overloaded"])
def test_a_refusal_costs_nothing(outcome: Outcome) -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    spending.admits(request(0), 10_000)
    spending.settle(record(0, outcome, prompt_tokens=None, output_tokens=None))
    assert (spending.spent_usd, spending.reserved_usd) == (0, 0)


@pytest.mark.parametrize("outcome", ["cancelled", "timeout", "truncated", "stream_error"])
def test_what_broke_off_may_have_cost_all_that_was_set_aside(outcome: Outcome) -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    spending.admits(request(0), 10_000)
    aside = spending.reserved_usd
    spending.settle(record(0, outcome, output_tokens=7, tokens_source="events"))
    assert (spending.spent_usd, spending.reserved_usd) == (aside, 0)


@given(
    st.floats(0.005, 0.2),
    st.lists(st.tuples(st.booleans(), st.integers(1, 1000), st.integers(1, 100)), max_size=80),
)
def test_the_ceiling_is_never_passed(ceiling: float, events: list[tuple[bool, int, int]]) -> None:
    """Requests leave and end in any order, and cost anything up to what was aimed at."""
    spending, open_indexes = Spending(plan(ceiling), TARGET, BOOK), list[int]()
    for index, (leaves, tokens_in, tokens_out) in enumerate(events):
        if leaves and spending.admits(request(index), 10_000):
            open_indexes.append(index)
        elif open_indexes:
            ended = record(open_indexes.pop(0), prompt_tokens=tokens_in, output_tokens=tokens_out)
            spending.settle(ended)
        assert spending.spent_usd + spending.reserved_usd <= ceiling * (1 + 1e-9)


def test_a_server_that_counts_more_than_expected_makes_us_careful() -> None:
    spending = Spending(plan(1.0), TARGET, BOOK)
    spending.admits(request(0), 10_000)
    spending.settle(record(0, prompt_tokens=3000))
    spending.admits(request(1), 10_000)
    assert spending.reserved_usd == pytest.approx(((1.25 * 3 * 1000 + 64) * 5 + 100 * 20) / 1e6)


def test_several_processes_share_the_ceiling() -> None:
    alone, shared = Spending(plan(0.03), TARGET, BOOK), Spending(plan(0.03), TARGET, BOOK, processes=3)
    assert sum(alone.admits(request(index), 10_000) for index in range(9)) == 3
    assert sum(shared.admits(request(index), 10_000) for index in range(9)) == 1


def test_without_a_ceiling_no_price_is_asked_for() -> None:
    spending = Spending(plan(None), TARGET, Book({}))
    assert all(spending.admits(request(index), 10_000) for index in range(1000))


def test_a_ceiling_without_a_price_is_refused_in_one_line() -> None:
    with pytest.raises(BadInputError, match=r"no price is known for m on tier priority; name a price file"):
        Spending(plan(1.0), TARGET, Book({("m", "standard"): price(4, 20)}))


@pytest.mark.parametrize("ceiling_usd", [0.005, 1e-6, 0.03, 1234.5])
def test_the_sums_that_are_told_are_the_sums_that_there_are(ceiling_usd: float) -> None:
    spending = Spending(plan(ceiling_usd), TARGET, BOOK)
    spending.spent_usd = ceiling_usd * 0.75
    told = [float(word) for word in re.findall(r"\S+(?= \$)", spending.refusal())]
    assert told[:2] == pytest.approx([ceiling_usd, ceiling_usd * 0.75], rel=1e-5)
