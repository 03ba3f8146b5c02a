"""What the check of a profile says of a hidden load is what its engine does."""

from statistics import mean

import msgspec
import pytest

from mockserver import config, hidden_load
from mockserver.config import HiddenLoad, ServerConfig, TierConfig
from mockserver.fleet import Fleet
from mockserver.hardware import Deployment
from mockserver.job import Job
from tierscope.errors import BadInputError

S = 10**9
SMALL = HiddenLoad(prompt_tokens=200, output_tokens=20, wander_ratio=0.0)


def server(**keys: object) -> ServerConfig:
    """A tier of target 8 whose prompts have 50 tokens of each step, and one behind it in the queue."""
    tier = TierConfig(name="standard", max_batch=16, target_batch=8, step_tokens=58, hidden=SMALL)
    return ServerConfig(
        name="small",
        deployment=Deployment(chip="H100", model="Llama-3.1-8B"),
        tiers=(
            msgspec.structs.replace(tier, **keys),
            TierConfig(name="later", shares="standard", priority=-1),
        ),
        max_context_tokens=8192,
    )


@pytest.mark.parametrize(
    ("output_tokens", "use", "reached"), [(80.0, 0.4, True), (20.0, 1.6, False), (10.0, 3.2, False)]
)
def test_a_target_that_prompts_have_no_room_for_is_refused_and_others_are_reached(
    output_tokens: float, use: float, reached: bool
) -> None:
    tried = server(hidden=msgspec.structs.replace(SMALL, output_tokens=output_tokens))
    assert hidden_load.chunk_use_ratio(tried.tiers[0]) == pytest.approx(use)
    steps = [step for name, step in Fleet(tried).advance(20 * S) if name == "standard"]
    batch = mean(step.decode_sequences for step in steps if step.started_ns > 4 * S)
    if reached:
        config.check(tried, where="f")
        assert batch == pytest.approx(8, rel=0.1)
    else:
        assert batch < 0.8 * 8
        with pytest.raises(BadInputError, match=r"tiers\[0\].step_tokens: 58 is not allowed; hidden prompts"):
            config.check(tried, where="f")


def test_small_chunks_are_refused_by_their_own_key_and_pausing_needs_no_room() -> None:
    small = server(step_tokens=None, prefill_tokens=50)
    with pytest.raises(BadInputError, match=r"tiers\[0\].prefill_tokens: 50 is not allowed"):
        config.check(small, where="f")
    pausing = server(step_tokens=None, prefill_tokens=50, prefill="pause")
    config.check(pausing, where="f")
    steps = [step for _, step in Fleet(pausing).advance(5 * S) if step.decode_sequences]
    assert mean(step.decode_sequences for step in steps) == pytest.approx(8, rel=0.1)


@pytest.mark.parametrize(("wander_ratio", "served"), [(0.0, False), (0.01, False), (0.1, True)])
def test_who_comes_after_a_hidden_load_that_fills_the_batch_is_refused_unless_it_makes_way(
    wander_ratio: float, served: bool
) -> None:
    hidden = msgspec.structs.replace(SMALL, wander_ratio=wander_ratio, wander_s=0.1)
    full = server(target_batch=16, step_tokens=None, hidden=hidden)
    fleet = Fleet(full)
    fleet.submit("later", Job(0, 10, 2), S)
    fleet.advance(20 * S)
    assert fleet.own_jobs == (0 if served else 1)
    if served:
        config.check(full, where="f")
    else:
        with pytest.raises(BadInputError, match=r"tiers\[1\].priority: -1 is not allowed; the hidden load"):
            config.check(full, where="f")
