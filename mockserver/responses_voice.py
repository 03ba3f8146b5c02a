"""The answer to one request of OpenAI's Responses API, as events and as one body. Pure.

Items follow each other: reasoning with a summary, then a message or a call of a function. Each is added,
filled by deltas and done; events count from 0. Around a delta's number and words everything is built once.
"""

from typing import Any

import msgspec

from mockserver import obfuscation, openai_errors, speech
from mockserver.ask import Placed, RefusedError, Usage
from mockserver.speech import Run
from mockserver.wire_config import Wire

_DELTAS = {
    "reasoning": "response.reasoning_summary_text.delta",
    "text": "response.output_text.delta",
    "tool": "response.function_call_arguments.delta",
}
_ID_PREFIXES = {"reasoning": "rs_", "text": "msg_", "tool": "fc_"}
_MARK = "\0"
_ESCAPED_MARK = rb"\u0000"


class ResponsesVoice:
    """The answer to one request (``ask.Voice``); there is one choice."""

    def __init__(self, placed: Placed, *, wire: Wire, request_id: str, created_unix_s: int) -> None:
        self._placed, self._request_id, self._created_unix_s = placed, request_id, created_unix_s
        self._answer = placed.answers[0]
        self._runs = speech.runs(self._answer)
        self._pieces = [piece for run in self._runs for piece in run.pieces]
        self._padded = wire.obfuscation and placed.ask.obfuscation
        self._repeated: dict[str, Any] = msgspec.json.decode(placed.ask.repeated or b"{}")
        self._incomplete = self._answer.finish == "length"
        self._events = 0
        self._at, self._run, self._run_from, self._plain_until = 0, 0, 0, -1
        self._before = self._between = self._after = b""

    def greeting(self) -> bytes:
        """The response as it begins, before anything was computed."""
        begun = self._response("in_progress", [], None)
        return self._event("response.created", response=begun) + self._event(
            "response.in_progress", response=begun
        )

    def opening(self, usage: Usage) -> bytes:  # noqa: ARG002
        """Nothing: what comes before a token comes with it."""
        return b""

    def tokens(self, choice: int, count: int) -> bytes:
        """The delta of the next tokens; one for each item that they are of, with what begins and ends it."""
        at = self._at
        end = at + count
        if end > self._plain_until:
            return self._turn(choice, end)
        self._at = end
        number = self._events
        self._events = number + 1
        pieces = self._pieces
        piece = pieces[at] if count == 1 else b"".join(pieces[at:end])
        if self._padded:
            piece += self._padding(at)
        return self._before + b"%d" % number + self._between + piece + self._after

    def choice_end(self, choice: int) -> bytes:  # noqa: ARG002
        """What ends the last item."""
        return self._done(len(self._runs) - 1)

    def closing(self, usage: Usage, *, with_usage: bool = True, with_end: bool = True) -> bytes:
        """The whole response once more, with usage, in the event that ends the stream."""
        if not with_end:
            return b""
        status = "incomplete" if self._incomplete else "completed"
        ended = self._response(status, self._items(), usage if with_usage else None)
        return self._event(f"response.{status}", response=ended)

    def error(self, refusal: RefusedError) -> bytes:
        """The event ``error``, and the response as it failed."""
        told = openai_errors.error_object(refusal)
        failed = self._response("failed", [], None)
        code = "rate_limit_exceeded" if refusal.kind == "rate_limited" else "server_error"
        failed["error"] = {"code": code, "message": refusal.message}
        return self._event(
            "error", code=told["code"] or told["type"], message=told["message"], param=told["param"]
        ) + self._event("response.failed", response=failed)

    def ping(self) -> bytes:
        """Nothing: the API has no pings."""
        return b""

    def body(self, usage: Usage) -> bytes:
        """The whole response."""
        status = "incomplete" if self._incomplete else "completed"
        return msgspec.json.encode(self._response(status, self._items(), usage))

    def _turn(self, choice: int, end: int) -> bytes:
        """Tokens that begin an item, or go past one, or add nothing."""
        if choice or end > len(self._pieces):
            raise ValueError(f"choice {choice}: {end} tokens asked for, there is one of {len(self._pieces)}")
        events = []
        while self._at < end:
            run = self._runs[self._run]
            begin, until = self._run_from, self._run_from + len(run.pieces)
            stop = min(end, until)
            if self._at == begin:
                if self._run:
                    events.append(self._done(self._run - 1))
                events.append(self._added(self._run))
            events.append(self._delta(run, stop))
            self._at = stop
            if stop == until:
                self._run, self._run_from, self._plain_until = self._run + 1, until, -1
        return b"".join(events)

    def _delta(self, run: Run, stop: int) -> bytes:
        """The delta of the tokens up to ``stop``, all of one item; none if they add nothing to it."""
        at = self._at
        if at == self._run_from:
            self._surround(run)
        piece = b"".join(self._pieces[at:stop])
        if not piece:
            return b""
        number, self._events = self._events, self._events + 1
        if self._padded:
            piece += self._padding(at)
        return self._before + b"%d" % number + self._between + piece + self._after

    def _padding(self, at: int) -> bytes:
        """The end of the words and, as the next field, what hides their length."""
        return b'","obfuscation":"' + obfuscation.padding(self._answer.key, at)

    def _surround(self, run: Run) -> None:
        """Make what stands around number and words of the item's deltas."""
        name = _DELTAS[run.kind]
        where = self._where(self._run)
        more: dict[str, Any] = {"logprobs": []} if run.kind == "text" else {}
        told = msgspec.json.encode({**where, "delta": _MARK, **more})
        between, after = told.rsplit(_ESCAPED_MARK, 1)
        self._before = f'event: {name}\ndata: {{"type":"{name}","sequence_number":'.encode()
        self._between, self._after = b"," + between[1:], after + b"\n\n"
        self._plain_until = self._run_from + speech.whole_pieces(run)

    def _added(self, place: int) -> bytes:
        """The events that begin an item."""
        run = self._runs[place]
        added = self._event(
            "response.output_item.added", output_index=place, item=self._item(place, done=False)
        )
        if run.kind == "reasoning":
            part = {"type": "summary_text", "text": ""}
            return added + self._event(
                "response.reasoning_summary_part.added", **self._where(place), part=part
            )
        if run.kind == "text":
            return added + self._event(
                "response.content_part.added", **self._where(place), part=_text_part("")
            )
        return added

    def _done(self, place: int) -> bytes:
        """The events that end an item: its whole text, its part, itself."""
        run, where = self._runs[place], self._where(place)
        if run.kind == "reasoning":
            part = {"type": "summary_text", "text": run.said}
            events = self._event("response.reasoning_summary_text.done", **where, text=run.said)
            events += self._event("response.reasoning_summary_part.done", **where, part=part)
        elif run.kind == "text":
            events = self._event("response.output_text.done", **where, text=run.said, logprobs=[])
            events += self._event("response.content_part.done", **where, part=_text_part(run.said))
        else:
            events = self._event("response.function_call_arguments.done", **where, arguments=run.said)
        item = self._item(place, done=True)
        return events + self._event("response.output_item.done", output_index=place, item=item)

    def _where(self, place: int) -> dict[str, Any]:
        """Which item an event is of, and which part of it."""
        kind = self._runs[place].kind
        parts = {"reasoning": {"summary_index": 0}, "text": {"content_index": 0}, "tool": {}}[kind]
        return {"item_id": self._item_id(place), "output_index": place, **parts}

    def _items(self) -> list[dict[str, Any]]:
        return [self._item(place, done=True) for place in range(len(self._runs))]

    def _item(self, place: int, *, done: bool) -> dict[str, Any]:
        """An item of the output, as it begins or as it ended."""
        run = self._runs[place]
        said = run.said if done else ""
        item_id = self._item_id(place)
        if run.kind == "reasoning":
            summary = [{"type": "summary_text", "text": said}] if done else []
            return {"id": item_id, "type": "reasoning", "summary": summary}
        cut_short = self._incomplete and place == len(self._runs) - 1
        status = "in_progress" if not done else "incomplete" if cut_short else "completed"
        if run.kind == "text":
            content = [_text_part(said)] if done else []
            return {
                "id": item_id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }
        return {
            "id": item_id,
            "type": "function_call",
            "status": status,
            "call_id": f"call_{self._request_id}{place}",
            "name": self._answer.tool,
            "arguments": said,
        }

    def _item_id(self, place: int) -> str:
        return f"{_ID_PREFIXES[self._runs[place].kind]}{self._request_id}{place}"

    def _response(self, status: str, output: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
        """The response as it is. Until it has ended its tier is what was asked for."""
        told: dict[str, Any] = {
            "id": f"resp_{self._request_id}",
            "object": "response",
            "created_at": self._created_unix_s,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "model": self._placed.ask.model,
            "output": output,
            "previous_response_id": None,
            **self._repeated,
            "usage": None if usage is None else usage_object(usage),
        }
        if self._placed.echoed_service_tier is not None:
            asked = self._placed.ask.service_tier or "auto"
            told["service_tier"] = asked if status == "in_progress" else self._placed.echoed_service_tier
        return told

    def _event(self, name: str, /, **fields: object) -> bytes:
        number, self._events = self._events, self._events + 1
        told = msgspec.json.encode({"type": name, "sequence_number": number, **fields})
        return f"event: {name}\ndata: ".encode() + told + b"\n\n"


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as Responses tells it."""
    told: dict[str, Any] = {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
    if usage.truth:
        told["mockserver"] = dict(usage.truth)
    return told


def _text_part(said: str) -> dict[str, Any]:
    return {"type": "output_text", "text": said, "annotations": [], "logprobs": []}
