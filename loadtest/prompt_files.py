"""Prompts of one's own, from a JSONL file or a ShareGPT JSON file. Checked whole when opened, read as needed.

Memory holds where each prompt begins, 8 bytes each, and not the prompts. Rules for whoever edits this file:

1. A file is refused when it is opened, with its line, and never in the middle of a run.
2. Prompts keep the file's order.
3. What a prompt says is sent as it is: nothing is cut, filled up or cleaned.
"""

import mmap
import os
import tempfile
import weakref
from array import array
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from loadtest.plan_workload import Prompts
from loadtest.quantities import Tokens
from loadtest.unreadable import UNREADABLE
from tierscope.errors import BadInputError

_Text = Annotated[str, Meta(min_length=1)]


class Message(NamedTuple):
    """One message of a conversation."""

    role: str
    text: str


class FilePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What one prompt of a file asks."""

    messages: list[Message]
    output_tokens: int | None = None
    """None where the file leaves it to the plan."""
    answer_words: int | None = None
    """Length of the answer that the file holds, where it holds one."""

    @property
    def words(self) -> int:
        """Words of all messages together."""
        return sum(len(message.text.split()) for message in self.messages)


class PromptFile:
    """The prompts of a file, by number. It stays open as long as there is anybody who may read it."""

    def __init__(
        self,
        name: str,
        file: IO[bytes],
        bounds: "array[int]",
        decode: Callable[[bytes], FilePrompt],
        *,
        left_out: int = 0,
    ) -> None:
        self.name = name
        self.left_out = left_out
        """Entries of the file that ask nothing."""
        self._fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self._bounds, self._decode = bounds, decode
        self._prompt = lru_cache(maxsize=16)(self._read)  # who asks for a prompt asks for it twice

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def prompt(self, number: int) -> FilePrompt:
        """One prompt. Raises BadInputError if the file is not any more what it was when it was opened."""
        return self._prompt(number)

    def _read(self, number: int) -> FilePrompt:
        start, end = self._bounds[number : number + 2]
        try:
            return self._decode(os.pread(self._fd, end - start, start))
        except (*UNREADABLE, ValueError) as error:
            raise BadInputError(f"{self.name}: has changed since it was opened: {error}") from error


def open_prompts(prompts: Prompts, *, folder: Path, lengths_needed: bool) -> PromptFile:
    """Open a file of prompts, found from ``folder``, and look at each of them.

    ``lengths_needed``: the plan says no output length, so each prompt has to. Raises BadInputError in one
    line if the file or a prompt cannot be used.
    """
    path = folder / prompts.file
    try:
        made = _sharegpt(path) if prompts.format == "sharegpt" else _json_lines(path, lengths_needed)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    if not len(made):
        raise BadInputError(f"{path}: holds no prompt")
    return made


# JSON lines


class _Said(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: _Text


class _Line(msgspec.Struct):
    """One line; what else it holds is not ours."""

    prompt: _Text | None = None
    messages: Annotated[list[_Said], Meta(min_length=1)] | None = None
    max_tokens: Tokens | None = None
    output_tokens: Tokens | None = None


_LINES = msgspec.json.Decoder(_Line)


def _json_lines(path: Path, lengths_needed: bool) -> PromptFile:
    bounds, start = array("Q"), 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                _check(line, lengths_needed, where=f"{path}:{number}")
                bounds.append(start)
            start += len(line)
        bounds.append(start)
        return PromptFile(str(path), file, bounds, _of_line)


def _check(line: bytes, lengths_needed: bool, *, where: str) -> None:
    try:
        prompt = _of_line(line)
    except (*UNREADABLE, ValueError) as error:
        raise BadInputError(f"{where}: {error}") from error
    if lengths_needed and prompt.output_tokens is None:
        raise BadInputError(f"{where}: says no max_tokens, and the plan has no workload.output_tokens")


def _of_line(data: bytes) -> FilePrompt:
    """Read one line. Raises ValueError, beside msgspec's errors, if it does not say what to ask."""
    line = _LINES.decode(data)
    if (line.prompt is None) == (line.messages is None):
        raise ValueError("expected one of prompt and messages")
    if None not in (line.max_tokens, line.output_tokens) and line.max_tokens != line.output_tokens:
        raise ValueError("max_tokens and output_tokens differ; keep one")
    said = line.messages or [_Said("user", line.prompt or "")]
    return FilePrompt(
        messages=[Message(one.role, one.content) for one in said],
        output_tokens=line.max_tokens or line.output_tokens,
    )


# ShareGPT


class _Turn(msgspec.Struct):
    value: str
    speaker: str = msgspec.field(name="from")


class _Conversation(msgspec.Struct):
    conversations: list[_Turn]


_ASKS = ("human", "user")
_SPOOLED = msgspec.json.Decoder(FilePrompt)


def _sharegpt(path: Path) -> PromptFile:
    """Put the first question of each conversation into a nameless file.

    The JSON is one value, so it has to be read to its end; it is mapped and not copied, and what is kept of
    it is on disk.
    """
    bounds, left_out = array("Q"), 0
    with tempfile.TemporaryFile() as spool:
        for number, raw in enumerate(_entries(path), start=1):
            try:
                prompt = _question(msgspec.json.decode(raw, type=_Conversation).conversations)
            except UNREADABLE as error:
                raise BadInputError(f"{path}: conversation {number}: {error}") from error
            if prompt is None:
                left_out += 1
            else:
                bounds.append(spool.tell())
                spool.write(msgspec.json.encode(prompt))
        bounds.append(spool.tell())
        spool.flush()
        return PromptFile(str(path), spool, bounds, _SPOOLED.decode, left_out=left_out)


def _entries(path: Path) -> list[msgspec.Raw]:
    with path.open("rb") as file:
        if not path.stat().st_size:
            return []
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except UNREADABLE as error:
        raise BadInputError(f"{path}: is no JSON list of conversations: {error}") from error


def _question(turns: list[_Turn]) -> FilePrompt | None:
    """The first thing a human says, and how long the answer to it was; None if nobody asks anything."""
    for place, turn in enumerate(turns):
        if turn.speaker in _ASKS and turn.value.strip():
            after = turns[place + 1] if place + 1 < len(turns) else None
            words = len(after.value.split()) if after and after.speaker not in _ASKS else 0
            return FilePrompt(messages=[Message("user", turn.value)], answer_words=words or None)
    return None
