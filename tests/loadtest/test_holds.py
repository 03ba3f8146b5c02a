"""What servers ask tiers to wait, and that nobody else's words are taken for it."""

import pytest

from loadtest.holds import Holds

SECOND = 1_000_000_000


def test_a_tier_waits_as_long_as_its_server_asks_and_the_other_does_not() -> None:
    holds = Holds(honoured=True)
    holds.told("fast", 429, 1.5, 2 * SECOND)
    assert holds.until_ns("fast") == 3_500_000_000
    assert holds.until_ns("standard") == 0


def test_a_shorter_wait_told_later_ends_no_longer_one() -> None:
    holds = Holds(honoured=True)
    holds.told("fast", 529, 10.0, 0)
    holds.told("fast", 503, 1.0, SECOND)
    assert holds.until_ns("fast") == 10 * SECOND


@pytest.mark.parametrize(("status", "wait_s"), [(429, None), (200, 3.0), (301, 3.0), (None, 3.0)])
def test_other_answers_hold_nothing(status: int | None, wait_s: float | None) -> None:
    holds = Holds(honoured=True)
    holds.told("fast", status, wait_s, SECOND)
    assert holds.until_ns("fast") == 0


def test_who_does_not_honour_a_wait_does_not_wait() -> None:
    holds = Holds(honoured=False)
    holds.told("fast", 429, 3.0, SECOND)
    assert holds.until_ns("fast") == 0
