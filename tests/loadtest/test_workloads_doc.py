"""The examples of docs/workloads.md are plans, and between them they show all there is."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from loadtest import plan
from loadtest.plan import Arrivals, Control, Network, Plan, Tier, Timeouts
from loadtest.plan_workload import Lengths, Trace, Workload

TEXT = (Path(__file__).parent.parent.parent / "docs" / "workloads.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
STAGE = '[[stages]]\nname = "s"\nrequests = 1\narrivals = { kind = "closed", streams = 1 }\n'
WORKLOAD = "[workload]\nprompt_tokens = [64]\noutput_tokens = 16\n"


def parsed(example: str) -> Plan:
    """A plan of an example, with what it leaves out."""
    parts = [
        "" if example.startswith("name") else 'name = "example"\n',
        "" if "[workload]" in example else WORKLOAD,
        example,
        "" if "[[stages]]" in example else STAGE,
    ]
    return plan.parse("".join(parts), where="docs/workloads.md")


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_a_good_plan(example: str) -> None:
    assert parsed(example).stages


def test_every_arrival_every_length_and_every_key_of_a_workload_is_shown() -> None:
    plans = [parsed(example) for example in EXAMPLES]
    assert {type(stage.arrivals) for made in plans for stage in made.stages} == set(get_args(Arrivals))
    works = [made.workload for made in plans]
    drawn = {type(getattr(work, name)) for work in works for name in ("prompt_tokens", "output_tokens")}
    assert set(get_args(Lengths)) <= drawn
    for field in msgspec.structs.fields(Workload):
        assert f"{field.name} = " in TEXT or f"`{field.name}`" in TEXT, field.name
    formats = next(f.type for f in msgspec.structs.fields(Trace) if f.name == "format")
    assert all(f"`{name}`" in TEXT for name in get_args(formats))


@pytest.mark.parametrize("part", [Control, Tier, Timeouts, Network])
def test_every_key_of_the_other_parts_is_shown(part: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(part):
        assert f"{field.name} = " in TEXT, field.name


@pytest.mark.parametrize("part", [Timeouts, Network])
def test_defaults_are_shown_as_they_are(part: type[msgspec.Struct]) -> None:
    shown = [getattr(parsed(example), part.__name__.lower()) for example in EXAMPLES]
    assert all(one == part() for one in shown)
