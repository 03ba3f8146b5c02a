"""Other tools' result files are read as those tools mean them: their own summaries are the truth."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.peer_commands import COMMANDS, PACKAGES
from bench.peer_results import READERS, Seen
from bench.peers import TOKENS, compare
from bench.truth import Answer

DATA = Path(__file__).parent.parent / "data" / "peers"
SUMMARIES = json.loads((DATA / "own_summaries.json").read_text("utf-8"))


@pytest.mark.parametrize("tool", sorted(SUMMARIES))
def test_the_mean_ttft_is_the_one_the_tool_itself_gives(tool: str) -> None:
    seen, own = READERS[tool](DATA / tool), SUMMARIES[tool]
    assert len(seen) == own["requests"]
    assert np.mean([one.ttft_s for one in seen]) * 1e3 == pytest.approx(own["ttft_mean_ms"], abs=0.006)


@pytest.mark.parametrize("tool", sorted(tool for tool, own in SUMMARIES.items() if own["itl_mean_ms"]))
def test_the_mean_gap_is_the_one_the_tool_itself_gives(tool: str) -> None:
    gaps_s = np.concatenate([one.gaps_s for one in READERS[tool](DATA / tool)])
    assert gaps_s.mean() * 1e3 == pytest.approx(SUMMARIES[tool]["itl_mean_ms"], abs=0.006)


def test_a_folder_without_the_result_file_is_said(tmp_path: Path) -> None:
    for reader in READERS.values():
        with pytest.raises(FileNotFoundError, match="0 files are called"):
            reader(tmp_path)


def test_every_tool_can_be_started_installed_and_read() -> None:
    assert set(COMMANDS) == set(READERS) == set(PACKAGES) | {"tierscope"}


def answer(arrived_ns: int) -> Answer:
    due_ns, gap_ns = arrived_ns + 100_000_000, 20_000_000
    return Answer(
        id="",
        connection=1,
        arrived_ns=arrived_ns,
        due_ns=due_ns,
        gap_ns=gap_ns,
        sent_ns=[due_ns + k * gap_ns for k in range(TOKENS)],
    )


def test_a_tool_that_sees_everything_5_ms_late_has_that_error_in_ttft_and_none_in_gaps() -> None:
    seen = [Seen(float(place), 0.105, (0.02,) * (TOKENS - 1)) for place in range(3)]
    errors = compare(seen, [answer(arrived_ns) for arrived_ns in (0, 50, 100)])
    assert errors.ttft.mean_s == pytest.approx(0.005)
    assert errors.gap is not None
    assert errors.gap.p99_s == pytest.approx(0, abs=1e-12)


def test_a_tool_that_lost_requests_is_set_against_the_usual_ttft_and_its_gaps_against_nothing() -> None:
    errors = compare([Seen(0.0, 0.103, (0.02,) * (TOKENS - 1))], [answer(0), answer(7)])
    assert errors.ttft.mean_s == pytest.approx(0.003)
    assert errors.gap is None
