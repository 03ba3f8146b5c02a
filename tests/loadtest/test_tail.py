"""A run folder read while it is written: each record once, none before it is whole."""

from pathlib import Path

import numpy as np
import pytest

from loadtest.records import RequestRecord, encode_line
from loadtest.tail import Tail


def record(index: int) -> RequestRecord:
    return RequestRecord(
        index=index,
        stage="s",
        requested_tier="standard",
        model="m",
        prompt_class_tokens=1,
        max_tokens=1,
        scheduled_ns=0,
        outcome="ok",
        stamp_source="kernel",
        ended_ns=1,
        detail="a line\u2028a paragraph\u2029é",
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_split_of_the_bytes_gives_each_record_once(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    files = {name: b"".join(encode_line(record(index)) for index in indices) for name, indices in
             (("requests-0.jsonl", range(20)), ("requests-1.jsonl", range(20, 30)))}  # fmt: skip
    tail, found = Tail(tmp_path), []
    assert tail.read() == []
    while any(files.values()):
        name = rng.choice([name for name, left in files.items() if left])
        cut = int(rng.integers(0, 120))
        with (tmp_path / name).open("ab") as file:
            file.write(files[name][:cut])
        files[name] = files[name][cut:]
        found += tail.read()
    assert sorted(found, key=lambda one: one.index) == [record(index) for index in range(30)]
    assert tail.read() == []


def test_a_line_that_is_still_being_written_waits_for_its_end(tmp_path: Path) -> None:
    line, tail = encode_line(record(7)), Tail(tmp_path)
    path = tmp_path / "requests-0.jsonl"
    path.write_bytes(line[:-1])
    assert tail.read() == []
    path.write_bytes(line)
    assert tail.read() == [record(7)]


def test_a_line_that_is_no_record_is_left_out_and_the_next_is_read(tmp_path: Path) -> None:
    path = tmp_path / "requests-0.jsonl"
    path.write_bytes(b'{"index": 1}\n\xff\n' + encode_line(record(2)))
    assert Tail(tmp_path).read() == [record(2)]
