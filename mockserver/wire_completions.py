"""OpenAI's completions on the wire: ``POST /v1/completions``. Pure.

The older API, which many engines still serve: prompts are texts or token ids, and there may be several.
``service_tier`` and ``ignore_eos`` are engines' own. Reasoning is text here, and so there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mockserver import openai_errors
from mockserver.ask import Answer, Ask, Dialect, Placed, RefusedError
from mockserver.chunks import ChunkVoice
from mockserver.openai_request import (
    Choices,
    Limit,
    Penalty,
    Probability,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    options,
    stops,
)
from mockserver.speech import Kind, Run
from mockserver.wire_chat import STREAM_FIELDS
from mockserver.wire_config import Wire

FIELDS = frozenset(
    {
        "model",
        "prompt",
        "best_of",
        "echo",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_tokens",
        "n",
        "presence_penalty",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "suffix",
        "temperature",
        "top_p",
        "user",
    }
)
"""All that the vendor's API takes (openai 3.57, 2026)."""
_MOST_ANSWERS = 2048
_NO_PROMPT = "<|endoftext|>"
_FINISH = {"length": "length", "stop": "stop", "stop_sequence": "stop", "tool": "stop"}
TokenId = Annotated[int, Meta(ge=0, le=2**31)]
Prompt = str | Annotated[list[Any], Meta(min_length=1)]


class CompletionRequest(msgspec.Struct, frozen=True):
    """What of a request has a meaning here, or a type that is looked at."""

    model: str
    prompt: Prompt | None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Limit | None = None
    n: Choices | None = None
    best_of: Choices | None = None
    seed: Seed | None = None
    stop: Stop | None = None
    service_tier: str | None = None
    ignore_eos: bool | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    temperature: Temperature | None = None
    top_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None


def _parse(body: bytes, _headers: Mapping[str, str], wire: Wire) -> Ask:
    """Read a request; raises RefusedError (400) that names the field for whatever is wrong with it."""
    request = openai_errors.decode(_DECODER, body)
    if wire.refuse_unknown:
        openai_errors.refuse_unknown(body, FIELDS, {"stream_options": STREAM_FIELDS})
    _refuse_unsupported(request)
    prompts, choices = _prompts(request.prompt), request.n or 1
    if len(prompts) * choices > _MOST_ANSWERS:
        raise RefusedError(
            400,
            f"Invalid value for 'prompt': {len(prompts)} prompts with n = {choices} are more than "
            f"{_MOST_ANSWERS} answers",
            param="prompt",
        )
    how = options(request.stream_options, request.stream)
    return Ask(
        model=request.model,
        prompts=prompts,
        choices=choices,
        max_tokens=request.max_tokens,
        stream=bool(request.stream),
        include_usage=bool(how.include_usage),
        running_usage=bool(how.continuous_usage_stats),
        obfuscation=how.include_obfuscation is not False,
        service_tier=request.service_tier,
        seed=request.seed,
        stop=stops(request.stop, strict=wire.refuse_unknown),
        ignore_eos=bool(request.ignore_eos),
        reasoning=False,
    )


def _voice(placed: Placed, *, wire: Wire, request_id: str, created_unix_s: int) -> ChunkVoice:
    """The answer to a placed request."""
    shape = CompletionShape()
    return ChunkVoice(shape, placed, wire=wire, request_id=request_id, created_unix_s=created_unix_s)


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """How completions tell a choice (``chunks.Shape``); streamed or not, in one shape."""

    chunk_object: str = "text_completion"
    whole_object: str = "text_completion"
    id_prefix: str = "cmpl-"

    def role(self, index: int, answer: Answer) -> None:
        """None: there are no roles here."""

    def delta(
        self,
        index: int,
        answer: Answer,  # noqa: ARG002
        kind: Kind,  # noqa: ARG002
        piece: str,
        *,
        first_of_run: bool,  # noqa: ARG002
        first_of_all: bool,  # noqa: ARG002
    ) -> dict[str, Any]:
        """The choice that brings tokens."""
        return _choice(index, piece)

    def end(self, index: int, answer: Answer) -> dict[str, Any]:
        """The choice that brings the finish reason."""
        return _choice(index, "", _FINISH[answer.finish])

    def whole(self, index: int, answer: Answer, runs: tuple[Run, ...]) -> dict[str, Any]:
        """A whole choice."""
        return _choice(index, "".join(run.said for run in runs), _FINISH[answer.finish])


def _choice(index: int, text: str, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _refuse_unsupported(request: CompletionRequest) -> None:
    if request.logprobs is not None:
        raise openai_errors.unsupported("logprobs", "this server has no probabilities to tell")
    if request.echo:
        raise openai_errors.unsupported("echo", "prompts are not sent back")
    if request.suffix:
        raise openai_errors.unsupported("suffix", "nothing can be inserted")
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise openai_errors.unsupported("best_of", "expected the value of n")


def _prompts(prompt: Prompt | None) -> tuple[str, ...]:
    """The words of each prompt; a token id counts as a word."""
    if prompt is None:
        return (_NO_PROMPT,)
    if isinstance(prompt, str):
        return (prompt,)
    for kind in (list[str], list[TokenId], list[Annotated[list[TokenId], Meta(min_length=1)]]):
        try:
            found: list[Any] = msgspec.convert(prompt, kind)
        except msgspec.ValidationError:
            continue
        if isinstance(found[0], str):
            return tuple(found)
        lists = [found] if isinstance(found[0], int) else found
        return tuple(" ".join(map(str, ids)) for ids in lists)
    raise RefusedError(
        400,
        "Invalid value for 'prompt': expected a string, a list of strings, a list of token ids, or a list of "
        "such lists",
        param="prompt",
    )


_DECODER = msgspec.json.Decoder(CompletionRequest)
DIALECT = Dialect(
    parse=_parse, voice=_voice, refusal_body=openai_errors.refusal_body, headers=openai_errors.headers
)
