"""What tests of OpenAI's APIs share: a request handed to a dialect, its stream, how the vendor sees it."""

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
from openai import BaseModel

from mockserver.answers import answers_for
from mockserver.ask import Dialect, Placed, Usage, Voice
from mockserver.tier_config import TierConfig
from mockserver.wire_config import Wire

TIER = TierConfig(name="t", service_tiers=("default",))
REQUEST_ID = "0123456789abcdef01234567"
NATURAL_TOKENS = 20


class SpecReader:
    """Server-sent events by the letter of the specification: field, colon, one space or none, blank line."""

    def __init__(self) -> None:
        self._line, self._data, self._name = bytearray(), [""][:0], ""
        self.events: list[tuple[str, str]] = []

    def feed(self, piece: bytes) -> None:
        for byte in piece:
            if byte != ord("\n"):
                self._line.append(byte)
                continue
            self._end_line(self._line.decode("utf-8"))
            self._line.clear()

    def _end_line(self, line: str) -> None:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self._name = value
            else:
                assert name == "data"
                self._data.append(value)
        elif self._data:
            self.events.append((self._name, "\n".join(self._data)))
            self._data.clear()
            self._name = ""


def events_of(pieces: Iterable[bytes]) -> list[tuple[str, str]]:
    """Name and data of each event."""
    reader = SpecReader()
    for piece in pieces:
        reader.feed(piece)
    return reader.events


def cut_at(wire: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """The same bytes in other pieces."""
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    return (wire[a:b] for a, b in pairwise(edges))


def placed(
    dialect: Dialect, fields: dict[str, Any], *, wire: Wire | None = None, echo: str | None = "default"
) -> Placed:
    """A request as a desk would place it."""
    wire = wire or Wire()
    ask = dialect.parse(json.dumps(fields).encode(), {}, wire)
    answers = answers_for(ask, default_output_tokens=NATURAL_TOKENS, wire=wire)
    return Placed(ask=ask, tier=TIER, requested=TIER, answers=answers, echoed_service_tier=echo)


def voice(dialect: Dialect, to: Placed, wire: Wire | None = None) -> Voice:
    """The answer to a placed request."""
    return dialect.voice(to, wire=wire or Wire(), request_id=REQUEST_ID, created_unix_s=1_800_000_000)


def usage_of(to: Placed) -> Usage:
    """What a server would count at the end."""
    return Usage(
        prompt_tokens=sum(answer.prompt_tokens for answer in to.answers[:: to.ask.choices]),
        cached_tokens=1,
        output_tokens=sum(answer.output_tokens for answer in to.answers),
        reasoning_tokens=sum(answer.reasoning_tokens for answer in to.answers),
    )


def stream(dialect: Dialect, to: Placed, wire: Wire | None = None, *, gathered: int = 1) -> list[bytes]:
    """The writes of a stream: choices take turns, ``gathered`` tokens to an event."""
    speaks, usage = voice(dialect, to, wire), usage_of(to)
    writes = [speaks.greeting(), speaks.opening(usage)]
    left = {place: answer.output_tokens for place, answer in enumerate(to.answers)}
    while left:
        for place in list(left):
            count = min(gathered, left[place])
            writes.append(speaks.tokens(place, count))
            left[place] -= count
            if not left[place]:
                del left[place]
                writes.append(speaks.choice_end(place))
    return [*writes, speaks.closing(usage)]


def extras(model: BaseModel) -> set[str]:
    """Names of fields, at any depth, that the vendor's type does not have."""
    found = set(model.model_extra or {})
    for name in type(model).model_fields:
        found |= _extras_in(getattr(model, name))
    return found


def _extras_in(value: object) -> set[str]:
    if isinstance(value, BaseModel):
        return extras(value)
    if isinstance(value, list):
        return set().union(*map(_extras_in, value))
    return set()


def body(fields: dict[str, Any]) -> bytes:
    """A request's body."""
    return msgspec.json.encode(fields)
