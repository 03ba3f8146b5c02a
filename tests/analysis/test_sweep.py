"""A sweep against an engine whose batch limit is known, and windows against instants set by hand."""

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
import pytest

from analysis import arms, sweep, window
from analysis.analyze import analyze
from analysis.load import load
from analysis.model import Estimate
from analysis.sweep import Level
from loadtest.plan import Closed, Plan, Poisson, Stage, Workload
from mockserver import roofline
from mockserver.config import ServerConfig, TierConfig
from mockserver.hardware import Deployment
from tierscope.simulate import simulate

if TYPE_CHECKING:
    from tests.analysis.conftest import Folder

HARDWARE = Deployment(chip="H100", model="Llama-3.1-8B")


def config(max_batch: int) -> ServerConfig:
    return ServerConfig(
        name="alone",
        deployment=HARDWARE,
        max_context_tokens=65536,
        tiers=(TierConfig(name="only", service_tiers=("default",), max_batch=max_batch, noise_ratio=0.003),),
    )


def plan(levels: tuple[int, ...]) -> Plan:
    return Plan(
        name="levels",
        stages=tuple(
            Stage(name=f"c{streams}", arrivals=Closed(streams=streams), requests=3 * streams)
            for streams in levels
        ),
        workload=Workload(prompt_tokens=(64,), output_tokens=96),
    )


def swept(folder: "Folder", max_batch: int, levels: tuple[int, ...], seed: int = 1) -> list[Level]:
    asked = msgspec.structs.replace(plan(levels), seed=seed)
    path = folder(simulate(asked, config(max_batch)), plan=asked)
    loaded = load([path])
    (arm,) = arms.split(loaded, window.measured(loaded.requests))
    return sweep.measure(arm.good, arm.step_gaps, asked)


@pytest.mark.parametrize("max_batch", [3, 8, 13])
def test_the_largest_batch_is_found_where_more_was_asked_for(folder: "Folder", max_batch: int) -> None:
    for seed in (1, 2):
        found = swept(folder, max_batch, (1, 2, 4, 8, 16, 24), seed)
        answer = sweep.largest_batch("standard", found, alone=True)
        assert answer is not None
        assert answer.identified
        assert answer.estimate.value == max_batch


def test_a_limit_that_was_not_reached_is_only_a_lower_bound(folder: "Folder") -> None:
    answer = sweep.largest_batch("standard", swept(folder, 64, (1, 2, 4, 8)), alone=True)
    assert answer is not None
    assert not answer.identified
    assert answer.estimate == Estimate(value=None, low=8.0)


def test_step_times_of_clean_windows_are_those_of_the_law(folder: "Folder") -> None:
    law = roofline.law(HARDWARE)
    for level in swept(folder, 64, (1, 4, 16, 32)):
        assert level.active == level.streams
        batch = float(level.active)
        truth = float(roofline.step_s(law, batch, batch * (64 + 48)))
        assert level.step_s.value == pytest.approx(truth, rel=0.02)


def test_streams_of_several_tiers_never_make_a_limit(folder: "Folder") -> None:
    found = swept(folder, 4, (1, 2, 4, 8))
    answer = sweep.largest_batch("standard", found, alone=False)
    assert answer is not None
    assert not answer.identified


def test_an_overlap_shorter_than_a_step_is_no_batch() -> None:
    """One stream ends a microsecond after its successor began: that is one place, not two."""
    first = np.array([0, 99_999_000])
    last = np.array([100_000_000, 200_000_000])
    active, begins, ends = sweep.windows(first, last, shortest_ns=10_000_000)
    assert active == 1
    assert begins.tolist() == [0, 100_000_000]
    assert ends.tolist() == [99_999_000, 200_000_000]


def test_the_windows_are_where_most_streams_decode_together() -> None:
    first = np.array([0, 10, 20, 200])
    last = np.array([100, 110, 120, 300])
    active, begins, ends = sweep.windows(first, last, shortest_ns=5)
    assert (active, begins.tolist(), ends.tolist()) == (3, [20], [100])


def test_no_stream_at_all_has_no_window() -> None:
    none = np.empty(0, dtype=np.int64)
    assert sweep.windows(none, none, shortest_ns=1)[0] == 0


@pytest.mark.parametrize("kind", ["one level", "open loop"])
def test_a_plan_that_is_no_sweep_has_no_levels(kind: Literal["one level", "open loop"]) -> None:
    arrivals = Closed(streams=8) if kind == "one level" else Poisson(rate_per_s=5.0)
    asked = Plan(
        name="p",
        stages=(
            Stage(name="a", arrivals=arrivals, requests=9),
            Stage(name="b", arrivals=arrivals, requests=9),
        ),
        workload=Workload(prompt_tokens=(64,), output_tokens=8),
    )
    assert sweep.levels(asked) == []


def test_gaps_that_change_with_the_level_are_not_taken_for_prefill(folder: "Folder") -> None:
    asked = plan((1, 8, 32))
    report = analyze([folder(simulate(asked, config(64)), plan=asked)])
    assert "prefill load" not in {item.topic for item in report.trust}
    assert [point.active_streams for point in report.figures.sweep] == [1, 8, 32]


def test_a_limit_is_found_where_only_a_few_of_many_had_to_wait(folder: "Folder") -> None:
    """Of 16 streams 12 fit: the median hardly waits, the last ones wait for an end."""
    for seed in (1, 2):
        answer = sweep.largest_batch("standard", swept(folder, 12, (1, 4, 8, 16), seed), alone=True)
        assert answer is not None
        assert answer.identified
        assert answer.estimate.value == 12
