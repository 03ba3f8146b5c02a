"""The run folder: what is written is read back, and what is broken is said."""

import json
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadtest import parquet, records
from loadtest.plan import Closed, Plan, Stage, Target, Workload
from loadtest.recorder import Recorder
from loadtest.records import (
    OUTCOMES,
    ClientHealth,
    RecordWriter,
    RequestRecord,
    RunInfo,
    read_info,
    read_run,
    write_info,
    write_run,
)
from tierscope.errors import BadInputError

INSTANT = st.integers(0, 2**62)
COUNT = st.integers(0, 2**53)
LINE = st.text(max_size=20)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


RECORDS = st.builds(
    RequestRecord,
    index=st.integers(0, 10**9),
    stage=LINE,
    requested_tier=LINE,
    model=LINE,
    prompt_class_tokens=COUNT,
    max_tokens=COUNT,
    scheduled_ns=st.integers(-(2**62), 2**62),
    outcome=st.sampled_from(OUTCOMES),
    stamp_source=st.sampled_from(["kernel", "user", "virtual"]),
    ended_ns=INSTANT,
    warmup=st.booleans(),
    session=optional(LINE),
    turn=COUNT,
    connected_ns=optional(INSTANT),
    sent_ns=optional(INSTANT),
    headers_ns=optional(INSTANT),
    first_text_ns=optional(INSTANT),
    event_ns=st.lists(INSTANT, max_size=5),
    event_kinds=st.lists(st.tuples(st.sampled_from(["text", "reasoning", "tool"]), COUNT), max_size=3),
    event_tokens=optional(st.lists(COUNT, max_size=5)),
    coalesced_events=COUNT,
    streamed=st.booleans(),
    status=optional(st.integers(100, 599)),
    detail=LINE,
    finish_reason=optional(LINE),
    echoed_tier=optional(LINE),
    prompt_tokens=optional(COUNT),
    cached_tokens=optional(COUNT),
    cache_write_tokens=optional(COUNT),
    output_tokens=optional(COUNT),
    tokens_source=st.sampled_from([None, "usage", "events"]),
    request_id=optional(LINE),
    retry_after_s=optional(st.floats(0, 1e9)),
    rate_limit_headers=st.dictionaries(LINE, LINE, max_size=3),
)
RUNS = st.lists(RECORDS, max_size=6, unique_by=lambda record: record.index)


def info(**more: Any) -> RunInfo:
    plan = Plan(
        name="p",
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),),
        workload=Workload(prompt_tokens=(4,), output_tokens=8),
    )
    fields: dict[str, Any] = {
        "schema_version": records.SCHEMA_VERSION,
        "run_id": "r",
        "tierscope_version": "0",
        "target": Target(url="http://h", model="m"),
        "plan": plan,
        "started_unix_s": 1.5,
        "status": "complete",
    }
    return RunInfo(**fields | more)


def record(index: int) -> RequestRecord:
    return RequestRecord(
        index=index, stage="s", requested_tier="t", model="m", prompt_class_tokens=4, max_tokens=8,
        scheduled_ns=0, outcome="ok", stamp_source="kernel", ended_ns=9, event_ns=[1, 2],
    )  # fmt: skip


@given(RECORDS)
def test_a_line_is_read_back_as_the_record_it_was(made: RequestRecord) -> None:
    line = records.encode_line(made)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert msgspec.json.decode(line, type=RequestRecord) == made


@given(made=RUNS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_columns_hold_what_the_lines_hold(
    made: list[RequestRecord], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, info(), made)
    parquet.write(folder)
    assert parquet.read_records(folder) == read_run(folder).records == sorted(made, key=lambda one: one.index)


@given(made=RUNS, batch_bytes=st.integers(1, 2000), workers=st.integers(1, 3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_columns_do_not_depend_on_batches_or_on_who_wrote_which_line(
    made: list[RequestRecord], batch_bytes: int, workers: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    write_info(folder, info())
    writers = [RecordWriter(folder, str(number)) for number in range(workers)]
    for number, one in enumerate(made):
        writers[number % workers].append(one)
    for writer in writers:
        writer.close()
    parquet.write(folder, batch_bytes)
    assert parquet.read_records(folder) == sorted(made, key=lambda one: one.index)
    assert len(list(folder.iterdir())) == 2 + workers


def test_packing_a_run_ten_times_as_long_takes_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for name, count in (("short", 600), ("long", 6_000)):
        long = msgspec.structs.replace(record(0), event_ns=list(range(10**12, 10**12 + 100)))
        write_run(
            tmp_path / name, info(), (msgspec.structs.replace(long, index=index) for index in range(count))
        )
        tracemalloc.start()
        parquet.write(tmp_path / name, batch_bytes=2**18)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # What grows is the place of each line, 28 bytes, and their order, a few times 8.
    assert peaks[1] - peaks[0] < 5_400 * 200


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"nonsense\n", "line 3 is not a record and left out: .*; columns are made of whole"),
        (b'{"index":7}\n', "is not a record; columns are made of whole"),
        (b'{"ind', "line 3 is cut short and left out; columns are made of whole"),
        (records.encode_line(record(1)), "request 1 is there twice; columns are made of whole"),
    ],
)
def test_no_columns_are_made_of_lines_that_are_lost_or_doubled(
    tmp_path: Path, damage: bytes, message: str
) -> None:
    write_run(tmp_path, info(), [record(0), record(1)])
    with (tmp_path / "requests-0.jsonl").open("ab") as file:
        file.write(damage)
    with pytest.raises(BadInputError, match=message):
        parquet.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["requests-0.jsonl", "run.json"]


def test_no_columns_are_made_of_a_run_that_did_not_end(tmp_path: Path) -> None:
    write_run(tmp_path, info(status="running"), [record(0)])
    with pytest.raises(BadInputError, match="did not end in order"):
        parquet.write(tmp_path)


def test_every_field_has_a_column_in_its_order() -> None:
    assert parquet.SCHEMA.names == [field.name for field in msgspec.structs.fields(RequestRecord)]


def test_no_columns_hide_that_a_line_was_lost(tmp_path: Path) -> None:
    write_run(tmp_path, info(), [record(0), record(1)])
    file = tmp_path / "requests-0.jsonl"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(BadInputError, match="line 2 is cut short and left out; columns are made of whole"):
        parquet.write(tmp_path)
    assert not (tmp_path / "requests.parquet").exists()


def test_some_columns_can_be_read_alone(tmp_path: Path) -> None:
    write_run(tmp_path, info(), [record(0), record(1)])
    parquet.write(tmp_path)
    table = parquet.read_table(tmp_path, ["index", "event_ns"])
    assert table.to_pydict() == {"index": [0, 1], "event_ns": [[1, 2], [1, 2]]}


def test_columns_of_a_version_not_known_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.table({"index": [1]}), tmp_path / "requests.parquet")
    with pytest.raises(BadInputError, match=r"requests\.parquet: schema version none is not known"):
        parquet.read_table(tmp_path)
    (tmp_path / "requests.parquet").write_bytes(b"rubbish")
    with pytest.raises(BadInputError, match=r"requests\.parquet: cannot be read"):
        parquet.read_table(tmp_path)


def test_packing_what_is_no_run_is_one_line_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parquet.main([str(tmp_path)]) == 2
    assert parquet.main([]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_last_line_cut_short_loses_that_line_only_and_is_said(tmp_path: Path, cut: int) -> None:
    write_run(tmp_path, info(), [record(0), record(1), record(2)])
    file = tmp_path / "requests-0.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    run = read_run(tmp_path)
    assert [one.index for one in run.records] == [0, 1]
    assert run.notes == ["requests-0.jsonl: line 3 is cut short and left out"]


def test_a_line_that_is_no_record_is_left_out_and_said(tmp_path: Path) -> None:
    write_run(tmp_path, info(), [record(0)])
    with (tmp_path / "requests-0.jsonl").open("ab") as file:
        file.write(b'{"index": 7}\n\xff\xfe\n' + records.encode_line(record(1)))
    run = read_run(tmp_path)
    assert [one.index for one in run.records] == [0, 1]
    assert [note.split(" is not")[0] for note in run.notes] == [
        "requests-0.jsonl: line 2",
        "requests-0.jsonl: line 3",
    ]


def test_a_record_that_is_there_twice_is_kept_once_and_said(tmp_path: Path) -> None:
    write_run(tmp_path, info(), [record(1), record(0), record(1)])
    run = read_run(tmp_path)
    assert [one.index for one in run.records] == [0, 1]
    assert "there twice" in run.notes[0]


def test_a_run_that_did_not_end_is_read_and_said(tmp_path: Path) -> None:
    write_run(tmp_path, info(status="running"), [record(0)])
    run = read_run(tmp_path)
    assert len(run.records) == 1
    assert "did not end in order" in run.notes[0]


def test_a_version_not_known_is_refused_in_one_line(tmp_path: Path) -> None:
    write_info(tmp_path, info())
    document = json.loads((tmp_path / "run.json").read_text())
    document |= {"schema_version": 99, "something_new": True}
    (tmp_path / "run.json").write_text(json.dumps(document))
    with pytest.raises(
        BadInputError, match=r"run\.json: schema_version: 99 is not known; this tierscope reads 1"
    ):
        read_info(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"schema_version": "x"}', b'{"schema_version": 1}',
     b'{"schema_version": 1, "run_id": "\xff"}'],
)  # fmt: skip
def test_a_run_json_that_is_none_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(BadInputError) as caught:
        read_info(tmp_path)
    assert "\n" not in str(caught.value)
    assert "run.json" in str(caught.value)


def test_a_folder_without_a_run_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"is not a run folder: run\.json: No such file"):
        read_run(tmp_path)


def test_run_json_is_replaced_whole(tmp_path: Path) -> None:
    write_info(tmp_path, info(status="running"))
    write_info(tmp_path, info(status="complete"))
    assert read_info(tmp_path) == info(status="complete")
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole files are cut off after ten bytes."""

    def half(path: Path, data: bytes) -> None:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run folder from before the disk was full."""
    write_run(tmp_path, info(), [record(0)])
    return tmp_path


def test_a_file_that_cannot_be_written_whole_leaves_the_folder_as_it_was(
    folder: Path, full_disk: None
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(OSError, match="No space left"):
        write_info(folder, info(status="complete"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_columns_that_cannot_be_written_whole_leave_the_folder_as_it_was_and_one_line(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", "loadtest.parquet", str(folder)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "File too large" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_columns_written_into_a_full_device_say_so(folder: Path) -> None:
    (folder / "requests.parquet").unlink(missing_ok=True)
    (folder / "requests.parquet").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        parquet.write(folder)
    assert (folder / "requests.parquet").is_symlink()


HEALTH = ClientHealth(cpu_s=1, wall_s=1, worst_lag_s=0, connections_opened=1, stamp_source="kernel")


def test_a_run_whose_last_words_the_disk_did_not_take_says_so(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recorder = Recorder(tmp_path / "run", info(status="running"))
    recorder.append(record(0))
    request.getfixturevalue("full_disk")
    trouble = recorder.close("complete", "", ended_ns=9, client=HEALTH)
    assert trouble == f"{tmp_path / 'run' / 'run.json'} cannot be written: No space left on device"
    run = read_run(tmp_path / "run")
    assert (run.info.status, run.records) == ("running", [record(0)])


def test_a_run_whose_last_records_the_disk_did_not_take_is_partial_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "requests-0.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr("loadtest.recorder.RecordWriter", lambda _: RecordWriter(full))
    recorder = Recorder(tmp_path / "run", info(status="running"))
    recorder.append(record(0))
    trouble = recorder.close("complete", "", ended_ns=9, client=HEALTH)
    assert trouble == f"{full / 'requests-0.jsonl'} cannot be written: No space left on device"
    ended = read_info(tmp_path / "run")
    assert (ended.status, ended.status_detail) == ("partial", trouble)


def test_what_a_full_disk_did_not_take_stays_in_the_buffer(tmp_path: Path) -> None:
    (tmp_path / "requests-0.jsonl").symlink_to("/dev/full")
    writer = RecordWriter(tmp_path)
    writer.append(record(0))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            writer.flush()
    with pytest.raises(OSError, match="No space left on device"):
        writer.close()


def test_nothing_is_on_disk_before_a_flush_and_everything_after_it(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    writer.append(record(0))
    assert writer.path.read_bytes() == b""
    writer.flush()
    assert writer.path.read_bytes() == records.encode_line(record(0))
    writer.close()


@pytest.mark.parametrize("damage", ["cut", "flipped", "a column less", "another type"])
def test_damaged_columns_are_one_line(folder: Path, damage: str) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    path = parquet.write(folder)
    table, whole = pq.read_table(path), path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        third = len(whole) // 3
        path.write_bytes(whole[:4] + bytes(byte ^ 0x5A for byte in whole[4:third]) + whole[third:])
    elif damage == "a column less":
        pq.write_table(table.drop(["event_ns"]), path)
    else:
        place = table.schema.get_field_index("ended_ns")
        pq.write_table(table.set_column(place, "ended_ns", pa.array(["x"] * len(table))), path)
    with pytest.raises(
        BadInputError, match=r"requests\.parquet: (cannot be read|its columns are not)"
    ) as caught:
        parquet.read_table(folder)
    assert "\n" not in str(caught.value)


def test_lines_that_are_a_folder_are_one_line(tmp_path: Path) -> None:
    write_info(tmp_path, info())
    (tmp_path / "requests-0.jsonl").mkdir()
    with pytest.raises(BadInputError, match=r"requests-0\.jsonl: cannot be read: Is a directory"):
        read_run(tmp_path)


def test_a_run_json_nested_by_the_thousand_is_one_line(tmp_path: Path) -> None:
    write_info(tmp_path, info())
    whole = (tmp_path / "run.json").read_text()
    deep = "[" * 100_000 + "]" * 100_000
    (tmp_path / "run.json").write_text(whole.replace('"plan": {', f'"more": {deep}, "plan": {{', 1))
    with pytest.raises(BadInputError, match=r"run\.json: "):
        read_info(tmp_path)
