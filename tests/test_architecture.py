"""docs/architecture.md names no module that is not there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = "\n" + (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROOMS = ("loadtest", "mockserver", "analysis", "grafana", "tierscope")


def last_column(heading: str) -> list[str]:
    """What stands in backticks in the last column of the first table below a heading."""
    table = TEXT[TEXT.index(f"\n{heading}") :].split("\n|---", 1)[1].split("\n\n", 1)[0]
    cells = [row.rstrip(" |").rpartition("|")[2] for row in table.split("\n")[1:]]
    return [name for cell in cells for name in re.findall(r"`(.+?)`", cell)]


@pytest.mark.parametrize("name", last_column("## The machine"))
def test_a_layer_of_the_machine_names_modules_that_are_there(name: str) -> None:
    folder, _, module = name.rpartition("/")
    room = folder or ("tierscope" if module.startswith("virtual_") else "mockserver")
    assert list((ROOT / room).glob(f"{module}.py")), name


@pytest.mark.parametrize("name", last_column("# Architecture"))
def test_the_rooms_are_entered_by_files_that_are_there(name: str) -> None:
    assert any((ROOT / room / name).exists() for room in ROOMS), name
