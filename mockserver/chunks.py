"""Answers in chunks, as OpenAI's chat and completions stream them, and as one body. Pure.

An event costs one concatenation: everything around its words is built once for each run of a choice. Padding
and running usage, where there are any, differ from event to event and are put behind it.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from mockserver import obfuscation, openai_errors, speech
from mockserver.ask import Answer, Placed, RefusedError, Usage
from mockserver.speech import Kind, Run
from mockserver.wire_config import Wire

DONE = b"data: [DONE]\n\n"
_MARK = "\0"
_ESCAPED_MARK = rb"\u0000"


class Shape(Protocol):
    """What differs between the APIs: names, and how a choice is told."""

    @property
    def chunk_object(self) -> str:
        """``object`` of a chunk."""

    @property
    def whole_object(self) -> str:
        """``object`` of a whole answer."""

    @property
    def id_prefix(self) -> str:
        """What the request's id follows in ``id``."""

    def role(self, index: int, answer: Answer) -> dict[str, Any] | None:
        """The choice that opens a stream and brings no token; None where there is none."""

    def delta(
        self, index: int, answer: Answer, kind: Kind, piece: str, *, first_of_run: bool, first_of_all: bool
    ) -> dict[str, Any]:
        """The choice that brings tokens. Nothing that a client chose may follow ``piece`` in it."""

    def end(self, index: int, answer: Answer) -> dict[str, Any]:
        """The choice that brings the finish reason."""

    def whole(self, index: int, answer: Answer, runs: tuple[Run, ...]) -> dict[str, Any]:
        """A whole choice."""


@dataclass(slots=True)
class _Choice:
    """How far a choice is. ``at`` counts its tokens; up to ``plain_until`` nothing but words changes."""

    answer: Answer
    runs: tuple[Run, ...]
    pieces: list[bytes]
    at: int = 0
    plain_until: int = -1
    before: bytes = b""
    after: bytes = b""
    run: int = 0
    run_from: int = 0
    frames: dict[bool, tuple[bytes, bytes]] = field(default_factory=dict)
    """What stands around the words of the run it is in: of its first event, and of the others."""


class ChunkVoice:
    """The answer to one request, in chunks (``ask.Voice``)."""

    def __init__(
        self, shape: Shape, placed: Placed, *, wire: Wire, request_id: str, created_unix_s: int
    ) -> None:
        ask = placed.ask
        self._shape, self._wire, self._ask = shape, wire, ask
        self._common: dict[str, Any] = {
            "id": shape.id_prefix + request_id,
            "created": created_unix_s,
            "model": ask.model,
        }
        if placed.echoed_service_tier is not None:
            self._common["service_tier"] = placed.echoed_service_tier
        self._padded = wire.obfuscation and ask.obfuscation
        self._running = wire.running_usage or (ask.include_usage and ask.running_usage)
        self._alike = not (self._padded or self._running)
        self._tail = b',"usage":null}\n\n' if ask.include_usage else b"}\n\n"
        self._sent_tokens = self._prompt_tokens = 0
        self._choices: list[_Choice] = []
        for answer in placed.answers:
            runs = speech.runs(answer)
            pieces = runs[0].pieces if len(runs) == 1 else [piece for run in runs for piece in run.pieces]
            self._choices.append(_Choice(answer, runs, pieces))

    def greeting(self) -> bytes:
        """Nothing: these APIs send their first chunk with the first token."""
        return b""

    def opening(self, usage: Usage) -> bytes:
        """The chunks that bring each choice's role and no token, where the server sends them."""
        self._prompt_tokens = usage.prompt_tokens
        if not self._wire.role_first:
            return b""
        roles = (self._shape.role(index, choice.answer) for index, choice in enumerate(self._choices))
        return b"".join(self._event(role) for role in roles if role is not None)

    def tokens(self, choice: int, count: int) -> bytes:
        """The event of the next tokens of a choice; one for each kind that they are of."""
        state = self._choices[choice]
        at = state.at
        end = at + count
        if end > state.plain_until:
            return self._turn(choice, state, end)
        state.at = end
        piece = state.pieces[at] if count == 1 else b"".join(state.pieces[at:end])
        if self._alike:
            return state.before + piece + state.after
        self._sent_tokens += count
        return state.before + piece + state.after + self._changing(state, at)

    def choice_end(self, choice: int) -> bytes:
        """The chunk with the finish reason."""
        return self._event(self._shape.end(choice, self._choices[choice].answer))

    def closing(self, usage: Usage, *, with_usage: bool = True, with_end: bool = True) -> bytes:
        """The chunk with usage and without choices, if it was asked for, and the end mark."""
        counted = b""
        if with_usage and self._ask.include_usage:
            chunk = {
                **self._common,
                "object": self._shape.chunk_object,
                "choices": [],
                "usage": usage_object(usage),
            }
            counted = b"data: " + msgspec.json.encode(chunk) + b"\n\n"
        return counted + (DONE if with_end else b"")

    def error(self, refusal: RefusedError) -> bytes:
        """A chunk that is an error object."""
        return b"data: " + openai_errors.refusal_body(refusal) + b"\n\n"

    def ping(self) -> bytes:
        """Nothing: these APIs have no pings."""
        return b""

    def body(self, usage: Usage) -> bytes:
        """The whole answer as one object."""
        choices = [self._shape.whole(i, one.answer, one.runs) for i, one in enumerate(self._choices)]
        whole = {
            **self._common,
            "object": self._shape.whole_object,
            "choices": choices,
            "usage": usage_object(usage),
        }
        return msgspec.json.encode(whole)

    def _turn(self, index: int, state: _Choice, end: int) -> bytes:
        """Tokens that begin a run, or go past one, or add nothing."""
        if end > len(state.pieces):
            raise ValueError(f"choice {index}: {end} tokens asked for, it has {len(state.pieces)}")
        events = []
        while state.at < end:
            run = state.runs[state.run]
            stop = min(end, state.run_from + len(run.pieces))
            events.append(self._run_event(index, state, run, stop))
            state.at = stop
            if stop == state.run_from + len(run.pieces):
                state.run, state.run_from, state.plain_until = state.run + 1, stop, -1
                state.frames.clear()
        return b"".join(events)

    def _run_event(self, index: int, state: _Choice, run: Run, stop: int) -> bytes:
        """The event of the tokens up to ``stop``, all of one run; empty if they add nothing to it."""
        at = state.at
        self._sent_tokens += stop - at
        first = at == state.run_from
        piece = b"".join(run.pieces[at - state.run_from : stop - state.run_from])
        if not piece and not first:
            return b""
        before, after = self._frame(index, state, run, first)
        if first:
            state.before, state.after = self._frame(index, state, run, False)
            if self._alike:
                state.after += self._tail
            state.plain_until = state.run_from + speech.whole_pieces(run)
        return before + piece + after + self._changing(state, at)

    def _frame(self, index: int, state: _Choice, run: Run, first: bool) -> tuple[bytes, bytes]:
        """What stands around the words of a run, up to the end of ``choices``."""
        if first not in state.frames:
            first_of_all = first and not state.run and not self._wire.role_first
            told = self._shape.delta(
                index, state.answer, run.kind, _MARK, first_of_run=first, first_of_all=first_of_all
            )
            before, after = self._open(told).rsplit(_ESCAPED_MARK, 1)
            state.frames[first] = before, after
        return state.frames[first]

    def _changing(self, state: _Choice, at: int) -> bytes:
        """The end of a chunk, which may differ from the next one's: padding, usage so far."""
        if self._alike:
            return self._tail
        padding = b""
        if self._padded:
            padding = b',"obfuscation":"' + obfuscation.padding(state.answer.key, at) + b'"'
        if not self._running:
            return padding + self._tail
        prompt, sent = self._prompt_tokens, self._sent_tokens
        return padding + b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}}\n\n' % (
            prompt,
            prompt + sent,
            sent,
        )

    def _event(self, choice: dict[str, Any]) -> bytes:
        """The event of a choice that brings no token."""
        state = self._choices[choice["index"]]
        return self._open(choice) + self._changing(state, -1 - state.at)

    def _open(self, choice: dict[str, Any]) -> bytes:
        """A chunk without what follows its choices."""
        chunk = {**self._common, "object": self._shape.chunk_object, "choices": [choice]}
        return b"data: " + msgspec.json.encode(chunk)[:-1]


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as chat and completions tell it."""
    prompt: dict[str, int] = {"cached_tokens": usage.cached_tokens}
    if usage.cache_write_tokens:  # models that do not bill for it do not tell it
        prompt["cache_write_tokens"] = usage.cache_write_tokens
    told: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
    if usage.truth:
        told["mockserver"] = dict(usage.truth)
    return told
