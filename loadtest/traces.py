"""Published traces of LLM traffic as rows of instants, lengths and shared blocks. Reads files, else pure.

| format | file | instants | blocks |
|---|---|---|---|
| azure | CSV: TIMESTAMP, ContextTokens, GeneratedTokens (Azure Public Dataset, 2023, 2024) | dates | none |
| mooncake | JSONL: timestamp, input_length, output_length, hash_ids (Mooncake, 2024) | ms | 512 tokens |
| qwen | JSONL: the same names, chat_id and more (Qwen-Bailian, 2025) | s | 16 tokens |
| burstgpt | CSV: Timestamp, Request tokens, Response tokens, … (BurstGPT, 2024) | s | none |

Rules for whoever edits this file:

1. A row that is damaged is an error with its line; a row without tokens is a request that failed there, and
   is left out and counted.
2. Rows are sorted by instant, those of one instant in the file's order, and the first one is at 0.
"""

import csv
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from loadtest.plan_workload import Trace
from loadtest.unreadable import UNREADABLE
from tierscope.errors import BadInputError

BLOCK_TOKENS = {"mooncake": 512, "qwen": 16}
"""Tokens that one hash id stands for, as published."""

_MOST_TOKENS = 10_000_000
_LATEST_S = 1e9
_Length = Annotated[int, Meta(ge=0, le=_MOST_TOKENS)]
_DATE = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TraceRows:
    """A trace in memory: 24 bytes a row, and 8 a block."""

    name: str
    at_ns: NDArray[np.int64]
    """From the first row's instant on, never falling."""
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    block_tokens: int | None
    """None if the format knows no blocks."""
    left_out: int
    """Rows without tokens: requests that failed when the trace was taken."""
    ids: NDArray[np.int64]
    id_starts: NDArray[np.int64]
    """Where each row's ids begin in ``ids``; one more than there are rows."""
    greatest_id: int
    """-1 if there is none."""

    def __len__(self) -> int:
        return len(self.at_ns)

    @property
    def has_blocks(self) -> bool:
        """Whether any row tells its blocks."""
        return len(self.ids) > 0

    def block_ids(self, row: int) -> NDArray[np.int64]:
        """Ids of a row's blocks, in order."""
        return self.ids[self.id_starts[row] : self.id_starts[row + 1]]


class _Row(NamedTuple):
    at_ns: int
    prompt_tokens: int
    output_tokens: int
    ids: list[int]


def load(trace: Trace, *, folder: Path) -> TraceRows:
    """Read a trace, found from ``folder``. Raises BadInputError, in one line, for what is wrong with it."""
    path = folder / trace.file
    block_tokens = trace.block_tokens or BLOCK_TOKENS.get(trace.format)
    figures, ids, counts, left_out = array("q"), array("q"), array("q"), 0
    try:
        for line, row in _rows(path, trace.format):
            if not row.prompt_tokens or not row.output_tokens:
                left_out += 1
                continue
            if len(counts) == trace.limit:
                break
            _check_blocks(row, block_tokens, where=f"{path}:{line}")
            figures.extend(row[:3])
            ids.extend(row.ids)
            counts.append(len(row.ids))
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    if not counts:
        raise BadInputError(f"{path}: holds no request that was answered")
    return _sorted(str(path), figures, ids, counts, block_tokens, left_out)


def _sorted(
    name: str,
    figures: "array[int]",
    ids: "array[int]",
    counts: "array[int]",
    block_tokens: int | None,
    left_out: int,
) -> TraceRows:
    table = np.frombuffer(figures, dtype=np.int64).reshape(-1, 3)
    all_ids, lengths = np.array(ids, dtype=np.int64), np.array(counts, dtype=np.int64)
    order = np.argsort(table[:, 0], kind="stable")
    if (np.diff(order) < 0).any():
        ends = np.cumsum(lengths)
        pieces = [all_ids[ends[row] - lengths[row] : ends[row]] for row in order]
        all_ids, lengths, table = np.concatenate(pieces), lengths[order], table[order]
    return TraceRows(
        name=name,
        at_ns=table[:, 0] - table[0, 0],
        prompt_tokens=table[:, 1],
        output_tokens=table[:, 2],
        block_tokens=block_tokens,
        left_out=left_out,
        ids=all_ids,
        id_starts=np.concatenate([[0], np.cumsum(lengths)]),
        greatest_id=int(all_ids.max(initial=-1)),
    )


def _check_blocks(row: _Row, block_tokens: int | None, *, where: str) -> None:
    """Refuse more blocks than the prompt has room for: then the ids are of another size, or no prefix's."""
    most = -(-row.prompt_tokens // block_tokens) if block_tokens else 0
    if len(row.ids) > most + 1:  # one more: a block that the template or the answer began
        raise BadInputError(
            f"{where}: {len(row.ids)} hash_ids of {block_tokens} tokens do not fit an input_length of "
            f"{row.prompt_tokens}; is block_tokens right?"
        )
    del row.ids[most:]


def _rows(path: Path, kind: str) -> Iterator[tuple[int, _Row]]:
    """Each row and its line. Raises BadInputError for one that cannot be read."""
    if kind in BLOCK_TOKENS:
        yield from _json_rows(path, 1e6 if kind == "mooncake" else 1e9)
    elif kind == "azure":
        yield from _csv_rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), dated=True)
    else:
        yield from _csv_rows(path, ("Timestamp", "Request tokens", "Response tokens"), dated=False)


class _Line(msgspec.Struct):
    """One line of Mooncake's or Qwen-Bailian's; histories are in the ids, so chats need not be followed."""

    timestamp: Annotated[float, Meta(ge=0, le=1e12)]
    input_length: _Length
    output_length: _Length
    hash_ids: list[Annotated[int, Meta(ge=0, le=2**62)]] = []


def _json_rows(path: Path, unit_ns: float) -> Iterator[tuple[int, _Row]]:
    decoder = msgspec.json.Decoder(_Line)
    with path.open("rb") as file:
        for number, data in enumerate(file, start=1):
            if not data.strip():
                continue
            try:
                line = decoder.decode(data)
            except UNREADABLE as error:
                raise BadInputError(f"{path}:{number}: {error}") from error
            if line.timestamp * unit_ns > _LATEST_S * 1e9:
                raise BadInputError(f"{path}:{number}: timestamp: {line.timestamp:g} is later than any trace")
            at_ns = round(line.timestamp * unit_ns)
            yield number, _Row(at_ns, line.input_length, line.output_length, line.hash_ids)


def _csv_rows(path: Path, names: tuple[str, str, str], *, dated: bool) -> Iterator[tuple[int, _Row]]:
    with path.open("rb") as file:
        reader = csv.reader(_decoded(path, file))
        try:
            header = next(reader, [])
            if missing := [name for name in names if name not in header]:
                raise BadInputError(f"{path}:1: has no column {', '.join(missing)}")
            places = [header.index(name) for name in names]
            for cells in reader:
                if cells:
                    where = f"{path}:{reader.line_num}"
                    yield reader.line_num, _csv_row(cells, places, names, dated=dated, where=where)
        except csv.Error as error:
            raise BadInputError(f"{path}:{reader.line_num}: is no CSV: {error}") from error


def _decoded(path: Path, file: Iterable[bytes]) -> Iterator[str]:
    """Lines as text, so that one that is none is known by its number."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadInputError(f"{path}:{number}: is not UTF-8 text") from error


def _csv_row(
    cells: list[str], places: list[int], names: tuple[str, str, str], *, dated: bool, where: str
) -> _Row:
    try:
        time, *lengths = (cells[place].strip() for place in places)
    except IndexError as error:
        raise BadInputError(f"{where}: has {len(cells)} columns; the header has more") from error
    at_ns = _date_ns(time) if dated else _seconds_ns(time)
    if at_ns is None:
        raise BadInputError(f"{where}: {names[0]}: {time[:40]!r} is no {'date' if dated else 'time in s'}")
    for name, text in zip(names[1:], lengths, strict=True):
        if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= _MOST_TOKENS):
            raise BadInputError(
                f"{where}: {name}: {text[:40]!r} is not allowed; expected a whole number of tokens "
                f"up to {_MOST_TOKENS}"
            )
    return _Row(at_ns, int(lengths[0]), int(lengths[1]), [])


def _date_ns(text: str) -> int | None:
    """A date in UTC as ns since 1970, to its last digit (Azure writes seven)."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(whole.timestamp()) * 1_000_000_000 + int((match[2] or "0").ljust(9, "0"))


def _seconds_ns(text: str) -> int | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return round(seconds * 1e9) if 0 <= seconds <= _LATEST_S else None
