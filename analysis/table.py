"""One row a request, and every event's arrival in one flat array: what all of the analysis works on.

Instants in the table are float seconds since the run's start, durations float seconds, and NaN stands for
"did not happen" or "cannot be said"; none of it reaches a report, which holds None instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis import ragged
from analysis.ragged import Bools, Floats, Ints
from loadtest.records import RequestRecord

_TEXT = (
    "stage", "requested_tier", "model", "outcome", "stamp_source", "echoed_tier", "tokens_source", "detail",
)  # fmt: skip
_NUMBERS = (
    "index", "prompt_class_tokens", "max_tokens", "coalesced_events", "status", "prompt_tokens",
    "cached_tokens", "output_tokens",
)  # fmt: skip
_INSTANTS = ("scheduled_ns", "connected_ns", "sent_ns", "headers_ns", "first_text_ns", "ended_ns")


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one or several runs.

    ``frame`` columns: run (number of the folder), the record's own fields, instants as ``*_at_s``, and what
    ``with_latencies`` and ``steps`` derive. ``event_ns[offsets[i]:offsets[i + 1]]`` are the arrivals of row i;
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

    def where(self, keep: Bools) -> "Requests":
        """Only the rows where ``keep`` is true."""
        values, offsets = ragged.take(self.offsets, keep)
        frame = self.frame[keep].reset_index(drop=True)
        return Requests(frame, self.event_ns[values], self.event_tokens[values], offsets)

    def in_order(self, by: Floats) -> "Requests":
        """The rows in ascending order of ``by``."""
        order = np.argsort(by, kind="stable")
        counts = np.diff(self.offsets)[order]
        offsets = ragged.offsets_of(counts)
        values = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][order] - offsets[:-1], counts)
        frame = self.frame.iloc[order].reset_index(drop=True)
        return Requests(frame, self.event_ns[values], self.event_tokens[values], offsets)


def from_records(records: Sequence[RequestRecord], run: int = 0) -> Requests:
    """Columns from a run's records; ``run`` is the number of its folder."""
    columns: dict[str, Any] = {"run": np.full(len(records), run)}
    for name in _TEXT:
        columns[name] = np.array([getattr(record, name) or "" for record in records], dtype=object)
    for name in _NUMBERS:
        columns[name] = _floats([getattr(record, name) for record in records])
    for name in _INSTANTS:
        columns[name.removesuffix("_ns") + "_at_s"] = (
            _floats([getattr(record, name) for record in records]) / 1e9
        )
    columns["warmup"] = np.array([record.warmup for record in records], dtype=np.bool_)
    offsets = ragged.offsets_of(np.array([len(record.event_ns) for record in records], dtype=np.int64))
    total = int(offsets[-1])
    event_ns = np.fromiter((at for record in records for at in record.event_ns), dtype=np.int64, count=total)
    event_tokens = np.full(total, np.nan)
    for place, record in enumerate(records):
        if record.event_tokens is not None and len(record.event_tokens) == len(record.event_ns):
            event_tokens[offsets[place] : offsets[place + 1]] = record.event_tokens
    return Requests(pd.DataFrame(columns), event_ns, event_tokens, offsets)


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


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
