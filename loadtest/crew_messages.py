"""What a master and its workers say to each other. Pure: messages in, bytes out, and back.

Rules for whoever edits this file:

1. Whatever is about one run carries its ``run`` (the run's id), so that a late word disturbs no other run.
2. No key is ever sent: each worker reads its own environment.
3. Instants are ns since the run's start on the master's clock, unless the name says ``monotonic``.
"""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec

from loadtest.fitness import Fitness
from loadtest.part import Part
from loadtest.records import StampSource
from loadtest.run_config import RunConfig
from loadtest.workload import Counting

# From a worker


class Hello(msgspec.Struct, frozen=True, tag=True):
    """I am here; said about once a second while no run is under way."""

    version: str
    """Of tierscope; a crew has one."""
    pid: int
    boot_id: str
    """Of the machine since it was started; empty where there is none."""


class Ping(msgspec.Struct, frozen=True, tag=True):
    """Asks what time it is with the master."""

    sent_monotonic_ns: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """I reach the server; ``offset_ns`` lies my monotonic clock ahead of yours, give or take the error."""

    run: str
    offset_ns: int
    offset_error_ns: int
    stamp_source: StampSource
    stamp_note: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """I cannot take part, in one line."""

    run: str
    why: str
    bad_input: bool


class Parcel(msgspec.Struct, frozen=True):
    """What has happened to a worker's requests in a while."""

    started: list[tuple[str, str]]
    """Stage and tier of each request that left."""
    lines: bytes
    """The records of those that ended, as lines of JSON."""
    body_bytes: list[int]
    """Of each record's response."""


class Batch(msgspec.Struct, frozen=True, tag=True):
    """What has happened since the last batch; also a sign of life, about once a second."""

    run: str
    parcel: Parcel
    cpu_s: float
    """Of this process since the run began."""
    fitness: Fitness


class Wish(msgspec.Struct, frozen=True, tag=True):
    """Nothing more should leave, for this reason."""

    run: str
    why: str


class Over(msgspec.Struct, frozen=True, tag=True):
    """My part of the stage is over; ``next_index`` lies after all I used."""

    run: str
    stage: int
    next_index: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """My last word on the run: how many requests I started, how many records I sent, how I fared."""

    run: str
    started: int
    recorded: int
    cpu_s: float
    connections_opened: int
    stepped_ns: int
    offset: tuple[int, int] | None
    """The clocks' offset and its error again, if they could be compared."""
    left: str = ""
    """Why I leave before the end, if I do."""
    prompt_cautions: list[str] = []
    """What to know of the prompts, a sentence each."""


Report = Hello | Ping | Ready | Refused | Batch | Wish | Over | Done

# From the master


class Pong(msgspec.Struct, frozen=True, tag=True):
    """The answer to a ``Ping``."""

    sent_monotonic_ns: int
    master_monotonic_ns: int


class Begin(msgspec.Struct, frozen=True, tag=True):
    """A run begins: get ready and answer ``Ready`` or ``Refused``."""

    run: str
    config: bytes
    """See ``pack_config``."""
    boot_id: str
    zero_monotonic_ns: int
    """The run's start on the master's monotonic clock."""
    number: int
    of: int
    counting: Counting | None


class Open(msgspec.Struct, frozen=True, tag=True):
    """A stage begins at ``starts_ns``; answer ``Over`` once your part of it has ended."""

    run: str
    stage: int
    part: Part
    first_index: int
    starts_ns: int


class Conclude(msgspec.Struct, frozen=True, tag=True):
    """Let nothing more leave; what is in flight goes on."""

    run: str


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Let nothing more leave and cancel what is in flight."""

    run: str


class Finish(msgspec.Struct, frozen=True, tag=True):
    """The run is over: stop, send what is left, answer ``Done``."""

    run: str


Order = Pong | Begin | Open | Conclude | Stop | Finish

_ENCODER = msgspec.msgpack.Encoder()
_REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)
_ORDERS: msgspec.msgpack.Decoder[Order] = msgspec.msgpack.Decoder(Order)


def encode(message: Report | Order) -> bytes:
    """Make bytes of a message."""
    return _ENCODER.encode(message)


def decode_report(data: bytes) -> Report:
    """Read what a worker said. Raises msgspec.DecodeError (another version speaks another language)."""
    return _REPORTS.decode(data)


def decode_order(data: bytes) -> Order:
    """Read what the master said. Raises msgspec.DecodeError."""
    return _ORDERS.decode(data)


def pack_config(config: RunConfig) -> bytes:
    """Make bytes of what is run, without its folder, which is the master's, and without its key."""
    sent = dataclasses.replace(config, folder=Path(), key="")
    return msgspec.msgpack.encode(sent, enc_hook=_path_out)


def unpack_config(data: bytes) -> RunConfig:
    """Read what is run; its key is this machine's affair."""
    return msgspec.msgpack.decode(data, type=RunConfig, dec_hook=_path_in)


def _path_out(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be sent to a worker")


def _path_in(type_: type, value: Any) -> Any:
    if type_ is Path:
        return Path(value)
    raise TypeError(f"{type_.__name__} cannot come from a master")
