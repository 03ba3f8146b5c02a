"""Token buckets refill exactly: against the closed form in fractions, however often somebody looks."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver.token_bucket import TokenBucket

S = 10**9
rates = st.one_of(st.integers(1, 10**9), st.floats(1e-3, 1e9).map(lambda rate: float(f"{rate:.4g}")))
bursts = st.sampled_from([0.001, 0.1, 1.0, 7.3, 60.0, 3600.0])


def per_ns(rate: float) -> Fraction:
    return Fraction(repr(rate)) / 60 / S


@given(rates, bursts, st.lists(st.tuples(st.integers(0, 10**11), st.integers(0, 10**6)), max_size=30))
def test_a_bucket_holds_what_the_closed_form_says(
    rate: float, burst_s: float, calls: list[tuple[int, int]]
) -> None:
    bucket = TokenBucket(rate, burst_s, 0)
    capacity = per_ns(rate) * round(burst_s * S)
    level, now_ns = capacity, 0
    assert bucket.capacity == capacity
    for pause_ns, tokens in calls:
        now_ns += pause_ns
        level = min(capacity, level + per_ns(rate) * pause_ns)
        assert bucket.remaining(now_ns) == int(level)
        assert bucket.take(tokens, now_ns) == (tokens <= level)
        level -= tokens if tokens <= level else 0


@given(rates, bursts, st.integers(1, 10**12), st.lists(st.integers(1, 10**12), max_size=50))
def test_looking_changes_nothing(rate: float, burst_s: float, at_ns: int, looks: list[int]) -> None:
    watched, unwatched = TokenBucket(rate, burst_s, 0), TokenBucket(rate, burst_s, 0)
    for bucket in (watched, unwatched):
        bucket.take(bucket.remaining(0), 0)
    for look_ns in sorted(look for look in looks if look < at_ns):
        watched.remaining(look_ns)
        watched.reset_s(look_ns)
        watched.wait_ns(1, look_ns)
    assert watched.remaining(at_ns) == unwatched.remaining(at_ns)
    assert watched.wait_ns(10, at_ns) == unwatched.wait_ns(10, at_ns)
    assert watched.reset_s(at_ns) == unwatched.reset_s(at_ns)


@given(rates, bursts, st.integers(0, 10**7), st.integers(1, 10**7), st.integers(0, 10**11))
def test_a_wait_ends_at_the_first_nanosecond_at_which_the_tokens_are_there(
    rate: float, burst_s: float, taken: int, wanted: int, now_ns: int
) -> None:
    def fresh() -> TokenBucket:
        bucket = TokenBucket(rate, burst_s, 0)
        bucket.take(min(taken, int(bucket.capacity)), 0)
        return bucket

    wait_ns = fresh().wait_ns(wanted, now_ns)
    if wait_ns is None:
        assert wanted > fresh().capacity
        return
    assert fresh().take(wanted, now_ns + wait_ns)
    if wait_ns > 0:
        assert not fresh().take(wanted, now_ns + wait_ns - 1)


def test_a_fifth_of_a_token_a_minute_is_one_after_exactly_five_minutes() -> None:
    bucket = TokenBucket(0.2, 600.0, 0)
    assert bucket.take(2, 0)
    for look_ns in range(0, 300 * S, 7 * S):
        assert not bucket.take(1, look_ns)
    assert bucket.wait_ns(1, 299 * S) == S
    assert bucket.take(1, 300 * S)
    assert bucket.reset_s(300 * S) == pytest.approx(600.0)


def test_what_is_given_back_beyond_full_is_lost() -> None:
    bucket = TokenBucket(60, 10.0, 0)
    assert bucket.take(4, 0)
    bucket.give_back(3, 0)
    assert bucket.remaining(0) == 9
    bucket.give_back(100, 0)
    assert bucket.remaining(0) == 10


def test_time_does_not_run_backwards_in_it() -> None:
    bucket = TokenBucket(60, 10.0, 0)
    assert bucket.take(10, 5 * S)
    assert bucket.wait_ns(1, 4 * S) == 2 * S  # it stands at 5 s: a token is there at 6 s
    assert not bucket.take(1, 4 * S)
    assert bucket.take(1, 6 * S)
