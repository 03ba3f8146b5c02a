"""Balancers: who gets a request, against what each is meant to do and what hashing promises."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver.balancer import AnyOf, ByPrefix, LeastLoaded, RoundRobin, balancer


@settings(max_examples=60)
@given(st.integers(1, 7), st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=400))
def test_least_loaded_never_passes_over_a_replica_with_fewer_requests(
    replicas: int, doings: list[tuple[bool, int]]
) -> None:
    chooser, under_way = LeastLoaded(replicas), list[int]()
    for arrives, which in doings:
        if arrives:
            counts = Counter(under_way)
            chosen = chooser.choose()
            assert counts[chosen] == min(counts[replica] for replica in range(replicas))
            under_way.append(chosen)
        elif under_way:
            chooser.ended(under_way.pop(which % len(under_way)))
    assert chooser.requests == [Counter(under_way)[replica] for replica in range(replicas)]


def test_of_equally_loaded_replicas_the_one_unused_for_longest_is_taken() -> None:
    chooser = LeastLoaded(3)
    order = []
    for _ in range(9):
        order.append(chooser.choose())
        chooser.ended(order[-1])
    assert order == [0, 1, 2] * 3


def test_round_robin_goes_round() -> None:
    chooser = RoundRobin(3)
    assert [chooser.choose() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_random_is_even_and_follows_from_its_seed() -> None:
    first, again, other = (AnyOf(8, seed) for seed in ("a", "a", "b"))
    draws = [first.choose() for _ in range(4000)]
    assert draws == [again.choose() for _ in range(4000)]
    assert draws != [other.choose() for _ in range(4000)]
    chi_square = sum((count - 500) ** 2 / 500 for count in Counter(draws).values())
    assert chi_square < 24.3  # 99.9 % of seven degrees of freedom


def test_what_begins_alike_meets_on_one_replica_and_the_rest_is_spread_evenly() -> None:
    chooser = ByPrefix(8, "s")
    places = {block: chooser.choose((block, 1, 2)) for block in range(4000)}
    assert all(chooser.choose((block, 9)) == places[block] for block in range(0, 4000, 40))
    counts = Counter(places.values())
    chi_square = sum((counts[replica] - 500) ** 2 / 500 for replica in range(8))
    assert chi_square < 24.3  # also for numbers that are neighbours


@pytest.mark.parametrize("replicas", [2, 5, 16])
def test_one_replica_more_moves_only_what_it_takes_over(replicas: int) -> None:
    before, after = ByPrefix(replicas, "s"), ByPrefix(replicas + 1, "s")
    blocks = np.random.default_rng(3).integers(0, 2**62, 2000).tolist()
    moves = [(before.choose((block,)), after.choose((block,))) for block in blocks]
    moved = [new for old, new in moves if old != new]
    assert set(moved) <= {replicas}
    share, expected = len(moved) / 2000, 1 / (replicas + 1)
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / 2000)


def test_a_prompt_without_a_block_goes_where_least_is_under_way() -> None:
    chooser = ByPrefix(2, "s")
    crowded = chooser.choose((77,))
    assert chooser.choose(()) == 1 - crowded
    chooser.ended(crowded)
    assert chooser.choose(()) == crowded


def test_every_kind_stays_within_its_replicas() -> None:
    for kind in ("least-loaded", "round-robin", "random", "prefix"):
        chooser = balancer(kind, 3, "s")
        assert {chooser.choose((block,)) for block in range(60)} == {0, 1, 2}
