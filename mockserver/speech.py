"""What an answer says, token by token: runs of reasoning, text or a tool call's arguments. Pure.

Every API renders the same runs, so that an answer says the same in all of them.
"""

from dataclasses import dataclass
from typing import Literal

import msgspec

from mockserver import json_frame, text
from mockserver.ask import Answer

Kind = Literal["reasoning", "text", "tool"]


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens of one kind that follow each other."""

    kind: Kind
    pieces: list[bytes]
    """What each token adds, as it stands inside a JSON string. Joined they are the whole text. A
    token adds nothing where it belongs to the stop sequence that was met."""

    @property
    def said(self) -> str:
        """The whole text of the run."""
        decoded: str = msgspec.json.decode(b'"%b"' % b"".join(self.pieces))
        return decoded


def runs(answer: Answer) -> tuple[Run, ...]:
    """The runs of an answer, none of them empty: reasoning, if any, then text or a call's arguments."""
    thought = answer.reasoning_tokens
    rest = answer.output_tokens - thought
    found = []
    if thought:
        found.append(Run("reasoning", _words(answer.key, 0, thought)))
    if rest:
        pieces = _words(answer.key, thought, rest)
        if answer.tool is not None:
            found.append(Run("tool", _framed(pieces, answer.frame or json_frame.ANY)))
        elif answer.frame is not None:
            found.append(Run("text", _framed(pieces, answer.frame)))
        else:
            found.append(Run("text", _cut(pieces, answer.stop_sequence)))
    return tuple(found)


def whole_pieces(run: Run) -> int:
    """How many tokens of a run add something to it; those of a stop sequence, at its end, do not."""
    return next((place for place, piece in enumerate(run.pieces) if not piece), len(run.pieces))


def said(answer: Answer) -> str:
    """All that an answer says, reasoning included, with a space between runs; its words are its tokens."""
    return " ".join(run.said for run in runs(answer))


def _words(key: int, start: int, count: int) -> list[bytes]:
    pieces = text.spaced(key, start, count)
    pieces[0] = pieces[0][1:]
    return pieces


def _framed(pieces: list[bytes], frame: json_frame.Frame) -> list[bytes]:
    """JSON in so many pieces, with the words in it if it has a place for them and there are several."""
    before, after = (msgspec.json.encode(part)[1:-1] for part in frame)
    if len(pieces) == 1:
        return [before + after]
    if not after:
        return [before] + [b" "] * (len(pieces) - 1)
    return [before + pieces[0], *pieces[1:-1], pieces[-1] + after]


def _cut(pieces: list[bytes], stop_sequence: str | None) -> list[bytes]:
    """Leave out what comes from the stop sequence on; the tokens stay, and add nothing."""
    if stop_sequence is None:
        return pieces
    left = b"".join(pieces).find(stop_sequence.encode())
    cut = []
    for piece in pieces:
        cut.append(piece[: max(0, left)])
        left -= len(piece)
    return cut
