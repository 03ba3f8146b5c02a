"""A step log's columns, and how what was written chunk by chunk becomes a Parquet file."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import parquet as pq

from tierscope.errors import BadInputError, RunFailedError
from tierscope.wholefile import replaced

_NAMES = pa.dictionary(pa.int16(), pa.string())
SCHEMA = pa.schema(
    [
        ("t_start_ns", pa.int64()),
        ("t_end_ns", pa.int64()),
        ("engine", _NAMES),
        ("batch", pa.int32()),  # B: sequences that decoded
        ("context_tokens", pa.int64()),  # S: the sum of their contexts
        ("prefill_tokens", pa.int64()),  # n
        ("cached_tokens", pa.int64()),  # c: in memory before the chunks
        ("generated_tokens", pa.int32()),
        ("kv_tokens", pa.int64()),  # held or reserved, after it
        ("running", pa.int32()),
        ("waiting", pa.int32()),
        ("preempted", pa.int32()),
        ("drafted_tokens", pa.int32()),
        ("accepted_tokens", pa.int32()),
        ("bound_by", _NAMES),
        ("own_sequences", pa.int32()),  # those of clients that got tokens
        ("lag_ns", pa.int64()),  # from its end to its being handed out; matters where there are such
    ]
)
"""One row a step. Instants are those of the engine."""
_CODES = {pa.int64(): "q", pa.int32(): "i", _NAMES: "h"}
_ROW_GROUP_ROWS = 262_144

Columns = list["array[int]"]
"""Rows to be, in the order of SCHEMA; names are numbers in order of their first appearance."""
OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True)
"""Of the stream. Names are added from batch to batch, and travel with the batch that first has them."""


def finish(path: Path) -> int:
    """Make the Parquet file of its part, remove the part, and give the number of rows.

    Raises BadInputError if there is no part that can be read, RunFailedError if the file cannot be written.
    """
    part, rows = part_of(path), 0
    try:
        with replaced(path) as fresh, pq.ParquetWriter(fresh, SCHEMA, compression="zstd") as file:
            for table in _row_groups(part):
                file.write_table(table, row_group_size=_ROW_GROUP_ROWS)
                rows += table.num_rows
        part.unlink()
    except OSError as error:
        raise RunFailedError(
            f"{path} cannot be written: {error.strerror or error}; {part} holds the steps"
        ) from error
    return rows


def _row_groups(part: Path) -> Iterator[pa.Table]:
    """Whole row groups of what a part holds, up to where it was cut off."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in _whole_batches(part):
        batches.append(batch)
        rows += batch.num_rows
        if rows >= _ROW_GROUP_ROWS:
            yield _unified(batches)
            batches, rows = [], 0
    if batches:
        yield _unified(batches)


def _whole_batches(part: Path) -> Iterator[pa.RecordBatch]:
    try:
        file = part.open("rb")
    except OSError as error:
        raise BadInputError(f"{part}: cannot be read: {error.strerror}") from error
    with file:
        try:
            yield from pa.ipc.open_stream(file)
        except (pa.ArrowInvalid, OSError):
            return  # cut off here


def _unified(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, SCHEMA).unify_dictionaries()


def batch(columns: Columns, engines: list[str], bounds: list[str]) -> pa.RecordBatch:
    """Rows as Arrow has them, without a copy."""
    names = {"engine": engines, "bound_by": bounds}
    arrays = []
    for field, column in zip(SCHEMA, columns, strict=True):
        values = pa.array(np.frombuffer(column, dtype=column.typecode))
        if field.name in names:
            values = pa.DictionaryArray.from_arrays(values, pa.array(names[field.name], pa.string()))
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def empty() -> Columns:
    """No rows yet."""
    return [array(_CODES[field.type]) for field in SCHEMA]


def part_of(path: Path) -> Path:
    """Where the chunks of a log go while it lasts."""
    return path.with_name(f"{path.name}.part")


def begin(path: Path) -> BinaryIO:
    """Open the part of a step log that begins. Raises BadInputError if there is one already, or cannot be."""
    part = part_of(path)
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path} cannot be written: it is no regular file")
    try:
        return part.open("xb")
    except FileExistsError as error:
        raise BadInputError(
            f"{part} is there: the log of a server that still runs or was killed; "
            f"`python -m mockserver.step_log {path}` makes {path.name} of it"
        ) from error
    except OSError as error:
        raise BadInputError(f"{part} cannot be written: {error.strerror}") from error
