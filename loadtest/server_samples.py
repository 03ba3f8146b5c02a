"""What a server said of itself while a run lasted: ``server.jsonl`` in the run folder. Pure.

One line a scrape, as it was read; nothing is derived before it is read back (``server_truth`` does that).
Bucket lines of histograms are in the first line, in every 60th and in the last one only: they are nine tenths
of a page, and their sums and counts are in every line.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.unreadable import UNREADABLE
from tierscope.errors import BadInputError

SERVER_FILE = "server.jsonl"
FAMILIES = ("vllm:", "sglang:", "tgi_", "trtllm_", "llamacpp:", "mockserver_")
"""How the names begin that are kept: vLLM, SGLang, TGI, TensorRT-LLM, llama.cpp, and our mock's own truth."""

Instants = NDArray[np.int64]
Values = NDArray[np.float64]


class Scrape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One look at the page. ``at_ns`` is the middle of the request on the run's clock."""

    at_ns: int
    took_s: float
    """From asking to the last byte: what is in the page was true at some moment of it."""
    samples: dict[str, dict[str, float]] = {}
    """Value by name and by labels, these as JSON with sorted keys (``{}`` if there are none)."""
    trouble: str = ""
    """Why there are no samples, in one line."""


class Row(NamedTuple):
    """One sample, as tables want it."""

    at_ns: int
    name: str
    labels: str
    value: float


def encode_line(scrape: Scrape) -> bytes:
    """Encode a scrape as one line of JSON, newline included."""
    return msgspec.json.encode(scrape) + b"\n"


def labels_key(labels: Mapping[str, str]) -> str:
    """Write labels so that equal ones are equal text."""
    return msgspec.json.encode(dict(sorted(labels.items()))).decode()


@dataclass(frozen=True, slots=True, eq=False)
class ServerSamples:
    """All scrapes of a run in order. ``notes`` says, a sentence each, what could not be read."""

    scrapes: list[Scrape]
    notes: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """Every sample of every scrape: (time, name, labels, value)."""
        for scrape in self.scrapes:
            for name, by_labels in scrape.samples.items():
                for labels, value in by_labels.items():
                    yield Row(scrape.at_ns, name, labels, value)

    def names(self) -> set[str]:
        """Names that were seen at least once."""
        return {name for scrape in self.scrapes for name in scrape.samples}

    def within(self, begin_ns: int, end_ns: int) -> "ServerSamples":
        """The scrapes from one instant to another, both included."""
        return ServerSamples([scrape for scrape in self.scrapes if begin_ns <= scrape.at_ns <= end_ns])

    def level(self, name: str, labels: Mapping[str, str] | None = None) -> tuple[Instants, Values]:
        """A gauge over time: instants, and the sum over all series that have these labels."""
        seen = [
            (scrape.at_ns, sum(found.values()))
            for scrape in self.scrapes
            if (found := matching(scrape.samples.get(name, {}), labels))
        ]
        instants = np.array([at_ns for at_ns, _ in seen], dtype=np.int64)
        return instants, np.array([value for _, value in seen], dtype=np.float64)

    def increase(self, name: str, labels: Mapping[str, str] | None = None) -> float | None:
        """How far a counter went from the first good scrape to the last, over all series with these labels.

        A series that first shows up later began at 0; a value below the one before it means that the server
        started anew, and counts from 0. None if the name was never seen or there are fewer than two scrapes.
        """
        good = [scrape for scrape in self.scrapes if not scrape.trouble]
        if len(good) < 2 or not any(matching(scrape.samples.get(name, {}), labels) for scrape in good):
            return None
        last = dict(matching(good[0].samples.get(name, {}), labels))
        total = 0.0
        for scrape in good[1:]:
            for key, value in matching(scrape.samples.get(name, {}), labels).items():
                before = last.get(key, 0.0)
                total += value - before if value >= before else value
                last[key] = value
        return total


def read(folder: Path) -> ServerSamples | None:
    """Read ``server.jsonl`` of a run folder; None if the run has none.

    A last line cut short and lines that are no scrapes are left out and said. Raises BadInputError if the
    file is there and cannot be read.
    """
    path = folder / SERVER_FILE
    if not path.exists():
        return None
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    scrapes, notes = [], []
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            notes.append(f"{path.name}: line {number} is cut short and left out")
            continue
        try:
            scrapes.append(_DECODER.decode(line))
        except UNREADABLE as error:
            notes.append(f"{path.name}: line {number} is no scrape and left out: {error}")
    return ServerSamples(sorted(scrapes, key=lambda scrape: scrape.at_ns), notes)


def matching(by_labels: Mapping[str, float], wanted: Mapping[str, str] | None) -> dict[str, float]:
    """Those series of one name that have all the labels wanted; all of them if none are."""
    if not wanted:
        return dict(by_labels)
    return {
        key: value
        for key, value in by_labels.items()
        if wanted.items() <= msgspec.json.decode(key, type=dict[str, str]).items()
    }


_DECODER = msgspec.json.Decoder(Scrape)
