"""The records of a run in order of their index, a batch at a time: memory does not grow with the run. Pure.

Lines lie in the order in which requests ended, in one file a worker. A first pass notes where each record's
line is, a second one reads the lines in order.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from loadtest.records import LINES_FILES, RequestRecord, decode_line
from loadtest.unreadable import UNREADABLE
from tierscope.errors import BadInputError

BATCH_BYTES = 8 * 2**20
"""About so many bytes of lines make a batch; as objects they take several times as much."""


def batches(folder: Path, batch_bytes: int = BATCH_BYTES) -> Iterator[list[RequestRecord]]:
    """Give all records of a run folder, sorted by index.

    Raises BadInputError in one line at the first line that is cut short or no record, and at an index that is
    there twice; OSError if a file cannot be read.
    """
    paths = sorted(folder.glob(LINES_FILES))
    places = _Places()
    for number, path in enumerate(paths):
        places.look_through(path, number)
    files = [path.open("rb") for path in paths]
    try:
        for rows in places.in_order(batch_bytes):
            lines: list[RequestRecord] = []
            for number, offset, length in rows:
                files[number].seek(offset)
                record = decode_line(files[number].read(length))
                if record is None:
                    raise BadInputError(f"{paths[number].name}: the line at byte {offset} is not a record")
                lines.append(record)
            yield lines
    finally:
        for file in files:
            file.close()


class _Places:
    """Where the line of each record is: 28 bytes a record."""

    def __init__(self) -> None:
        self._indices, self._files = array("q"), array("i")
        self._offsets, self._lengths = array("q"), array("q")

    def look_through(self, path: Path, number: int) -> None:
        offset = 0
        with path.open("rb") as file:
            for row, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    raise BadInputError(f"{path.name}: line {row} is cut short and left out")
                try:
                    self._indices.append(_DECODER.decode(line).index)
                except UNREADABLE as error:
                    raise BadInputError(
                        f"{path.name}: line {row} is not a record and left out: {error}"
                    ) from error
                self._files.append(number)
                self._offsets.append(offset)
                self._lengths.append(len(line))
                offset += len(line)

    def in_order(self, batch_bytes: int) -> Iterator[list[tuple[int, int, int]]]:
        """Batches of (file, offset, length)."""
        indices = np.frombuffer(self._indices, dtype=np.int64)
        order = np.argsort(indices, kind="stable")
        ordered = indices[order]
        twice = np.flatnonzero(ordered[1:] == ordered[:-1])
        if twice.size:
            raise BadInputError(f"request {ordered[twice[0]]} is there twice")
        rows: list[tuple[int, int, int]] = []
        held = 0
        for row in order.tolist():
            rows.append((self._files[row], self._offsets[row], self._lengths[row]))
            held += self._lengths[row]
            if held >= batch_bytes:
                yield rows
                rows, held = [], 0
        if rows:
            yield rows


class _Indexed(msgspec.Struct):
    index: int


_DECODER = msgspec.json.Decoder(_Indexed)
