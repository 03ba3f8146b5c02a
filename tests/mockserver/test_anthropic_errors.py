"""What Anthropic's API says beside answers, read by the official client: errors, limits, models."""

import typing
from datetime import UTC, datetime, timedelta
from math import ceil

import anthropic
import httpx2
import pydantic
import pytest
from anthropic.types import shared
from hypothesis import given
from hypothesis import strategies as st

from mockserver import wire_anthropic
from mockserver.ask import Quota, RefusedError
from mockserver.wire_anthropic import DIALECT
from tests.mockserver.messages_in_memory import (
    CONFIG,
    ID,
    client_of,
    extras,
    parsed,
    placed,
    refused,
    streamed,
    voice,
)


@pytest.mark.parametrize(
    ("refusal", "error", "kind"),
    [
        (RefusedError(400, "x"), anthropic.BadRequestError, "invalid_request_error"),
        (RefusedError(401, "x"), anthropic.AuthenticationError, "authentication_error"),
        (RefusedError(403, "x"), anthropic.PermissionDeniedError, "permission_error"),
        (RefusedError(404, "x", kind="not_found"), anthropic.NotFoundError, "not_found_error"),
        (RefusedError(405, "x", kind="method"), anthropic.APIStatusError, "invalid_request_error"),
        (RefusedError(408, "x", kind="timeout"), anthropic.RequestTimeoutError, "timeout_error"),
        (RefusedError(413, "x", kind="too_large"), anthropic.ContentTooLargeError, "request_too_large"),
        (RefusedError(429, "x", kind="rate_limited"), anthropic.RateLimitError, "rate_limit_error"),
        (RefusedError(500, "x", kind="server"), anthropic.InternalServerError, "api_error"),
        (RefusedError(503, "x", kind="server"), anthropic.ServiceUnavailableError, "api_error"),
        (RefusedError(504, "x", kind="server"), anthropic.GatewayTimeoutError, "timeout_error"),
        (RefusedError(529, "x", kind="overloaded"), anthropic.OverloadedError, "overloaded_error"),
    ],
)
def test_the_official_client_raises_its_own_error_for_each_refusal(
    refusal: RefusedError, error: type[anthropic.APIStatusError], kind: str
) -> None:
    client = client_of(lambda _: refused(refusal))
    with pytest.raises(error) as caught:
        client.messages.create(model="mock", max_tokens=1, messages=[{"role": "user", "content": "a"}])
    assert (caught.value.type, caught.value.api_message) == (kind, "x")
    assert caught.value.request_id == f"req_{ID}"
    if kind != "request_too_large":  # the edge before the API says it; the client has no type for it
        shape = pydantic.TypeAdapter(shared.ErrorResponse).validate_python(caught.value.body, strict=True)
        assert not extras(shape)


def test_an_error_within_a_stream_is_raised_by_the_official_client() -> None:
    one = placed(parsed())
    late = RefusedError(529, "Overloaded", kind="overloaded")
    said = [*list(streamed(one))[:5], voice(one).error(late)]
    client = client_of(
        lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"".join(said))
    )
    with (
        client.messages.stream(
            model="mock", max_tokens=8, messages=[{"role": "user", "content": "a"}]
        ) as stream,
        pytest.raises(anthropic.APIStatusError) as caught,
    ):
        stream.get_final_message()
    assert caught.value.type == "overloaded_error"


@given(
    limits=st.lists(st.integers(1, 10**9), min_size=3, max_size=3),
    resets=st.lists(st.floats(0, 1e5), min_size=3, max_size=3),
    now=st.integers(0, 4_000_000_000),
    speed=st.sampled_from([None, "standard", "fast"]),
)
def test_headers_tell_what_limits_leave(
    limits: list[int], resets: list[float], now: int, speed: str | None
) -> None:
    kinds: list[typing.Literal["requests", "input", "output"]] = ["requests", "input", "output"]
    quotas = tuple(
        Quota(what=what, limit=limit, remaining=limit // 2, reset_s=reset)
        for what, limit, reset in zip(kinds, limits, resets, strict=True)
    )
    headers = DIALECT.headers(ID, quotas, speed, now)
    tokens = "anthropic-fast" if speed == "fast" else "anthropic-ratelimit"
    names = ["anthropic-ratelimit-requests", f"{tokens}-input-tokens", f"{tokens}-output-tokens"]
    for name, quota in zip(names, quotas, strict=True):
        assert headers.pop(f"{name}-limit") == str(quota.limit)
        assert headers.pop(f"{name}-remaining") == str(quota.remaining)
        reset = datetime.fromisoformat(headers.pop(f"{name}-reset"))
        assert reset == datetime.fromtimestamp(now, UTC) + timedelta(seconds=ceil(quota.reset_s))
    assert headers.pop("request-id") == f"req_{ID}"
    if speed != "fast":
        assert headers.pop("anthropic-ratelimit-tokens-limit") == str(limits[1] + limits[2])
        assert headers.pop("anthropic-ratelimit-tokens-remaining") == str(limits[1] // 2 + limits[2] // 2)
        later = max(resets[1:])
        reset = datetime.fromisoformat(headers.pop("anthropic-ratelimit-tokens-reset"))
        assert reset == datetime.fromtimestamp(now, UTC) + timedelta(seconds=ceil(later))
    assert not headers
    assert DIALECT.headers(ID, (), speed, now) == {"request-id": f"req_{ID}"}


def test_the_official_client_lists_models() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.removeprefix("/v1/models").removeprefix("/")
        try:
            made = (
                wire_anthropic.model_body(CONFIG, name, 0) if name else wire_anthropic.models_body(CONFIG, 0)
            )
        except RefusedError as refusal:
            return refused(refusal)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=made)

    client = client_of(answer)
    listed = list(client.models.list())
    assert [model.id for model in listed] == ["mock"]
    assert not extras(listed)
    assert client.models.retrieve("mock") == listed[0]
    assert listed[0].max_input_tokens == CONFIG.max_context_tokens
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("other")
