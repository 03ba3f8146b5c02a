"""The limits of a tier: all buckets or none, first come first served, no more than the rate lets through."""

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from mockserver.limits import Shortage, TierLimits
from mockserver.tier_config import RateLimits

S = 10**9
arrivals = st.lists(
    st.tuples(st.integers(0, 3 * S), st.integers(1, 200), st.integers(1, 100)), min_size=1, max_size=40
)


def limits(over: Literal["reject", "queue"] = "reject") -> RateLimits:
    return RateLimits(
        requests_per_min=60, input_tokens_per_min=6000, output_tokens_per_min=3000, burst_s=2.0, over=over
    )  # two requests, 200 input and 100 output tokens at once


def test_a_shortage_of_one_bucket_takes_from_none() -> None:
    tier = TierLimits(limits(), 0)
    short = tier.admit(10, 101, 0)
    assert isinstance(short, Shortage)
    assert (short.what, short.asked, short.limit_per_min, short.wait_ns) == ("output", 101, 3000, None)
    assert [quota.remaining for quota in tier.quotas(0)] == [2, 200, 100]


def test_the_bucket_that_keeps_it_longest_is_named() -> None:
    tier = TierLimits(limits(), 0)
    assert tier.admit(200, 50, 0) == 0
    assert tier.admit(1, 60, 0) == Shortage(
        "output", 3000, 60, 200_000_000
    )  # input: 10 ms; output: 10 of 50/s
    assert tier.admit(100, 60, 0) == Shortage("input", 6000, 100, S)


def test_what_is_given_back_can_be_taken_again() -> None:
    tier = TierLimits(limits(), 0)
    assert tier.admit(200, 100, 0) == 0
    tier.settle(150, 70, 0)
    assert tier.admit(150, 70, 0) == 0
    assert isinstance(tier.admit(1, 1, 0), Shortage)


@given(arrivals)
def test_a_queue_is_first_come_first_served_and_wastes_nothing(asked: list[tuple[int, int, int]]) -> None:
    """Against buckets without a queue: the head takes when every one has enough, and not a ns before."""
    tier, now_ns, starts, submitted = TierLimits(limits("queue"), 0), 0, [], []
    for pause_ns, input_tokens, output_tokens in asked:
        now_ns += pause_ns
        wait_ns = tier.admit(input_tokens, output_tokens, now_ns)
        assert isinstance(wait_ns, int)
        starts.append(now_ns + wait_ns)
        submitted.append(now_ns)
    truth, head_ns = TierLimits(limits("reject"), 0), 0
    for at_ns, start_ns, (_, input_tokens, output_tokens) in zip(submitted, starts, asked, strict=True):
        head_ns = max(head_ns, at_ns)
        if start_ns > head_ns:
            assert isinstance(truth.admit(input_tokens, output_tokens, start_ns - 1), Shortage)
        assert truth.admit(input_tokens, output_tokens, start_ns) == 0
        head_ns = start_ns
    assert starts == sorted(starts)


@given(arrivals)
def test_no_window_lets_more_through_than_a_burst_and_its_refill(asked: list[tuple[int, int, int]]) -> None:
    tier, now_ns, passed = TierLimits(limits(), 0), 0, []
    for pause_ns, input_tokens, output_tokens in asked:
        now_ns += pause_ns
        if tier.admit(input_tokens, output_tokens, now_ns) == 0:
            passed.append((now_ns, input_tokens, output_tokens))
    for first, (from_ns, _, _) in enumerate(passed):
        for last in range(first, len(passed)):
            seconds = (passed[last][0] - from_ns) / S
            window = passed[first : last + 1]
            assert len(window) <= 2 + seconds * 1.0 + 1e-6
            assert sum(each[1] for each in window) <= 200 + seconds * 100 + 1e-6
            assert sum(each[2] for each in window) <= 100 + seconds * 50 + 1e-6


def test_a_request_that_can_never_start_is_not_queued() -> None:
    tier = TierLimits(limits("queue"), 0)
    short = tier.admit(201, 1, 0)
    assert isinstance(short, Shortage)
    assert short.wait_ns is None
    assert tier.admit(200, 1, 0) == 0


def test_nobody_overtakes_who_is_held_back() -> None:
    tier, alone = TierLimits(limits("queue"), 0), TierLimits(limits("queue"), 0)
    for each in (tier, alone):
        assert each.admit(1, 100, 0) == 0
    assert tier.admit(1, 100, 0) == 2 * S
    assert alone.admit(1, 1, S) == 0
    assert tier.admit(1, 1, S) == S + S // 50  # behind the one that starts at 2 s, and a token later
    assert [quota.remaining for quota in tier.quotas(S)] == [0, 0, 0]
    assert tier.quotas(S)[2].reset_s == 1.02 + 2.0  # it is empty when the last one has started


def test_an_instant_before_the_latest_one_neither_holds_a_request_back_nor_empties_a_bucket() -> None:
    """A request may be placed with the instant of its arrival after another one was settled."""
    tier = TierLimits(limits(), 0)
    tier.settle(0, 10, 5 * S)
    assert tier.admit(50, 50, 4 * S) == 0
    assert [quota.remaining for quota in tier.quotas(4 * S)] == [1, 150, 50]
