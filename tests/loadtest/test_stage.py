"""How far a stage has come, by its own rules; parts of a stage against the whole of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.part import split
from loadtest.plan import Closed, Poisson, Stage
from loadtest.stage import StageProgress, users_of

SECOND = 1_000_000_000


def progress(requests: int | None = None, duration_s: float | None = None, turns: int = 1) -> StageProgress:
    stage = Stage(name="s", arrivals=Closed(streams=3), requests=requests, duration_s=duration_s)
    return StageProgress(stage, 0, started_ns=10 * SECOND, first_index=100, turns=turns)


def begin(made: StageProgress, at_ns: int = 11 * SECOND) -> int:
    """Begin a conversation and take its first request."""
    conversation = made.begin(at_ns)
    assert conversation is not None
    made.take(conversation * made.turns)
    return conversation


def end(made: StageProgress) -> None:
    """End the request that was taken, and its conversation."""
    made.end()
    made.finish()


def test_a_stage_is_over_when_its_requests_have_been_sent_and_have_ended() -> None:
    made = progress(requests=2)
    assert [begin(made), begin(made)] == [0, 1]
    assert made.begin(11 * SECOND) is None
    assert not made.is_over(11 * SECOND)
    end(made)
    assert (made.in_flight, made.is_over(11 * SECOND)) == (1, False)
    end(made)
    assert (made.in_flight, made.is_over(11 * SECOND)) == (0, True)


def test_a_stage_is_over_when_its_time_is_up_and_its_requests_have_ended() -> None:
    made = progress(requests=100, duration_s=2.0)
    begin(made)
    assert made.is_due(1, 12 * SECOND - 1)
    assert not made.is_due(1, 12 * SECOND)
    assert not made.is_over(13 * SECOND)
    end(made)
    assert not made.is_over(12 * SECOND - 1)
    assert made.is_over(12 * SECOND)


def test_a_paced_stage_is_not_over_while_its_keeper_may_be_late_with_the_last_request() -> None:
    made = progress(duration_s=2.0)
    made.paced = True
    assert made.is_due(0, 12 * SECOND - 1)  # and he wakes up after the end
    assert not made.is_over(12 * SECOND + 1)
    made.all_begun()
    assert made.is_over(12 * SECOND + 1)


def test_a_paced_stage_waits_for_the_later_turns_of_its_conversations() -> None:
    made = progress(requests=100, turns=3)
    made.paced = True
    begin(made)
    made.all_begun()
    made.end()
    assert not made.is_over(11 * SECOND)
    assert made.is_due(1, 11 * SECOND)
    made.finish()
    assert made.is_over(11 * SECOND)


def test_a_conversation_that_thinks_when_time_is_up_keeps_no_stage_open() -> None:
    made = progress(duration_s=2.0, turns=3)
    begin(made)
    made.end()
    assert not made.is_over(11 * SECOND)
    assert made.is_over(12 * SECOND)


def test_a_stage_that_was_closed_lets_nothing_more_leave() -> None:
    made = progress(requests=100)
    begin(made)
    made.close()
    assert made.begin(11 * SECOND) is None
    assert not made.is_due(1, 11 * SECOND)
    assert not made.is_over(11 * SECOND)
    made.end()
    assert made.is_over(11 * SECOND)


def test_requests_are_counted_turn_by_turn() -> None:
    """Seven requests are two conversations of three turns, and the first turn of a third."""
    made = progress(requests=7, turns=3)
    assert [begin(made) for _ in range(3)] == [0, 1, 2]
    assert made.begin(11 * SECOND) is None
    assert [made.is_due(position, 11 * SECOND) for position in (5, 6, 7)] == [True, True, False]


@pytest.mark.parametrize(("taken", "following"), [(-1, 100), (0, 103), (2, 103), (3, 106)])
def test_the_next_stage_begins_after_the_last_conversation(taken: int, following: int) -> None:
    made = progress(turns=3)
    if taken >= 0:
        made.take(taken)
    assert made.next_index == following


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any),
    st.integers(1, 60),
    st.integers(1, 4),
)
def test_parts_together_are_the_stage_of_one_process(weights: list[int], requests: int, turns: int) -> None:
    def conversations(**more: object) -> list[int]:
        stage = Stage(name="s", arrivals=Closed(streams=3), requests=requests)
        made = StageProgress(stage, 0, started_ns=0, first_index=0, turns=turns, **more)  # type: ignore[arg-type]
        return list(iter(lambda: made.begin(1), None))

    parts = [part for part in split(weights) if part is not None]
    together = [one for part in parts for one in conversations(part=part)]
    assert sorted(together) == conversations()
    for part in parts:
        assert all(part.has(one) for one in conversations(part=part))


def test_a_closed_loop_needs_a_user_a_stream_and_an_open_one_needs_one() -> None:
    assert users_of(progress(requests=1).stage) == 3
    assert users_of(Stage(name="s", arrivals=Poisson(rate_per_s=900.0), requests=1)) == 1
