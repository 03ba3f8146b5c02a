"""inference-perf's ``per_request_lifecycle_metrics.json`` (0.7, 2026): instants of chunks, seconds."""

from itertools import pairwise
from typing import Any

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Source

TOOL = "inference-perf"


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Response(msgspec.Struct):
    output_tokens: int | None = None
    server_usage: _Usage | None = None
    chunk_times: list[float] | None = None
    output_token_times: list[float] | None = None


class _Info(msgspec.Struct):
    response_metrics: _Response | None = None
    input_tokens: int | None = None


class _Error(msgspec.Struct):
    error_type: str = ""
    error_msg: str = ""


class _Request(msgspec.Struct):
    start_time: float
    end_time: float | None = None
    info: _Info | None = None
    error: _Error | str | None = None
    request: str | None = None


class _Asked(msgspec.Struct):
    model: str = ""


def read(value: Any, data: bytes, *, where: str) -> Imported:
    """Read the list of requests; ``value`` is the decoded document."""
    requests = jsonfile.typed(value, list[_Request], where=where)
    source = Source(
        path=where,
        tool=TOOL,
        cannot={"schedule": "it does not tell when a request should have left"},
        remarks=("Instants are the tool's own, taken in its event loop: a busy client stamps late.",),
    )
    setting = Setting(model=_model(requests))
    return imported(source, setting, [_observed(one) for one in requests], [], data)


def _observed(one: _Request) -> Observed:
    told = one.info.response_metrics if one.info is not None else None
    usage = told.server_usage if told is not None else None
    times = (told.output_token_times or told.chunk_times or []) if told is not None else []
    detail = one.error if isinstance(one.error, str) else ""
    if isinstance(one.error, _Error):
        detail = f"{one.error.error_type}: {one.error.error_msg}"
    prompt = usage.prompt_tokens if usage is not None else None
    output = usage.completion_tokens if usage is not None else None
    return Observed(
        ttft_s=times[0] - one.start_time if times else None,
        gaps_s=[after - before for before, after in pairwise(times)],
        ended_s=None if one.end_time is None else one.end_time - one.start_time,
        start_s=one.start_time,
        prompt_tokens=prompt
        if prompt is not None
        else one.info.input_tokens
        if one.info is not None
        else None,
        output_tokens=output if output is not None else told.output_tokens if told is not None else None,
        outcome="ok" if one.error is None else failed(None, detail),
        detail=detail,
        counted_by_server=output is not None,
    )


def _model(requests: list[_Request]) -> str:
    """The model that the first request which is told whole asked for."""
    for one in requests[:10]:
        try:
            return msgspec.json.decode(one.request or "", type=_Asked).model
        except msgspec.DecodeError:
            continue
    return ""
