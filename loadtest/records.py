"""What a run leaves on disk: one record per request, one line each, and run.json beside them.

This module is the file format; nothing else writes or parses these files (``loadtest.parquet`` packs the same
records into columns). Rules for whoever edits it:

1. An instant is an ``int`` in nanoseconds since the run's start on the monotonic clock.
2. Only what was observed is stored. Lag, TTFT, gaps, TPOT, OTPS and E2E are derived by the reader.
3. A request that failed is a record like any other. A tier asked for and a tier echoed are two fields.
4. A changed meaning is a new ``SCHEMA_VERSION``; a reader refuses versions it does not know.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from loadtest.plan import Plan, Target
from loadtest.unreadable import UNREADABLE
from tierscope import wholefile
from tierscope.errors import BadInputError

SCHEMA_VERSION = 1
RUN_FILE = "run.json"
PARQUET_FILE = "requests.parquet"
LINES_FILES = "requests-*.jsonl"

Outcome = Literal[
    "ok",
    "http_error",  # a status that is no success (a redirect is not followed) and none of the next two
    "rate_limited",  # 429
    "overloaded",  # 529, or 503
    "stream_error",  # an error event inside a 200 stream, or damage in it
    "truncated",  # the stream ended without its terminal event
    "no_output",  # it ended well and brought no token
    "timeout",
    "connect_error",
    "cancelled",  # by us: the run ended
]
OUTCOMES: tuple[Outcome, ...] = (
    "ok", "http_error", "rate_limited", "overloaded", "stream_error",
    "truncated", "no_output", "timeout", "connect_error", "cancelled",
)  # fmt: skip
EventKind = Literal["text", "reasoning", "tool"]
StampSource = Literal["kernel", "user", "virtual"]
CountingSource = Literal["measured", "stated", "tokenizer", "assumed"]


class RequestRecord(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One HTTP attempt, as it was seen. Instants are ns since the run's start; None: did not happen."""

    index: int
    """Position in the plan's sequence of requests; unique within a run."""
    stage: str
    requested_tier: str
    model: str
    prompt_class_tokens: int
    """The prompt length that was aimed at; ``prompt_tokens`` is what the server counted."""
    max_tokens: int
    scheduled_ns: int
    """When the request should have left. A late generator shows as ``sent_ns - scheduled_ns``."""
    outcome: Outcome
    stamp_source: StampSource
    ended_ns: int
    warmup: bool = False
    session: str | None = None
    """The conversation this request belongs to."""
    turn: int = 0
    """Its place in the conversation, 0 for the first."""
    connected_ns: int | None = None
    """When a new connection was ready; None when one was reused (or none was made)."""
    sent_ns: int | None = None
    """When the last byte of the request left, by the kernel; else when it was handed to it."""
    headers_ns: int | None = None
    first_text_ns: int | None = None
    event_ns: list[int] = []
    """Arrival of each event that carried output (text, reasoning or tool call), in order."""
    event_kinds: list[tuple[EventKind, int]] = []
    """Run lengths over ``event_ns``: [("reasoning", 12), ("text", 88)]."""
    event_tokens: list[int] | None = None
    """Tokens each event brought, where the server tells; same length as ``event_ns``."""
    coalesced_events: int = 0
    """Events that came in one read with an earlier one, so that their stamp is only an upper bound."""
    streamed: bool = True
    """False if the answer came as one document: no token has an instant, so ``event_ns`` is empty and neither
    TTFT nor a speed is defined. The answer is there at ``ended_ns``."""
    status: int | None = None
    """HTTP status, only if a server sent one."""
    detail: str = ""
    """One line on a failure: error type and message, which timeout, errno."""
    finish_reason: str | None = None
    echoed_tier: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    tokens_source: Literal["usage", "events"] | None = None
    """Where ``output_tokens`` comes from. ``events`` is an estimate: an event may carry several tokens."""
    request_id: str | None = None
    retry_after_s: float | None = None
    rate_limit_headers: dict[str, str] = {}


class ClientHealth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the generator itself fared: whether its numbers can be believed."""

    cpu_s: float
    """CPU seconds of the load process (user + system) over the run."""
    wall_s: float
    worst_lag_s: float
    """Largest ``sent - scheduled`` of an open-loop request, 0 without any."""
    connections_opened: int
    stamp_source: StampSource
    stamp_note: str = ""
    """Why kernel stamps were not used, when they were not."""
    cpu_max_ratio: float | None = None
    """Largest share of one core that a load process used within a second of the run."""
    hub_late_max_s: float | None = None
    """Longest that an event loop came late to something that was due."""
    clock_stepped_s: float = 0.0
    """By how much the wall clock, which the kernel stamps with, was set while the run lasted, in all."""
    lag_p99_s: float | None = None
    """99 of 100 open-loop requests left no later (within a bucket of 9 %); None without any."""
    hub_late_p99_s: float | None = None
    """99 of 100 beats, ten a second, of the event loop were no later (within 9 %). Kernel stamps do not care;
    user-space stamps, think times and the sending of requests do."""
    coalesced_ratio: float | None = None
    """Share of all events that came in one read with an earlier one."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One of several processes that sent a run's requests."""

    name: str
    """As in the name of its file, ``requests-NAME.jsonl``."""
    requests: int
    """How many of its records are there."""
    cpu_s: float
    """CPU seconds of its process over the run."""
    cpu_max_ratio: float | None = None
    """CPU time per wall time in its busiest second."""
    lost: str = ""
    """Why the run went on without it, or why records of it are missing; empty if all went well."""
    clock_offset_ns: int = 0
    """How far its monotonic clock was ahead of the master's, by which its instants were moved; 0 on one
    machine, where the two are one clock."""
    clock_error_ns: int = 0
    """The most by which its instants can lie beside the master's axis: half of the quickest round trip, and
    how far the clocks drifted apart while the run lasted. Durations within one record do not suffer."""


class PromptCounting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How prompts were made so long as was aimed at: tokens = overhead_tokens + tokens_per_word · words."""

    tokens_per_word: float
    overhead_tokens: float
    source: CountingSource
    """Measured before the first stage, stated by the plan, counted by a tokenizer (both numbers are then of
    no account), or assumed because the server told no usage."""
    note: str = ""
    achieved_error_p50_ratio: float | None = None
    """Median of abs(prompt_tokens / aimed − 1) over the run's requests; None if the server counted none."""
    achieved_error_max_ratio: float | None = None


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """run.json: what was run, against whom, and how it ended."""

    schema_version: int
    run_id: str
    tierscope_version: str
    target: Target
    plan: Plan
    started_unix_s: float
    """Wall clock at the run's zero; only for people and for joining with a Prometheus server."""
    simulated: bool = False
    status: Literal["running", "complete", "partial"] = "running"
    status_detail: str = ""
    ended_ns: int | None = None
    client: ClientHealth | None = None
    environment: dict[str, str] = {}
    """Python, kernel, CPU count, package versions: what is needed to compare two runs."""
    workers: list[WorkerInfo] = []
    """The processes that sent, where there were several."""
    prompt_counting: PromptCounting | None = None
    """None where prompts are not made but read."""
    prompt_cautions: list[str] = []
    """What else to know of the prompts, a sentence each: a file's that were used again, rows left out."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder read back. ``notes`` says, a sentence each, what could not be read."""

    info: RunInfo
    records: list[RequestRecord]
    notes: list[str]


def encode_line(record: RequestRecord) -> bytes:
    """Encode a record as one line of JSON, newline included."""
    return _ENCODER.encode(record) + b"\n"


def decode_line(line: bytes) -> RequestRecord | None:
    """Decode what ``encode_line`` made; None if it is no record."""
    try:
        return _DECODER.decode(line)
    except UNREADABLE:
        return None


def decode_lines(lines: bytes) -> list[RequestRecord]:
    """Decode whole lines of JSON. Raises msgspec.DecodeError if one of them is no record."""
    return _DECODER.decode_lines(lines)


class RecordWriter:
    """Appends records to ``requests-<worker>.jsonl``; what was flushed survives any later crash.

    Not thread-safe. ``append`` only buffers; ``flush`` writes, and raises OSError (a full disk, for one) with
    what could not be written still in the buffer.
    """

    def __init__(self, folder: Path, worker: str = "0") -> None:
        self.path = folder / f"requests-{worker}.jsonl"
        self._file: BinaryIO = self.path.open("ab", buffering=0)
        self._pending = bytearray()

    def append(self, record: RequestRecord) -> None:
        """Buffer one record."""
        self._pending += encode_line(record)

    def append_lines(self, lines: bytes) -> None:
        """Buffer records that are lines already."""
        self._pending += lines

    def flush(self) -> None:
        """Write all buffered records."""
        while self._pending:
            written = self._file.write(self._pending)
            del self._pending[:written]

    def close(self) -> None:
        """Flush and close; the file is closed even if the flush fails."""
        try:
            self.flush()
        finally:
            self._file.close()


def write_info(folder: Path, info: RunInfo) -> None:
    """Write run.json so that a reader sees the old or the new one, never half of it, also after OSError."""
    wholefile.write(folder / RUN_FILE, msgspec.json.format(_ENCODER.encode(info), indent=2) + b"\n")


def read_info(folder: Path) -> RunInfo:
    """Read run.json of a run folder. Raises BadInputError in one line if it is none or of another version."""
    path = folder / RUN_FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{folder}: is not a run folder: {RUN_FILE}: {error.strerror}") from error
    try:
        version = msgspec.json.decode(data, type=_Versioned).schema_version
    except UNREADABLE as error:
        raise BadInputError(f"{path}: {error}") from error
    if version != SCHEMA_VERSION:
        raise BadInputError(
            f"{path}: schema_version: {version} is not known; this tierscope reads {SCHEMA_VERSION}"
        )
    try:
        return msgspec.json.decode(data, type=RunInfo)
    except UNREADABLE as error:
        raise BadInputError(f"{path}: {error}") from error


def read_run(folder: Path) -> Run:
    """Read a whole run folder from its JSON lines.

    A last line cut short (a crash, a full disk) loses that line only and is said in ``notes``; so is any line
    that is not a record. Records come sorted by index; one that is there twice is kept once, and said.
    """
    info = read_info(folder)
    notes: list[str] = []
    by_index: dict[int, RequestRecord] = {}
    for path in sorted(folder.glob(LINES_FILES)):
        try:
            for record in _read_lines(path, notes):
                if record.index in by_index:
                    notes.append(f"{path.name}: request {record.index} is there twice; the first one is kept")
                else:
                    by_index[record.index] = record
        except OSError as error:
            raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    if info.status == "running":
        notes.append(
            f"{RUN_FILE}: the run did not end in order; what was recorded is complete up to its last flush"
        )
    return Run(info, [by_index[index] for index in sorted(by_index)], notes)


def write_run(folder: Path, info: RunInfo, records: Iterable[RequestRecord]) -> None:
    """Write a whole run folder at once, from records that are all there already."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = RecordWriter(folder)
    try:
        for record in records:
            writer.append(record)
    finally:
        writer.close()
    write_info(folder, info)


def _read_lines(path: Path, notes: list[str]) -> Iterator[RequestRecord]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                notes.append(f"{path.name}: line {number} is cut short and left out")
                return
            try:
                yield _DECODER.decode(line)
            except UNREADABLE as error:
                notes.append(f"{path.name}: line {number} is not a record and left out: {error}")


class _Versioned(msgspec.Struct):
    schema_version: int


def _encode_hook(value: Any) -> Any:  # pragma: no cover - nothing of ours needs it; a clear error if it does
    raise TypeError(f"{type(value).__name__} cannot be part of a record")


_ENCODER = msgspec.json.Encoder(enc_hook=_encode_hook)
_DECODER = msgspec.json.Decoder(RequestRecord)
