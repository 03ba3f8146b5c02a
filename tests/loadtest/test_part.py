"""Parts of a stage: together they are the whole, whatever the weights."""

from itertools import count, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.part import Part, split


def positions(part: Part, below: int) -> list[int]:
    return list(takewhile(lambda position: position < below, (part.position(turn) for turn in count())))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any), st.integers(0, 500))
def test_parts_are_a_partition_of_the_stage_each_in_order(weights: list[int], below: int) -> None:
    made = [positions(part, below) for part in split(weights) if part is not None]
    assert sorted(position for part in made for position in part) == list(range(below))
    assert all(part == sorted(part) for part in made)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any))
def test_after_each_round_every_part_has_had_its_weight(weights: list[int]) -> None:
    total = sum(weights)
    sizes = [0 if part is None else len(positions(part, 3 * total)) for part in split(weights)]
    assert sizes == [3 * weight for weight in weights]


def test_equal_weights_take_turns() -> None:
    assert split([4, 4]) == [Part(0, 2), Part(1, 2)]
    assert split([3, 0, 2]) == [Part(0, 5, 3), None, Part(3, 5, 2)]
    assert split([1]) == [Part()]


@pytest.mark.parametrize("weights", [[0], [0, 0]])
def test_nobody_has_a_part_of_nothing(weights: list[int]) -> None:
    assert split(weights) == [None] * len(weights)
