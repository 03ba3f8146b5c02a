"""Plans that are to end at a verdict: read, overridden, and refused where none can be reached."""

import msgspec
import pytest

from loadtest import plan as plans
from tierscope.errors import BadInputError

TEXT = """
name = "p"
[workload]
prompt_tokens = [128]
output_tokens = 8
[control]
until = "verdict"
[[tiers]]
name = "a"
[[tiers]]
name = "b"
[[stages]]
name = "warmup"
warmup = true
duration_s = 1
arrivals = { kind = "closed", streams = 1 }
[[stages]]
name = "s"
requests = 8
arrivals = { kind = "closed", streams = 1 }
"""
SECOND_TIER = '[[tiers]]\nname = "b"\n'


def test_a_plan_can_end_at_its_verdict_whatever_its_warm_up() -> None:
    assert plans.parse(TEXT, where="p.toml").control.until == "verdict"


def test_the_end_of_a_plan_can_be_overridden_both_ways() -> None:
    plan = plans.parse(TEXT, where="p.toml")
    stages = plans.ending(plan, "stages")
    assert stages.control.until == "stages"
    assert plans.ending(stages, "verdict") == plan
    assert msgspec.structs.replace(stages, control=plan.control) == plan


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (SECOND_TIER, "", "needs two tiers to compare, and there is one"),
        ("requests = 8", "duration_s = 5", "needs requests in each measured stage, .* stage s has none"),
        ("requests = 8", "requests = 8\nwarmup = true", "needs a stage that is measured"),
    ],
)
def test_a_verdict_that_cannot_be_reached_is_refused_in_one_line(old: str, new: str, words: str) -> None:
    text = TEXT.replace(old, new)
    with pytest.raises(BadInputError, match=f"^p.toml: control.until: verdict {words}") as read:
        plans.parse(text, where="p.toml")
    assert "\n" not in str(read.value)
    plan = plans.parse(text.replace('"verdict"', '"stages"'), where="p.toml")
    with pytest.raises(BadInputError, match=f"^--until verdict: plan p: verdict {words}"):
        plans.ending(plan, "verdict")


def test_an_end_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(BadInputError, match="--until: 'later' is not allowed; expected stages or verdict"):
        plans.ending(plans.load("ab"), "later")
