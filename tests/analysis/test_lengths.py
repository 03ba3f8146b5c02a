"""Lengths evened out: classes by their means, all others by a line, and never the difference of tiers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import lengths, table
from analysis.lengths import evened, groups, with_classes
from analysis.table import Requests
from loadtest.plan import Plan, Target
from loadtest.plan_workload import Sessions
from loadtest.records import RunInfo

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Server

NONE = np.array([np.nan])


def info_of(plan: Plan) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id="one",
        tierscope_version="0",
        target=Target(url="http://127.0.0.1:1", model="m"),
        plan=plan,
        started_unix_s=0.0,
    )


@given(
    slope=st.floats(-1e-3, 1e-3),
    difference=st.floats(-2, 2),
    aimed=st.lists(st.integers(1, 50_000), min_size=4, max_size=40, unique=True),
    cut=st.integers(1, 3),
)
def test_a_line_is_taken_away_and_the_difference_of_tiers_stays(
    slope: float, difference: float, aimed: list[int], cut: int
) -> None:
    """However unequal the prompts of the two tiers are."""
    tokens = [np.array(sorted(aimed)[:-cut], dtype=float), np.array(sorted(aimed)[-cut:], dtype=float)]
    values = [slope * tokens[0], slope * tokens[1] + difference]
    found = evened(values, [np.full(one.size, np.nan) for one in tokens], tokens)
    assert found[0] == pytest.approx(np.full(tokens[0].size, found[0][0]), abs=1e-6)
    assert found[1] - found[0][0] == pytest.approx(np.full(cut, difference), abs=1e-6)


def test_in_a_class_the_mean_over_both_tiers_is_taken_away() -> None:
    kinds = [np.array([128.0, 8192.0]), np.array([128.0, 8192.0])]
    found = evened([np.array([1.0, 5.0]), np.array([3.0, 9.0])], kinds, kinds)
    assert [one.tolist() for one in found] == [[-1.0, -2.0], [1.0, 2.0]]


def test_nothing_to_even_out_is_no_error() -> None:
    empty = np.empty(0)
    assert [one.size for one in evened([empty, empty], [empty, empty], [empty, empty])] == [0, 0]
    (alone,) = evened([np.array([2.0])], [NONE], [np.array([100.0])])
    assert alone.tolist() == [2.0]
    (uncounted,) = evened([np.array([2.0])], [NONE], [NONE])
    assert uncounted.tolist() == [2.0]


@pytest.fixture
def requests(draw: "type[Draw]", server: "type[Server]") -> Callable[..., Requests]:
    def make(lengths: tuple[int, ...]) -> Requests:
        drawn = draw({"standard": server()}, per_tier=len(lengths), lengths=lengths, output_tokens=3)
        return table.from_records(drawn.records())

    return make


def test_lengths_of_a_plans_classes_are_classes_and_others_are_none(
    requests: Callable[..., Requests], plan_for: Callable[..., Plan]
) -> None:
    plan = plan_for(["standard"])
    found = with_classes(requests((128, 2048, 8192, 16384, 777)), [info_of(plan)])
    known = np.sort(found.column(lengths.COLUMN))
    assert known[:4].tolist() == [128, 2048, 8192, 16384]
    assert np.isnan(known[4])
    talks = msgspec.structs.replace(
        plan, workload=msgspec.structs.replace(plan.workload, sessions=Sessions(turns=2, turn_tokens=64))
    )
    grown = with_classes(requests((128, 2048)), [info_of(talks)])
    assert np.isnan(grown.column(lengths.COLUMN)).all()


@pytest.mark.parametrize("count", [1, 2, 7, 8, 300])
def test_lengths_without_classes_are_grouped_by_rising_length_into_eight_at_most(
    count: int, requests: Callable[..., Requests]
) -> None:
    found = with_classes(requests(tuple(range(100, 100 + count))), [])
    tokens = found.column("prompt_class_tokens")
    group = groups(found, tokens)
    order = np.argsort(tokens)
    assert (np.diff(group[order]) >= 0).all()
    assert group.max() + 1 == min(count, lengths.BINS)
    if count == 300:
        assert np.ptp(np.bincount(group)) <= 2
