"""docs/truth.md names everything that the mock tells, and nothing else."""

import re
from pathlib import Path

from mockserver import request_truth
from mockserver.metrics import ServerMetrics
from mockserver.step_table import SCHEMA
from tests.mockserver.naive_steps import played

DOC = (Path(__file__).parents[2] / "docs" / "truth.md").read_text(encoding="utf-8")


def first_cells(heading: str) -> list[str]:
    """Every name in the first column of the tables of a section."""
    section = DOC.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_table_of_metrics_is_the_page() -> None:
    page = ServerMetrics("m", {"a": 1000}).page().decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, flags=re.MULTILINE))
    told = first_cells("`/metrics`")
    assert sorted(told) == sorted(kinds)
    for line in DOC.splitlines():
        for name in re.findall(r"`((?:vllm:|mockserver_)\w+)`", line.partition("|")[2].partition("|")[0]):
            assert line.split("|")[2].strip() == kinds[name], name


def test_the_tables_of_requests_and_steps_are_their_fields() -> None:
    one = played(1, pause=False)[1][0]
    assert first_cells("The request's own truth") == list(request_truth.of_finished([one.finished()]))
    assert first_cells("The step log") == SCHEMA.names
