"""Every step that was logged is in the Parquet file, whatever becomes of the process that logged it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mockserver import step_log, step_table
from mockserver.job import StepDone
from mockserver.step_log import StepLog
from tests.mockserver.naive_steps import played
from tierscope.errors import BadInputError, RunFailedError

STEPS = played(2, pause=True, draft_tokens=3)[0]


def engine_of(number: int) -> str:
    """Engines that turn up one after the other."""
    return f"tier/{min(number % 5, number // 20)}"


def bound_by(_engine: str, step: StepDone) -> str:
    return "memory" if step.decode_sequences else "compute"


def logged(path: Path, steps: list[StepDone] = STEPS) -> Path:
    with StepLog(path, bound_by) as log:
        for number, step in enumerate(steps):
            log.add(engine_of(number), step, 7 * number)
    return path


def expected(steps: list[StepDone] = STEPS) -> list[dict[str, Any]]:
    return [
        {
            "t_start_ns": step.started_ns,
            "t_end_ns": step.ended_ns,
            "engine": engine_of(number),
            "batch": step.decode_sequences,
            "context_tokens": step.context_tokens,
            "prefill_tokens": step.prefill_tokens,
            "cached_tokens": step.prefill_cached_tokens,
            "generated_tokens": step.generated_tokens,
            "kv_tokens": step.kv_tokens,
            "running": step.running,
            "waiting": step.waiting,
            "preempted": step.preempted,
            "drafted_tokens": step.drafted_tokens,
            "accepted_tokens": step.accepted_tokens,
            "bound_by": bound_by("", step),
            "own_sequences": len(step.emitted),
            "lag_ns": 7 * number,
        }
        for number, step in enumerate(steps)
    ]


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


@pytest.fixture(params=[1, 7, 64, 16_384])
def chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """However many steps go into a chunk, and however many chunks into a row group."""
    monkeypatch.setattr(step_log, "_CHUNK_ROWS", request.param)
    monkeypatch.setattr(step_table, "_ROW_GROUP_ROWS", 50)
    return iter([request.param])


@pytest.mark.usefixtures("chunk_rows")
def test_every_step_is_a_row_in_order_and_the_part_is_gone(tmp_path: Path) -> None:
    path = logged(tmp_path / "steps.parquet")
    assert rows(path) == expected()
    assert list(tmp_path.iterdir()) == [path]
    assert pq.ParquetFile(path).num_row_groups > 1


def test_a_log_of_no_steps_is_a_file_of_no_rows(tmp_path: Path) -> None:
    assert pq.read_table(logged(tmp_path / "steps.parquet", [])).num_rows == 0


def test_the_same_steps_are_the_same_bytes(tmp_path: Path) -> None:
    assert logged(tmp_path / "a.parquet").read_bytes() == logged(tmp_path / "b.parquet").read_bytes()


def test_a_killed_process_leaves_a_part_that_becomes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "steps.parquet"
    code = (
        "import os, signal, sys, time; from pathlib import Path\n"
        "from mockserver import step_log\n"
        "from tests.mockserver import test_step_log as t\n"
        "step_log._CHUNK_ROWS = 10\n"
        "log = step_log.StepLog(Path(sys.argv[1]), t.bound_by)\n"
        "[log.add(t.engine_of(n), step, 7 * n) for n, step in enumerate(t.STEPS[:45])]\n"
        "while log._chunks.qsize(): time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], check=False, env=os.environ | {"PYTHONPATH": "."}
    )
    assert done.returncode == -signal.SIGKILL
    assert not path.exists()
    with pytest.raises(BadInputError, match=r"python -m mockserver\.step_log"):
        StepLog(path, bound_by)
    assert step_log.main([str(path)]) == 0
    assert rows(path) == expected(STEPS[:40])


def test_a_part_that_is_cut_anywhere_gives_the_steps_before_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "_CHUNK_ROWS", 10)
    path, part = tmp_path / "steps.parquet", tmp_path / "steps.parquet.part"
    monkeypatch.setattr(step_table, "finish", lambda path: None)
    logged(path)
    monkeypatch.undo()
    whole, kept = part.read_bytes(), []
    for cut in (*range(0, len(whole), len(whole) // 40), len(whole)):
        part.write_bytes(whole[:cut])
        assert step_log.main([str(path)]) == 0
        kept.append(pq.read_table(path).num_rows)
        assert rows(path) == expected(STEPS[: kept[-1]])
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (0, len(STEPS))
    assert set(kept) == {*range(0, len(STEPS), 10), len(STEPS)}


def test_nothing_to_rescue_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert step_log.main([str(tmp_path / "steps.parquet")]) == 2
    said = capsys.readouterr().err
    assert said == f"{tmp_path}/steps.parquet.part: cannot be read: No such file or directory\n"
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused_before_the_first_step(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be written: No such file"):
        StepLog(tmp_path / "nowhere" / "steps.parquet", bound_by)
    for place in (tmp_path, Path("/dev/null")):  # the file comes last: hours later it could not
        with pytest.raises(BadInputError, match="cannot be written: it is no regular file"):
            StepLog(place, bound_by)
        assert not step_table.part_of(place).exists()


def test_a_full_disk_ends_the_log_without_holding_a_step_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "_CHUNK_ROWS", 1)
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(step_table, "begin", lambda path: full)
        log = StepLog(tmp_path / "steps.parquet", bound_by)
        for _ in range(3):
            for number, step in enumerate(STEPS):  # more chunks than the queue holds
                log.add(engine_of(number), step)
        with pytest.raises(RunFailedError, match="No space left on device"):
            log.close()
    assert "No space left" in log.failure
