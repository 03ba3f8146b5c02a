"""Run folders read back: either file is enough, what does not belong together is refused."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pandas as pd
import pytest

from analysis.load import Loaded, load
from loadtest import parquet, records
from loadtest.plan import Plan, Target
from loadtest.records import RequestRecord
from tierscope.errors import BadInputError

if TYPE_CHECKING:
    from tests.analysis.conftest import Draw, Folder, Server

    RecordsOf = Callable[..., list[RequestRecord]]


@pytest.fixture
def some(draw: "type[Draw]", server: "type[Server]") -> "RecordsOf":
    def make(count: int = 6, **changes: object) -> list[RequestRecord]:
        drawn = draw({"standard": server(), "fast": server(step_s=0.01)}, per_tier=count, output_tokens=5)
        return [msgspec.structs.replace(record, **changes) for record in drawn.records()]

    return make


def same(a: Loaded, b: Loaded) -> None:
    pd.testing.assert_frame_equal(a.requests.frame, b.requests.frame, check_dtype=False)
    np.testing.assert_array_equal(a.requests.event_ns, b.requests.event_ns)
    np.testing.assert_array_equal(a.requests.event_tokens, b.requests.event_tokens)
    np.testing.assert_array_equal(a.requests.offsets, b.requests.offsets)


def varied(drawn: list[RequestRecord]) -> list[RequestRecord]:
    """All that a record can lack: never sent, no event, tokens told, no usage."""
    change = msgspec.structs.replace
    return [
        change(drawn[0], sent_ns=None, event_ns=[], outcome="connect_error", echoed_tier=None, status=None),
        change(drawn[1], event_tokens=[2, 1, 0, 3, 1], coalesced_events=2, prompt_tokens=None),
        change(drawn[2], output_tokens=None, tokens_source=None, cached_tokens=7),
        change(drawn[3], event_ns=[], outcome="rate_limited", status=429, detail="slow down"),
        *drawn[4:],
    ]


def test_columns_packed_at_the_end_of_a_run_say_what_its_lines_say(
    folder: "Folder", some: "RecordsOf"
) -> None:
    path = folder(varied(some()))
    from_lines = load([path])
    parquet.write(path)
    same(load([path]), from_lines)
    for lines in path.glob("*.jsonl"):
        lines.unlink()
    same(load([path]), from_lines)


def test_lines_written_after_the_columns_are_read_instead(folder: "Folder", some: "RecordsOf") -> None:
    path = folder(some())
    packed = parquet.write(path)
    writer = records.RecordWriter(path, "late")
    writer.append(msgspec.structs.replace(some()[0], index=999))
    writer.close()
    os.utime(packed, ns=(0, 0))
    assert 999 in load([path]).requests.column("index")


def test_damaged_columns_are_said_and_the_lines_are_read(folder: "Folder", some: "RecordsOf") -> None:
    path = folder(some())
    (path / records.PARQUET_FILE).write_bytes(b"PAR1 no")
    loaded = load([path])
    assert len(loaded.requests) == 12
    assert any("JSON lines were read instead" in note for note in loaded.notes)


def test_a_last_line_cut_short_loses_that_line_only(folder: "Folder", some: "RecordsOf") -> None:
    path = folder(some())
    lines = next(path.glob("*.jsonl"))
    lines.write_bytes(lines.read_bytes()[:-40])
    loaded = load([path])
    assert len(loaded.requests) == 11
    assert any("cut short" in note for note in loaded.notes)


def test_requests_come_in_the_order_in_which_they_were_sent(folder: "Folder", some: "RecordsOf") -> None:
    path = folder(list(reversed(some())))
    sent = load([path]).requests.column("sent_at_s")
    assert (np.diff(sent) >= 0).all()


def test_runs_of_one_server_are_pooled_and_keep_their_numbers(folder: "Folder", some: "RecordsOf") -> None:
    paths = [folder(some(), name=name, run_id=name) for name in ("one", "two")]
    loaded = load(paths)
    assert len(loaded.requests) == 24
    assert np.bincount(loaded.requests.column("run").astype(int)).tolist() == [12, 12]


@pytest.mark.parametrize("what", ["url", "tiers"])
def test_runs_that_do_not_belong_together_are_refused_in_one_line(
    folder: "Folder", some: "RecordsOf", plan_for: Callable[..., Plan], what: str
) -> None:
    ours = folder(some(), name="one")
    other = Target(url="http://elsewhere", model="m")
    theirs = (
        folder(some(), name="two", target=other)
        if what == "url"
        else folder(some(), name="two", plan=plan_for(["standard", "slow"]))
    )
    with pytest.raises(BadInputError) as refusal:
        load([ours, theirs])
    line = str(refusal.value)
    assert "\n" not in line
    assert what in line
    assert "two" in line


def test_the_same_folder_twice_counts_for_nothing(folder: "Folder", some: "RecordsOf") -> None:
    path = folder(some())
    with pytest.raises(BadInputError, match="given twice"):
        load([path, path.parent / "." / path.name])


def test_a_copy_of_a_run_counts_for_nothing_either(folder: "Folder", some: "RecordsOf") -> None:
    paths = [folder(some(), name=name) for name in ("one", "copy")]
    with pytest.raises(BadInputError, match="same run"):
        load(paths)


def test_an_empty_run_is_refused_alone_and_noted_among_others(folder: "Folder", some: "RecordsOf") -> None:
    empty = folder([], name="empty", run_id="empty")
    with pytest.raises(BadInputError, match="no request was recorded"):
        load([empty])
    full = folder(some(), name="full", plan=records.read_info(empty).plan)
    loaded = load([empty, full])
    assert any("empty: no request" in note for note in loaded.notes)


def test_a_version_nobody_knows_is_refused(folder: "Folder", some: "RecordsOf") -> None:
    path = folder(some(), schema_version=99)
    with pytest.raises(BadInputError, match="schema_version: 99"):
        load([path])


@pytest.mark.parametrize("given", [[], ["nowhere"]])
def test_no_folder_and_a_folder_that_is_none_are_refused(tmp_path: Path, given: list[str]) -> None:
    with pytest.raises(BadInputError):
        load([tmp_path / name for name in given])
