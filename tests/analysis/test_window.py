"""In-flight counts against Little's law and brute force; drifts that are there and drifts that are not."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import table, window
from analysis.latency import with_latencies
from analysis.lengths import with_classes
from analysis.table import Requests

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Server


@given(st.lists(st.tuples(st.floats(0, 50), st.floats(0, 20)), max_size=30))
def test_mean_in_flight_obeys_littles_law(spans: list[tuple[float, float]]) -> None:
    """Over a window that holds all of it, L·T is the sum of all times in flight."""
    begin = np.array([start for start, _ in spans])
    end = begin + np.array([length for _, length in spans])
    edges = np.linspace(0.0, 80.0, 9)
    found = window.mean_in_flight(begin, end, edges)
    assert float(found @ np.diff(edges)) == pytest.approx(float((end - begin).sum()), abs=1e-6)
    assert (found >= -1e-9).all()


def test_mean_in_flight_of_each_bin_is_what_counting_gives() -> None:
    rng = np.random.default_rng(1)
    begin = rng.uniform(0, 90, 40)
    end = begin + rng.uniform(0, 10, 40)
    edges = np.arange(0.0, 101.0, 10.0)
    instants = np.arange(0.0, 100.0, 0.001) + 0.0005
    counted = (
        ((begin[:, None] <= instants) & (instants < end[:, None])).sum(axis=0).reshape(10, -1).mean(axis=1)
    )
    np.testing.assert_allclose(window.mean_in_flight(begin, end, edges), counted, atol=0.01)


def drawn(draw: "type[Draw]", server: "type[Server]", slower: float, seed: int) -> Requests:
    """Requests of one tier whose TTFT grows by ``slower`` from the start to the end."""
    found = with_classes(
        with_latencies(table.from_records(draw({"standard": server()}, seed=seed).records())), []
    )
    trend = np.linspace(1.0, 1.0 + slower, len(found))
    frame = found.frame.assign(ttft_s=found.frame["ttft_s"] * trend, step_s=0.02)
    return Requests(frame, found.event_ns, found.event_tokens, found.offsets)


def test_a_server_that_stands_still_is_said_to_drift_in_less_than_five_of_a_hundred_runs(
    draw: "type[Draw]", server: "type[Server]"
) -> None:
    alarms = [
        any(drift.matters for drift in window.drifts(drawn(draw, server, 0.0, seed))) for seed in range(40)
    ]
    assert sum(alarms) <= 2


def test_a_ttft_that_doubles_over_the_run_is_said_to_drift(
    draw: "type[Draw]", server: "type[Server]"
) -> None:
    found = {drift.what: drift for drift in window.drifts(drawn(draw, server, 1.0, 1))}
    assert found["TTFT"].matters
    assert found["TTFT"].ratio == pytest.approx(1.6, rel=0.2)
    assert not found["step time"].matters


def test_a_few_requests_show_no_drift(draw: "type[Draw]", server: "type[Server]") -> None:
    few = with_classes(
        with_latencies(table.from_records(draw({"standard": server()}, per_tier=8).records())), []
    )
    frame = few.frame.assign(step_s=0.02)
    assert window.drifts(Requests(frame, few.event_ns, few.event_tokens, few.offsets)) == []
