"""The servers of the benchmark of inference are what they are said to be; its table makes no figure up."""

import numpy as np
import pytest

from bench import inference, servers, trials
from bench.servers import Kind
from bench.trials import Outcome
from mockserver import config as profiles


@pytest.mark.parametrize("kind", servers.KINDS)
def test_a_drawn_pair_differs_by_its_mechanism_and_by_nothing_else(kind: Kind) -> None:
    for number in range(3):
        drawn = servers.pair(f"test/{number}/{kind}", kind)
        profiles.check(drawn.config, where="drawn")
        standard, fast = drawn.config.tiers
        assert (fast.speculation is not None) == (kind == "speculation")
        assert (fast.shares is not None) == (kind == "priority")
        assert set(fast.deployment) <= {"hardware": {"chip", "model"}, "kv": {"kv_bits"}}.get(kind, set())
        if kind == "batch":
            assert fast.target_batch < standard.target_batch
            assert drawn.step_ratio >= servers.LEAST_STEP_RATIO
        elif kind != "priority":
            assert fast.target_batch == standard.target_batch
        if kind in ("speculation", "priority", "none"):
            assert drawn.prefill_ratio == pytest.approx(1.0, abs=0.01)


def test_the_edge_is_a_tenth_of_prefill() -> None:
    for number in range(3):
        drawn = servers.edge(f"test/{number}")
        assert drawn.prefill_ratio == pytest.approx(1.10, abs=1e-6)


def test_the_same_seed_draws_the_same_server_and_another_one_another() -> None:
    assert servers.pair("a", "batch") == servers.pair("a", "batch")
    assert servers.pair("a", "batch") != servers.pair("b", "batch")


def test_a_row_without_a_case_has_no_figure() -> None:
    unseen = Outcome(kind="none", answered="batch")
    lines = inference.table([unseen])[2:]
    told = [line for line in lines if "no case" not in line and "not built" not in line]
    assert len(lines) == len(inference.ROWS)
    assert [line.split(" | ")[0] for line in told] == ["| mechanism"]
    assert told[0].endswith("| NO |")


def test_the_area_under_the_curve_is_that_of_counted_pairs() -> None:
    rng = np.random.default_rng(1)
    above, below = rng.normal(1, 1, 300), rng.normal(0, 1, 400)
    counted = np.mean([x > y for x in above for y in below])
    assert trials.auc(above, below) == pytest.approx(counted)
    assert trials.auc(np.zeros(3), np.zeros(2)) == 0.5
