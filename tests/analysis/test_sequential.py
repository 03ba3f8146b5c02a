"""The rule that stops a run at its verdict: published bounds, closed forms, and simulated error."""

import math

import msgspec
import numpy as np
import pytest
from scipy import special

from analysis import sequential
from analysis.sequential import bounds, planned_looks, spent
from loadtest import plan as plans
from loadtest.plan import Plan, Target
from loadtest.records import RunInfo

WALKS = 200_000


def info_of(plan: Plan) -> RunInfo:
    return RunInfo(
        schema_version=1,
        run_id="one",
        tierscope_version="0",
        target=Target(url="http://127.0.0.1:1", model="demo"),
        plan=plan,
        started_unix_s=0.0,
    )


def until_verdict(requests: int | None = 400) -> Plan:
    plan = plans.load("ab")
    stages = tuple(
        stage if stage.warmup else msgspec.structs.replace(stage, requests=requests, duration_s=60.0)
        for stage in plan.stages
    )
    control = msgspec.structs.replace(plan.control, until="verdict")
    return msgspec.structs.replace(plan, stages=stages, control=control)


@pytest.mark.parametrize(
    ("sides", "error", "published"),
    [
        # Five equal looks, as in Reboussin, DeMets, Kim and Lan, Controlled Clinical Trials 21, 2000.
        (2, 0.05, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        (1, 0.025, [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
    ],
)
def test_five_equal_looks_have_the_published_bounds(sides: int, error: float, published: list[float]) -> None:
    assert sides in (1, 2)
    found = bounds([0.2, 0.4, 0.6, 0.8, 1.0], error=error, sides=2 if sides == 2 else 1)
    assert found == pytest.approx(published, abs=2e-4)


@pytest.mark.parametrize(("sides", "error"), [(1, 0.05), (2, 0.05), (2, 0.01)])
def test_a_single_look_is_the_ordinary_test(sides: int, error: float) -> None:
    assert sides in (1, 2)
    found = bounds([1.0], error=error, sides=2 if sides == 2 else 1)
    assert found[0] == pytest.approx(-special.ndtri(error / sides), abs=1e-8)


@pytest.mark.parametrize("sides", [1, 2])
def test_all_of_the_error_is_spent_at_the_end_and_hardly_any_at_the_start(sides: int) -> None:
    assert sides in (1, 2)
    at = [spent(share, error=0.05, sides=2 if sides == 2 else 1) for share in (0.1, 0.25, 0.5, 0.75, 1.0)]
    assert at[-1] == pytest.approx(0.05, abs=1e-12)
    assert at == sorted(at)
    assert at[1] < 0.0005


@pytest.fixture(scope="module")
def scores() -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Standard scores of walks without drift at the planned looks, one a row."""
    shares = np.array(planned_looks().shares)
    steps = np.random.default_rng(7).standard_normal((WALKS, shares.size))
    return np.asarray(np.cumsum(steps * np.sqrt(np.diff(shares, prepend=0.0)), axis=1) / np.sqrt(shares))


@pytest.mark.parametrize("sides", [1, 2])
def test_the_chance_to_stop_at_any_look_without_an_effect_is_the_stated_error(
    sides: int, scores: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> None:
    looks = planned_looks()
    distance = scores if sides == 1 else np.abs(scores)
    exact = bounds(looks.shares, error=0.05, sides=2 if sides == 2 else 1)
    three_errors = 3 * math.sqrt(0.05 * 0.95 / WALKS)
    assert np.mean((distance >= exact).any(axis=1)) == pytest.approx(0.05, abs=three_errors)
    # What is used is one significance for both kinds of test, and spends no more than that.
    used = -special.ndtri(np.array(looks.significances) / sides)
    assert 0.04 < np.mean((distance >= used).any(axis=1)) < 0.05 + three_errors


def test_looking_without_the_rule_would_be_wrong_far_more_often(
    scores: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    assert np.mean((np.abs(scores) >= 1.96).any(axis=1)) > 0.12


def test_looks_grow_laxer_and_the_last_is_nearly_the_ordinary_test() -> None:
    looks = planned_looks()
    assert len(looks.shares) == 8
    assert looks.shares[0] == 0.25
    assert looks.shares[-1] == 1.0
    assert list(looks.significances) == sorted(looks.significances)
    assert looks.significances[0] < 1e-4
    assert 0.03 < looks.significances[-1] < 0.05


def test_a_run_is_judged_at_the_level_of_its_latest_look() -> None:
    looks, info = planned_looks(), info_of(until_verdict(400))
    for measured, look in ((0, 0), (99, 0), (100, 0), (142, 0), (143, 1), (399, 6), (400, 7), (420, 7)):
        assert sequential.significance([info], [measured]) == looks.significances[look]


def test_runs_that_nobody_looked_at_are_judged_as_ever() -> None:
    ordinary = info_of(plans.load("ab"))
    assert sequential.significance([ordinary], [10]) == 0.05
    # Pooled with one that was looked at, the stricter level holds.
    looked = info_of(until_verdict(400))
    assert sequential.significance([ordinary, looked], [320, 100]) == planned_looks().significances[0]


def test_a_plan_that_ends_by_time_has_no_looks() -> None:
    plan = until_verdict(None)
    assert sequential.planned_requests(plan) is None
    assert sequential.looks_of(info_of(plan)) is None
    assert sequential.planned_requests(until_verdict(400)) == 400  # without warm-up
