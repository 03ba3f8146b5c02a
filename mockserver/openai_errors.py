"""OpenAI's errors and headers, alike in all its APIs, and how what is wrong with a body is told. Pure."""

from typing import Any, TypeVar

import msgspec

from mockserver import json_body
from mockserver.ask import Quota, RefusedError

_T = TypeVar("_T")
_OF_TOKENS = ("tokens", "input", "output", "input_tokens", "output_tokens")


def refusal_body(refusal: RefusedError, _request_id: str = "") -> bytes:
    """The JSON of a refusal; the request's id is in a header."""
    return msgspec.json.encode({"error": error_object(refusal)})


def error_object(refusal: RefusedError) -> dict[str, Any]:
    """What an ``error`` holds: message, type, param, code. A limit's error has as type what was limited."""
    param, code = refusal.param, refusal.code
    if refusal.kind == "rate_limited":
        kind = "tokens" if param in _OF_TOKENS else "requests"
        param, code = None, code or "rate_limit_exceeded"
    elif refusal.status >= 500 or refusal.kind in ("server", "overloaded"):
        kind = "server_error"
    else:
        kind = "invalid_request_error"
    return {"message": refusal.message, "type": kind, "param": param, "code": code}


def headers(
    request_id: str, quotas: tuple[Quota, ...], _requested_speed: str | None = None, _now_unix_s: int = 0
) -> dict[str, str]:
    """Headers of every response: the request's id, and what limits leave, input and output as one sum.

    Resets are durations, so that the time does not matter; there are no speeds here.
    """
    found = {"x-request-id": f"req_{request_id}"}
    for name, parts in (
        ("requests", [quota for quota in quotas if quota.what == "requests"]),
        ("tokens", [quota for quota in quotas if quota.what != "requests"]),
    ):
        if parts:
            found[f"x-ratelimit-limit-{name}"] = str(sum(quota.limit for quota in parts))
            found[f"x-ratelimit-remaining-{name}"] = str(sum(quota.remaining for quota in parts))
            found[f"x-ratelimit-reset-{name}"] = duration(max(quota.reset_s for quota in parts))
    return found


def duration(seconds: float) -> str:
    """A time as OpenAI writes it, rounded up to ms: ``120ms``, ``8.64s``, ``6m0s``, ``1h0m12s``."""
    ms = -int(-seconds * 1000 // 1)
    if ms < 1000:
        return f"{ms}ms" if ms else "0s"
    minutes, rest_ms = divmod(ms, 60_000)
    told = f"{rest_ms / 1000:g}s"
    if not minutes:
        return told
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{told}" if hours else f"{minutes}m{told}"


def decode(decoder: "msgspec.json.Decoder[_T]", body: bytes) -> _T:
    """Read a request's body; raises RefusedError (400) that names the field for whatever is wrong with it."""
    try:
        return json_body.decode(decoder, body)
    except json_body.UnreadableError as error:
        raise _refusal(error) from error


def fields_of(body: bytes) -> dict[str, Any]:
    """All fields of a request, whatever they hold; raises RefusedError (400) if it is no JSON object."""
    return decode(_ANYTHING, body)


def refuse_unknown(body: bytes, known: frozenset[str], nested: dict[str, frozenset[str]]) -> None:
    """Refuse fields that an API does not have; ``nested`` names those of objects inside it."""
    fields = fields_of(body)
    for name, of_it in {"": known, **nested}.items():
        part = fields.get(name) if name else fields
        for key in part if isinstance(part, dict) else ():
            if key not in of_it:
                path = f"{name}.{key}".lstrip(".")
                raise RefusedError(400, f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")


def unsupported(param: str, what: str) -> RefusedError:
    """The refusal of a field that the API has and this server does not serve."""
    message = f"Unsupported parameter: '{param}': {what}"
    return RefusedError(400, message, param=param, code="unsupported_parameter")


def _refusal(error: json_body.UnreadableError) -> RefusedError:
    """What is wrong with a body, in this API's words."""
    path = error.path
    if path is None:
        return RefusedError(400, f"The body is not valid JSON: {error}", code="invalid_json")
    if error.missing:
        message = f"Missing required parameter: '{path}'"
        return RefusedError(400, message, param=path, code="missing_required_parameter")
    return RefusedError(400, f"Invalid value for '{path or 'body'}': {error}", param=path or None)


_ANYTHING = msgspec.json.Decoder(dict[str, Any])
