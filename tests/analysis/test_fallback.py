"""Requests of a fast tier that another one served: drawn with a known truth, and through the engine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import speed_mixture
from analysis.analyze import analyze
from analysis.speed_mixture import Law
from loadtest.records import RequestRecord

Server = Callable[..., Any]


def drawn(draw: Server, server: Server, *, ratio: float, served: Any, seed: int = 1) -> list[RequestRecord]:
    """A run in which the fast requests numbered in ``served`` are as slow as standard's."""
    step = 0.02
    fast = draw(tiers={"standard": server(step_s=step), "fast": server(step_s=step / ratio)}, seed=seed)
    slow = draw(tiers={"standard": server(step_s=step), "fast": server(step_s=step)}, seed=seed)
    number, found = 0, []
    for quick, late in zip(fast.records(), slow.records(), strict=True):
        if quick.requested_tier != "fast":
            found.append(quick)
            continue
        found.append(late if served(number) else quick)
        number += 1
    return found


def test_the_share_is_that_of_the_requests_that_were_slow(
    draw: Server, server: Server, folder: Callable[..., Path]
) -> None:
    made = drawn(draw, server, ratio=1.6, served=lambda number: number % 5 == 0)
    found = analyze([folder(made)]).fallback
    assert found is not None
    assert found.identified
    assert found.share.value == pytest.approx(0.2, abs=0.01)
    assert found.speed_ratio == pytest.approx(1.6, rel=0.02)
    counts = {(one.requested, one.measured): one.count for one in found.served}
    assert counts == {("standard", "standard"): 80, ("fast", "fast"): 64, ("fast", "standard"): 16}


def test_the_stretch_of_slow_requests_is_found_with_its_ends(
    draw: Server, server: Server, folder: Callable[..., Path]
) -> None:
    made = drawn(draw, server, ratio=1.5, served=lambda number: 30 <= number < 50)
    sent = [record.sent_ns or 0 for record in made if record.requested_tier == "fast"]
    found = analyze([folder(made)]).fallback
    assert found is not None
    assert len(found.episodes) == 1
    episode = found.episodes[0]
    assert abs(sum(at < episode.begin_s * 1e9 for at in sent) - 30) <= 1
    assert abs(sum(at <= episode.end_s * 1e9 for at in sent) - 50) <= 1


def test_nothing_is_found_where_every_request_was_fast(
    draw: Server, server: Server, folder: Callable[..., Path]
) -> None:
    for seed in range(3):
        made = drawn(draw, server, ratio=1.5, served=lambda number: False, seed=seed)
        found = analyze([folder(made, name=f"run-{seed}", run_id=f"r{seed}")]).fallback
        assert found is not None
        assert (found.share.value, found.share.high, found.episodes) == (0.0, 0.0, [])


def test_tiers_of_one_speed_are_not_identified(
    draw: Server, server: Server, folder: Callable[..., Path]
) -> None:
    found = analyze([folder(drawn(draw, server, ratio=1.0, served=lambda number: True))]).fallback
    assert found is not None
    assert not found.identified
    assert found.share.value is None


def test_an_echo_that_tells_is_set_beside_what_was_measured(
    draw: Server, server: Server, folder: Callable[..., Path]
) -> None:
    made = drawn(draw, server, ratio=2.0, served=lambda number: number < 20)
    fast = [record for record in made if record.requested_tier == "fast"]
    honest = {record.index for record in fast[:10]}
    told = [msgspec.structs.replace(r, echoed_tier="default") if r.index in honest else r for r in made]
    found = analyze([folder(told)]).fallback
    assert found is not None
    counts = {(one.echoed, one.measured): one.count for one in found.served if one.requested == "fast"}
    assert counts == {("default", "standard"): 10, ("priority", "standard"): 10, ("priority", "fast"): 60}


def test_one_tier_alone_has_no_fallback(draw: Server, server: Server, folder: Callable[..., Path]) -> None:
    assert analyze([folder(draw(tiers={"standard": server()}).records())]).fallback is None


@given(shift=st.floats(-5, 5), share=st.floats(0.1, 0.9), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_the_unit_of_time_changes_no_share(shift: float, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(0, 0.02, 100) - 0.5 * (rng.random(100) > share)
    here = speed_mixture.fit(x, Law(0.0, 0.02), least_gap=0.1)
    there = speed_mixture.fit(x + shift, Law(shift, 0.02), least_gap=0.1)
    assert here.share == pytest.approx(there.share, abs=1e-6)
    assert here.share == pytest.approx(float(np.mean(x > -0.25)), abs=0.02)


def test_a_law_fitted_to_t_draws_has_their_centre_and_spread() -> None:
    rng = np.random.default_rng(3)
    found = speed_mixture.fit_law(1.5 + 0.1 * rng.standard_t(4, 20_000))
    assert found.centre == pytest.approx(1.5, abs=0.005)
    assert found.spread == pytest.approx(0.1, rel=0.03)
    grid = np.linspace(-40, 40, 400_001)
    assert np.sum(np.exp(found.log_pdf(grid))) * (grid[1] - grid[0]) == pytest.approx(1, abs=1e-3)


def test_moments_are_those_of_the_turn_and_single_outliers_are_none() -> None:
    score = np.full(60, -3.0)
    score[20:35] = 3.0
    assert np.flatnonzero(speed_mixture.moments(score)).tolist() == list(range(20, 35))
    lone = np.full(60, -3.0)
    lone[7] = 100.0
    assert not speed_mixture.moments(lone).any()
