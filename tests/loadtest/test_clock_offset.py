"""Two clocks compared over a channel: the true offset is never further away than the error says."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.clock_offset import Answer, offset

WAY_NS = st.integers(0, 5_000_000_000)


@given(
    st.integers(-(10**18), 10**18),
    st.lists(st.tuples(st.integers(0, 10**18), WAY_NS, WAY_NS), min_size=1, max_size=10),
)
def test_the_true_offset_lies_within_the_error_however_unequal_the_ways_are(
    ahead_ns: int, trips: list[tuple[int, int, int]]
) -> None:
    answers = [
        Answer(at_ns, at_ns + there_ns - ahead_ns, at_ns + there_ns + back_ns)
        for at_ns, there_ns, back_ns in trips
    ]
    found_ns, error_ns = offset(answers)
    assert abs(found_ns - ahead_ns) <= error_ns
    assert error_ns <= (min(there_ns + back_ns for _, there_ns, back_ns in trips) + 1) // 2


def test_one_clock_is_not_ahead_of_itself() -> None:
    assert offset([Answer(100, 103, 110), Answer(200, 201, 204)]) == (1, 2)
