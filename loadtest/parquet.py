"""The records of a run in columns: ``requests.parquet``, written from the JSON lines and read back.

``python -m loadtest.parquet RUN_DIR`` writes it in a process of its own, so that the load process never
waits for it. This module never imports gevent or locust.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from pyarrow import parquet as pq

from loadtest.batches import BATCH_BYTES, batches
from loadtest.delta import folded
from loadtest.records import (
    PARQUET_FILE,
    RUN_FILE,
    SCHEMA_VERSION,
    RequestRecord,
    read_info,
)
from tierscope.errors import BadInputError
from tierscope.wholefile import replaced

_ONLY_WHOLE = "columns are made of whole runs only"
_VERSION_KEY = b"tierscope_schema_version"
_INSTANTS = pa.list_(pa.int64())
_RUN_LENGTHS = pa.list_(pa.struct([("kind", pa.string()), ("count", pa.int64())]))

_TYPES: dict[str, pa.DataType] = {
    "index": pa.int64(),
    "stage": pa.string(),
    "requested_tier": pa.string(),
    "model": pa.string(),
    "prompt_class_tokens": pa.int64(),
    "max_tokens": pa.int64(),
    "scheduled_ns": pa.int64(),
    "outcome": pa.string(),
    "stamp_source": pa.string(),
    "ended_ns": pa.int64(),
    "warmup": pa.bool_(),
    "session": pa.string(),
    "turn": pa.int64(),
    "connected_ns": pa.int64(),
    "sent_ns": pa.int64(),
    "headers_ns": pa.int64(),
    "first_text_ns": pa.int64(),
    "event_ns": _INSTANTS,
    "event_kinds": _RUN_LENGTHS,
    "event_tokens": pa.list_(pa.int64()),
    "coalesced_events": pa.int64(),
    "streamed": pa.bool_(),
    "status": pa.int64(),
    "detail": pa.string(),
    "finish_reason": pa.string(),
    "echoed_tier": pa.string(),
    "prompt_tokens": pa.int64(),
    "cached_tokens": pa.int64(),
    "cache_write_tokens": pa.int64(),
    "output_tokens": pa.int64(),
    "tokens_source": pa.string(),
    "request_id": pa.string(),
    "retry_after_s": pa.float64(),
    "rate_limit_headers": pa.map_(pa.string(), pa.string()),
}
SCHEMA = pa.schema(list(_TYPES.items()), metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()})


def write(folder: Path, batch_bytes: int = BATCH_BYTES) -> Path:
    """Pack a run folder's JSON lines into columns, a batch of records at a time; gives the file's path.

    A reader sees the old file or the whole new one. Raises BadInputError if the folder holds no run, or lines
    that are lost (a reader of the columns alone would not hear of it), and OSError if it cannot be written.
    """
    if read_info(folder).status == "running":
        raise BadInputError(f"{RUN_FILE}: the run did not end in order; {_ONLY_WHOLE}")
    path = folder / PARQUET_FILE
    try:
        with replaced(path) as fresh, pq.ParquetWriter(fresh, SCHEMA, compression="zstd") as columns:
            for records in batches(folder, batch_bytes):
                columns.write_table(pa.Table.from_pylist([_row(one) for one in records], schema=SCHEMA))
    except BadInputError as error:
        raise BadInputError(f"{error}; {_ONLY_WHOLE}") from error
    return path


def read_table(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read the columns (all if None) of a run folder's ``requests.parquet``.

    Raises BadInputError in one line if there is none, if it is damaged, or of a version that is not known.
    """
    path = folder / PARQUET_FILE
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f"{path}: cannot be read: {folded(str(error))}") from error
    version = (schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise BadInputError(
            f"{path}: schema version {version} is not known; this tierscope reads {SCHEMA_VERSION}"
        )
    if not schema.equals(SCHEMA):
        raise BadInputError(f"{path}: its columns are not those of schema version {SCHEMA_VERSION}")
    try:
        return pq.read_table(path, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(f"{path}: cannot be read: {folded(str(error))}") from error


def read_records(folder: Path) -> list[RequestRecord]:
    """Read ``requests.parquet`` back as records, equal to those of the JSON lines."""
    return [_record(row) for row in read_table(folder).to_pylist(maps_as_pydicts="strict")]


def _row(record: RequestRecord) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(record)
    row["event_kinds"] = [{"kind": kind, "count": count} for kind, count in record.event_kinds]
    return row


def _record(row: dict[str, Any]) -> RequestRecord:
    row["event_kinds"] = [(run["kind"], run["count"]) for run in row["event_kinds"]]
    return msgspec.convert(row, RequestRecord)


def main(arguments: list[str]) -> int:
    """Pack one run folder; 2 and one line on stderr if that cannot be done."""
    if len(arguments) != 1:
        print("usage: python -m loadtest.parquet RUN_DIR", file=sys.stderr)
        return 2
    try:
        write(Path(arguments[0]))
    except (BadInputError, OSError) as error:
        print(f"{PARQUET_FILE}: {folded(str(error))}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
