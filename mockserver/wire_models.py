"""OpenAI's list of models: the server's own, and the names that mean one of its tiers. Pure."""

from typing import Any

import msgspec

from mockserver.ask import RefusedError
from mockserver.config import ServerConfig


def models_body(config: ServerConfig, created_unix_s: int) -> bytes:
    """The JSON of ``GET /v1/models``."""
    models = [_model(config, name, created_unix_s) for name in names(config)]
    return msgspec.json.encode({"object": "list", "data": models})


def model_body(config: ServerConfig, name: str, created_unix_s: int) -> bytes:
    """The JSON of ``GET /v1/models/{name}``; raises RefusedError (404) for a name that means nothing here."""
    if name not in names(config):
        raise RefusedError(
            404,
            f"The model {name!r} does not exist",
            kind="not_found",
            param="model",
            code="model_not_found",
        )
    return msgspec.json.encode(_model(config, name, created_unix_s))


def names(config: ServerConfig) -> tuple[str, ...]:
    """Every name that a request may give as ``model``, once, the server's own first."""
    of_tiers = (name for tier in config.tiers for name in tier.model_names)
    return tuple(dict.fromkeys((config.model_name, *of_tiers)))


def _model(config: ServerConfig, name: str, created_unix_s: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created_unix_s,
        "owned_by": "tierscope",
        "max_model_len": config.max_context_tokens,
    }
