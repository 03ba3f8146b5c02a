"""Refusals and rate-limit headers in OpenAI's words, and the list of models."""

import json
import re
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Model

from mockserver import (
    config,
    openai_errors,
    wire_chat,
    wire_completions,
    wire_models,
    wire_responses,
)
from mockserver.ask import Dialect, Quota, RefusedError
from mockserver.wire_config import Wire

CONFIG = config.load("fast-tier")


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (RefusedError(400, "m", param="n"), ("invalid_request_error", "n", None)),
        (RefusedError(404, "m", kind="not_found", code="c"), ("invalid_request_error", None, "c")),
        (RefusedError(405, "m", kind="method"), ("invalid_request_error", None, None)),
        (RefusedError(408, "m", kind="timeout"), ("invalid_request_error", None, None)),
        (RefusedError(413, "m", kind="too_large"), ("invalid_request_error", None, None)),
        (RefusedError(429, "m", kind="rate_limited"), ("requests", None, "rate_limit_exceeded")),
        (
            RefusedError(429, "m", kind="rate_limited", param="requests"),
            ("requests", None, "rate_limit_exceeded"),
        ),
        (
            RefusedError(429, "m", kind="rate_limited", param="output"),
            ("tokens", None, "rate_limit_exceeded"),
        ),
        (RefusedError(500, "m", kind="server"), ("server_error", None, None)),
        (RefusedError(503, "m", kind="overloaded"), ("server_error", None, None)),
        (RefusedError(529, "m", kind="overloaded"), ("server_error", None, None)),
    ],
)
def test_a_refusal_has_the_type_that_the_api_gives_it(
    refusal: RefusedError, error: tuple[str, str | None, str | None]
) -> None:
    told = json.loads(openai_errors.refusal_body(refusal))
    kind, param, code = error
    assert told == {"error": {"message": "m", "type": kind, "param": param, "code": code}}


@given(st.floats(0, 200_000, allow_nan=False))
@settings(deadline=None)
def test_a_time_reads_back_rounded_up_to_a_millisecond(seconds: float) -> None:
    told = openai_errors.duration(seconds)
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
    parts = re.findall(r"([\d.]+)(ms|s|m|h)", told)
    assert "".join(number + unit for number, unit in parts) == told
    read = sum((timedelta(**{units[unit]: float(number)}) for number, unit in parts), timedelta())
    assert seconds - 1e-6 <= read.total_seconds() <= seconds + 0.001 + 1e-6


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (0.12, "120ms"),
        (0.0001, "1ms"),
        (8.64, "8.64s"),
        (360, "6m0s"),
        (3612, "1h0m12s"),
        (60, "1m0s"),
    ],
)
def test_a_time_is_written_as_the_provider_writes_it(seconds: float, told: str) -> None:
    assert openai_errors.duration(seconds) == told


def test_headers_tell_what_limits_leave_input_and_output_as_one() -> None:
    quotas = (
        Quota(what="requests", limit=500, remaining=499, reset_s=0.12),
        Quota(what="input", limit=1000, remaining=900, reset_s=6),
        Quota(what="output", limit=200, remaining=50, reset_s=45),
    )
    assert wire_chat.DIALECT.headers("ab", quotas, None, 0) == {
        "x-request-id": "req_ab",
        "x-ratelimit-limit-requests": "500",
        "x-ratelimit-remaining-requests": "499",
        "x-ratelimit-reset-requests": "120ms",
        "x-ratelimit-limit-tokens": "1200",
        "x-ratelimit-remaining-tokens": "950",
        "x-ratelimit-reset-tokens": "45s",
    }
    assert wire_chat.DIALECT.headers("ab", (), None, 0) == {"x-request-id": "req_ab"}


def test_the_list_of_models_holds_every_name_that_a_request_may_give() -> None:
    first, *others = CONFIG.tiers
    tiers = (msgspec.structs.replace(first, model_names=("mock-mini", "mock")), *others)
    several = msgspec.structs.replace(CONFIG, tiers=tiers)
    listed = json.loads(wire_models.models_body(several, 1_800_000_000))
    assert listed["object"] == "list"
    models = [Model.model_validate(one) for one in listed["data"]]
    assert [model.id for model in models] == ["mock", "mock-mini"]
    assert {model.created for model in models} == {1_800_000_000}
    assert {one["max_model_len"] for one in listed["data"]} == {CONFIG.max_context_tokens}
    assert json.loads(wire_models.model_body(several, "mock-mini", 1_800_000_000)) == listed["data"][1]
    with pytest.raises(RefusedError, match="'gpt' does not exist") as refused:
        wire_models.model_body(several, "gpt", 1)
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("dialect", "prompt"),
    [
        (wire_chat.DIALECT, b'"messages":[{"role":"user","content":"a"}]'),
        (wire_completions.DIALECT, b'"prompt":"a"'),
        (wire_responses.DIALECT, b'"input":"a"'),
    ],
)
@pytest.mark.parametrize("field", [b"user", b"nobody_knows_this"])
def test_a_body_is_utf_8_where_nobody_looks_at_it_too(dialect: Dialect, prompt: bytes, field: bytes) -> None:
    body = b'{"model":"m",%b,"%b":"\xff"}' % (prompt, field)
    with pytest.raises(RefusedError) as refused:
        dialect.parse(body, {}, Wire())
    assert (refused.value.status, refused.value.code) == (400, "invalid_json")
    assert dialect.parse(body.replace(b"\xff", "ü".encode()), {}, Wire()).model == "m"
