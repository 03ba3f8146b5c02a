"""What Anthropic's API says beside an answer: errors, and headers that tell what limits leave. Pure.

Shapes and names are those of the vendor's documentation and of the ``anthropic`` SDK (2.14, 2026).
"""

from datetime import UTC, datetime, timedelta
from math import ceil

import msgspec

from mockserver.ask import Quota, RefusalKind, RefusedError

_BY_STATUS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_BY_KIND: dict[RefusalKind, str] = {
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "timeout": "timeout_error",
    "rate_limited": "rate_limit_error",
    "overloaded": "overloaded_error",
}


def error_type(refusal: RefusedError) -> str:
    """The API's word for a refusal: by what it is, else by its status."""
    known = _BY_KIND.get(refusal.kind) or _BY_STATUS.get(refusal.status)
    return known or ("api_error" if refusal.status >= 500 else "invalid_request_error")


def refusal_body(refusal: RefusedError, request_id: str) -> bytes:
    """The JSON of an error, in the body of a response or in an event of a stream."""
    error = {"type": error_type(refusal), "message": refusal.message}
    return msgspec.json.encode({"type": "error", "error": error, "request_id": f"req_{request_id}"})


def headers(
    request_id: str, quotas: tuple[Quota, ...], requested_speed: str | None, now_unix_s: int
) -> dict[str, str]:
    """The request's id and what each limit leaves; limits of the fast speed have names of their own.

    ``tokens`` is input and output together. Counts are exact, where the vendor rounds them to thousands.
    """
    found = {"request-id": f"req_{request_id}"}
    fast = requested_speed == "fast"
    tokens = [quota for quota in quotas if quota.what != "requests"]
    for quota in quotas:
        name = "requests" if quota.what == "requests" else f"{quota.what}-tokens"
        family = "fast" if fast and quota.what != "requests" else "ratelimit"
        found |= _three(f"anthropic-{family}-{name}", quota.limit, quota.remaining, quota.reset_s, now_unix_s)
    if tokens and not fast:
        limit, remaining = sum(quota.limit for quota in tokens), sum(quota.remaining for quota in tokens)
        reset_s = max(quota.reset_s for quota in tokens)
        found |= _three("anthropic-ratelimit-tokens", limit, remaining, reset_s, now_unix_s)
    return found


def _three(name: str, limit: int, remaining: int, reset_s: float, now_unix_s: int) -> dict[str, str]:
    return {
        f"{name}-limit": str(limit),
        f"{name}-remaining": str(remaining),
        f"{name}-reset": rfc3339(now_unix_s, ceil(reset_s)),
    }


def rfc3339(unix_s: int, later_s: int = 0) -> str:
    """An instant in UTC and whole seconds; what lies past the year 9999 is its last second."""
    try:
        instant = datetime.fromtimestamp(unix_s, UTC) + timedelta(seconds=later_s)
    except OverflowError:
        instant = datetime.max.replace(tzinfo=UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"
