"""OpenAI's chat completions on the wire: request bytes to a typed request or an error, events to bytes. Pure.

Field names and shapes are those of the vendor's published SDK types (2026). Unknown request fields are
accepted, as servers do that many clients speak to; a known field of the wrong type is refused by name.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mockserver import config as server_config
from mockserver import text
from mockserver.config import ServerConfig, TierConfig

Limit = Annotated[int, Meta(ge=1, le=10_000_000)]
DONE = b"data: [DONE]\n\n"
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<key>.*)`")


class ApiError(Exception):
    """An answer in OpenAI's error shape; ``status`` is HTTP's."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


class StreamOptions(msgspec.Struct, frozen=True):
    """How to stream."""

    include_usage: bool = False


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message; only text counts as prompt."""

    type: str
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message of the prompt."""

    role: str
    content: str | list[ContentPart] | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """What of ``POST /v1/chat/completions`` has a meaning here."""

    model: str
    messages: Annotated[list[Message], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    service_tier: str | None = None
    ignore_eos: bool = False
    n: int | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that can be served: by whom, and how long prompt and output are."""

    tier: TierConfig
    prompt_tokens: int
    output_tokens: int
    finish_reason: str
    stream: bool
    include_usage: bool


def parse(body: bytes) -> ChatRequest:
    """Read a request's body; raises ApiError (400) that names the field for whatever is wrong with it."""
    try:
        return _DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"The body is not valid JSON: {error}", code="invalid_json") from error


def admit(request: ChatRequest, config: ServerConfig) -> Admitted:
    """Find the tier and the lengths of a request, or raise ApiError: unknown model 404, the rest 400."""
    if request.model != config.model_name:
        raise ApiError(
            404,
            f"The model {request.model!r} does not exist; this server has {config.model_name!r}",
            param="model",
            code="model_not_found",
        )
    if request.n not in (None, 1):
        raise ApiError(400, f"n: {request.n} is not supported; expected 1", param="n")
    tier = server_config.tier_for(config, request.service_tier)
    if tier is None:
        values = ", ".join(dict.fromkeys(["auto", *(v for tier in config.tiers for v in tier.service_tiers)]))
        raise ApiError(
            400,
            f"service_tier: {request.service_tier!r} is not served here; expected one of: {values}",
            param="service_tier",
        )
    limit = request.max_completion_tokens or request.max_tokens
    prompt, output = max(1, _prompt_tokens(request)), limit or config.default_output_tokens
    if prompt + output > config.max_context_tokens:
        raise ApiError(
            400,
            f"This model's maximum context length is {config.max_context_tokens} tokens; you asked for "
            f"{prompt + output} ({prompt} in the messages, {output} in the completion)",
            param="messages",
            code="context_length_exceeded",
        )
    options = request.stream_options or StreamOptions()
    return Admitted(
        tier=tier,
        prompt_tokens=prompt,
        output_tokens=output,
        finish_reason="length" if limit else "stop",
        stream=bool(request.stream),
        include_usage=options.include_usage,
    )


def error_body(error: ApiError) -> bytes:
    """The JSON of an error, in OpenAI's shape."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    body = {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    return msgspec.json.encode({"error": body})


def models_body(config: ServerConfig, created_unix_s: int) -> bytes:
    """The JSON of ``GET /v1/models``."""
    model = {
        "id": config.model_name,
        "object": "model",
        "created": created_unix_s,
        "owned_by": "tierscope",
        "max_model_len": config.max_context_tokens,
    }
    return msgspec.json.encode({"object": "list", "data": [model]})


class Reply:
    """The answer to one request: its events as bytes, or its whole body.

    An event costs one concatenation: everything around a word is built once a request.
    """

    def __init__(self, admitted: Admitted, config: ServerConfig, *, job_id: int, created_unix_s: int) -> None:
        self.admitted, self.job_id = admitted, job_id
        self.request_id = f"chatcmpl-{job_id:012x}"
        self._common = {
            "id": self.request_id,
            "created": created_unix_s,
            "model": config.model_name,
            "service_tier": admitted.tier.service_tiers[0],
        }
        self._position = 0
        self._before, self._after = self._event({"content": "\0"}).split(rb"\u0000")
        self._words = text.spaced(job_id, 0, admitted.output_tokens)

    def role_event(self) -> bytes:
        """The first event, which brings a role and no token."""
        return self._event({"role": "assistant", "content": ""})

    def token_event(self) -> bytes:
        """The event of the next output token."""
        position = self._position
        self._position = position + 1
        word = self._words[position]
        return self._before + (word if position else word[1:]) + self._after

    def last_events(self) -> bytes:
        """What follows the last token: the finish reason, usage if asked for, and the end of the stream."""
        finish = self._event({}, finish_reason=self.admitted.finish_reason)
        if not self.admitted.include_usage:
            return finish + DONE
        usage = {**self._common, "object": "chat.completion.chunk", "choices": [], "usage": self._usage()}
        return finish + b"data: " + msgspec.json.encode(usage) + b"\n\n" + DONE

    def body(self) -> bytes:
        """The whole answer to a request that did not ask for a stream."""
        message = {"role": "assistant", "content": text.output(self.job_id, self.admitted.output_tokens)}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": self.admitted.finish_reason,
        }
        whole = {**self._common, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        return msgspec.json.encode(whole)

    def _usage(self) -> dict[str, Any]:
        prompt, output = self.admitted.prompt_tokens, self.admitted.output_tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }

    def _event(self, delta: dict[str, str], *, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk: dict[str, Any] = {**self._common, "object": "chat.completion.chunk", "choices": [choice]}
        if self.admitted.include_usage:
            chunk["usage"] = None
        return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _prompt_tokens(request: ChatRequest) -> int:
    total = 0
    for message in request.messages:
        if isinstance(message.content, str):
            total += text.count_tokens(message.content)
        else:
            total += sum(text.count_tokens(part.text) for part in message.content or [])
    return total


def _invalid(message: str) -> ApiError:
    """Turn msgspec's message into one that names the field, as the API does."""
    match = _PATH.match(message)
    what, path = (match["what"], match["path"] or "") if match else (message, "")
    missing = _MISSING.search(what)
    if missing:
        param = f"{path}.{missing['key']}".lstrip(".")
        return ApiError(
            400, f"Missing required parameter: '{param}'", param=param, code="missing_required_parameter"
        )
    said = f"{what[0].lower()}{what[1:]}".replace("`", "")
    return ApiError(400, f"Invalid value for '{path or 'body'}': {said}", param=path or None)


_DECODER = msgspec.json.Decoder(ChatRequest)
