"""Anthropic's Messages API: how it is asked, answers and refuses; its models, its token counts. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from mockserver import anthropic_errors, anthropic_prompt, anthropic_request, text, wire_models
from mockserver.anthropic_voice import MessageVoice
from mockserver.ask import Dialect, Placed, RefusedError
from mockserver.config import ServerConfig
from mockserver.wire_config import Wire


def _voice(
    placed: Placed,
    *,
    wire: Wire,
    request_id: str,
    created_unix_s: int,  # noqa: ARG001 (a message does not tell when it was made)
) -> MessageVoice:
    """The answer to a placed request."""
    return MessageVoice(placed, wire=wire, request_id=request_id)


DIALECT = Dialect(
    parse=anthropic_request.ask_of,
    voice=_voice,
    refusal_body=anthropic_errors.refusal_body,
    headers=anthropic_errors.headers,
)


def count_tokens(body: bytes, headers: Mapping[str, str], *, wire: Wire, models: Collection[str]) -> bytes:
    """The answer to ``POST /v1/messages/count_tokens``: as many as the same prompt is counted for when asked.

    Raises RefusedError: 400 for what is wrong with the request, 404 for a model that is none of ``models``.
    """
    request = anthropic_request.prompt_request(body, headers, wire)
    if request.model not in models:
        raise RefusedError(404, f"model: {request.model}", kind="not_found", param="model")
    tokens = sum(text.count_tokens(piece) for piece, _ in anthropic_prompt.pieces_of(request))
    return msgspec.json.encode({"input_tokens": max(1, tokens)})


def models_of(config: ServerConfig) -> tuple[str, ...]:
    """All names that a request may give as model, the server's own first."""
    return wire_models.names(config)


def models_body(config: ServerConfig, created_unix_s: int) -> bytes:
    """The answer to ``GET /v1/models``: one page with all of them."""
    names = models_of(config)
    data = [_model(config, name, created_unix_s) for name in names]
    return msgspec.json.encode({"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]})


def model_body(config: ServerConfig, name: str, created_unix_s: int) -> bytes:
    """The answer to ``GET /v1/models/{name}``. Raises RefusedError (404) if there is none of that name."""
    if name not in models_of(config):
        raise RefusedError(404, f"model: {name}", kind="not_found", param="model")
    return msgspec.json.encode(_model(config, name, created_unix_s))


def _model(config: ServerConfig, name: str, created_unix_s: int) -> dict[str, str | int | None]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": anthropic_errors.rfc3339(created_unix_s),
        "lifecycle": "active",
        "max_input_tokens": config.max_context_tokens,
        "max_tokens": config.max_context_tokens,
    }
