"""One row a request, and every event's arrival in one flat array: what all of the analysis works on.

Instants in the table are float seconds since the run's start, durations float seconds, and NaN stands for
"did not happen" or "cannot be said"; none of it reaches a report, which holds None instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from analysis import ragged
from analysis.ragged import Bools, Floats, Ints
from loadtest.records import RequestRecord

TEXT = (
    "stage", "requested_tier", "model", "outcome", "stamp_source", "echoed_tier", "tokens_source", "detail",
)  # fmt: skip
NUMBERS = (
    "index", "prompt_class_tokens", "max_tokens", "coalesced_events", "status", "prompt_tokens",
    "cached_tokens", "output_tokens",
)  # fmt: skip
INSTANTS = ("scheduled_ns", "connected_ns", "sent_ns", "headers_ns", "first_text_ns", "ended_ns")
COLUMNS = [*TEXT, *NUMBERS, *INSTANTS, "warmup", "event_ns", "event_tokens"]
"""Fields of a record that the table holds."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one or several runs.

    ``frame`` has the columns run (number of the folder), the record's own fields, instants as ``*_at_s``, and
    what ``latency`` and ``steps`` add. ``event_ns[offsets[i]:offsets[i + 1]]`` are the arrivals of row i;
    ``event_tokens`` holds the tokens each brought, NaN where the server did not tell.
    """

    frame: pd.DataFrame
    event_ns: Ints
    event_tokens: Floats
    offsets: Ints

    def __len__(self) -> int:
        return len(self.frame)

    def column(self, name: str) -> Floats:
        """A numeric column as floats."""
        return self.frame[name].to_numpy(dtype=np.float64)

    def text(self, name: str) -> npt.NDArray[np.object_]:
        """A text column as Python strings, "" for none."""
        return self.frame[name].to_numpy(dtype=object)

    def text_is(self, name: str, value: str) -> Bools:
        """Where a text column has this value."""
        return np.asarray(self.frame[name].to_numpy(dtype=object) == value, dtype=np.bool_)

    def where(self, keep: Bools) -> "Requests":
        """Only the rows where ``keep`` is true."""
        values, offsets = ragged.take(self.offsets, keep)
        frame = self.frame[keep].reset_index(drop=True)
        return Requests(frame, self.event_ns[values], self.event_tokens[values], offsets)

    def with_ordered_events(self) -> tuple["Requests", int]:
        """The same rows with no arrival before its predecessor, and how many had one: a clock jumped."""
        back = np.concatenate(([False], np.diff(self.event_ns) < 0))
        back[self.offsets[:-1][np.diff(self.offsets) > 0]] = False
        rows = np.unique(np.searchsorted(self.offsets, np.flatnonzero(back), side="right") - 1)
        if not rows.size:
            return self, 0
        event_ns = self.event_ns.copy()
        for row in rows.tolist():
            mine = slice(self.offsets[row], self.offsets[row + 1])
            event_ns[mine] = np.maximum.accumulate(event_ns[mine])
        return Requests(self.frame, event_ns, self.event_tokens, self.offsets), rows.size

    def in_order(self, order: Ints) -> "Requests":
        """The rows in the order given: a permutation of their numbers."""
        counts = np.diff(self.offsets)[order]
        offsets = ragged.offsets_of(counts)
        values = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][order] - offsets[:-1], counts)
        frame = self.frame.iloc[order].reset_index(drop=True)
        return Requests(frame, self.event_ns[values], self.event_tokens[values], offsets)


def from_records(records: Sequence[RequestRecord], run: int = 0) -> Requests:
    """The table of a run's records; ``run`` is the number of its folder."""
    columns: dict[str, Any] = {"run": np.full(len(records), run)}
    for name in TEXT:
        columns[name] = np.array([getattr(record, name) or "" for record in records], dtype=object)
    for name in (*NUMBERS, *INSTANTS):
        columns[name] = np.array(
            [np.nan if (value := getattr(record, name)) is None else value for record in records],
            dtype=np.float64,
        )
    columns["warmup"] = np.array([record.warmup for record in records], dtype=np.bool_)
    offsets = ragged.offsets_of(np.array([len(record.event_ns) for record in records], dtype=np.int64))
    event_ns = np.fromiter(
        chain.from_iterable(record.event_ns for record in records), dtype=np.int64, count=int(offsets[-1])
    )
    event_tokens = np.full(event_ns.size, np.nan)
    for place, record in enumerate(records):
        if record.event_tokens is not None and len(record.event_tokens) == len(record.event_ns):
            event_tokens[offsets[place] : offsets[place + 1]] = record.event_tokens
    return Requests(_frame(columns), event_ns, event_tokens, offsets)


def from_arrow(packed: pa.Table, run: int = 0) -> Requests:
    """The table of a run's ``requests.parquet``, without a Python object per number."""
    columns: dict[str, Any] = {"run": np.full(packed.num_rows, run)}
    for name in TEXT:
        columns[name] = packed.column(name).fill_null("").to_numpy()
    for name in (*NUMBERS, *INSTANTS):
        columns[name] = packed.column(name).to_numpy().astype(np.float64)
    columns["warmup"] = packed.column("warmup").to_numpy().astype(np.bool_)
    event_ns, offsets = _lists(packed, "event_ns")
    told, told_offsets = _lists(packed, "event_tokens")
    event_tokens = np.full(event_ns.size, np.nan)
    whole = np.diff(told_offsets) == np.diff(offsets)
    event_tokens[ragged.take(offsets, whole)[0]] = told[ragged.take(told_offsets, whole)[0]]
    return Requests(_frame(columns), event_ns, event_tokens, offsets)


def concatenate(parts: Sequence[Requests]) -> Requests:
    """Several runs' requests in one table, in the order given."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Requests(
        pd.concat([part.frame for part in parts], ignore_index=True),
        np.concatenate([part.event_ns for part in parts]),
        np.concatenate([part.event_tokens for part in parts]),
        ragged.offsets_of(counts),
    )


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    for name in INSTANTS:
        columns[name.removesuffix("_ns") + "_at_s"] = columns.pop(name) / 1e9
    return pd.DataFrame(columns)


def _lists(packed: pa.Table, name: str) -> tuple[Ints, Ints]:
    """Flat values and offsets of a column of lists; a null list is an empty one."""
    column = packed.column(name)
    lengths = np.concatenate(
        [np.empty(0), *(chunk.value_lengths().fill_null(0).to_numpy() for chunk in column.chunks)]
    )
    values = [chunk.flatten().to_numpy() for chunk in column.chunks]
    flat = np.concatenate([np.empty(0, dtype=np.int64), *values]).astype(np.int64)
    return flat, ragged.offsets_of(lengths.astype(np.int64))
