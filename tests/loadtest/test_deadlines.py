"""Which bound of a call strikes first, and what it says."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.deadlines import Deadlines
from loadtest.plan import Timeouts

SECOND = 1_000_000_000
BOUNDS = Timeouts(connect_s=2.0, first_byte_s=5.0, idle_s=3.0, total_s=10.0)


def test_each_bound_counts_from_its_own_instant_and_has_its_own_words() -> None:
    deadlines = Deadlines(BOUNDS, 100 * SECOND)
    assert deadlines.first_byte(101 * SECOND) == (
        106 * SECOND,
        "first byte: nothing came within 5 s of sending",
    )
    assert deadlines.next_read(102 * SECOND) == (105 * SECOND, "idle: nothing came for 3 s")
    assert deadlines.total == (110 * SECOND, "total: not done within 10 s")


def test_connecting_takes_no_longer_than_everything() -> None:
    assert Deadlines(BOUNDS, 0).connect_s == 2.0
    assert Deadlines(Timeouts(connect_s=20.0, total_s=10.0), 0).connect_s == 10.0


@given(st.integers(0, 20 * SECOND))
def test_whichever_comes_first_is_said(at_ns: int) -> None:
    deadlines = Deadlines(BOUNDS, 0)
    for found, own_ns in (
        (deadlines.first_byte(at_ns), at_ns + 5 * SECOND),
        (deadlines.next_read(at_ns), at_ns + 3 * SECOND),
    ):
        assert found[0] == min(own_ns, 10 * SECOND)
        assert found[1].startswith("total") == (own_ns >= 10 * SECOND)
