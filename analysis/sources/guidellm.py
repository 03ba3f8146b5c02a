"""GuideLLM's ``benchmarks.json`` (0.8, 2026): first and last token of each request, wall clock, no gaps."""

from typing import Any

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Source
from loadtest.records import Outcome
from tierscope.errors import BadInputError

TOOL = "GuideLLM"


class _Timings(msgspec.Struct):
    targeted_start: float | None = None
    request_start: float | None = None
    request_end: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None


class _Info(msgspec.Struct):
    timings: _Timings = msgspec.field(default_factory=_Timings)
    error: str | None = None


class _Request(msgspec.Struct):
    info: _Info
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None


class _Requests(msgspec.Struct):
    successful: list[_Request] | None = None
    errored: list[_Request] | None = None
    incomplete: list[_Request] | None = None


class _Backend(msgspec.Struct):
    target: str | None = None
    model: str | None = None


class _Strategy(msgspec.Struct):
    type_: str = ""
    streams: int | None = None


class _Config(msgspec.Struct):
    backend: _Backend = msgspec.field(default_factory=_Backend)
    strategy: _Strategy = msgspec.field(default_factory=_Strategy)


class _Benchmark(msgspec.Struct):
    requests: _Requests
    config: _Config = msgspec.field(default_factory=_Config)


class _Metadata(msgspec.Struct):
    guidellm_version: str | None = None


class _Document(msgspec.Struct):
    benchmarks: list[_Benchmark]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def read(value: Any, data: bytes, *, where: str) -> list[Imported]:
    """Read all benchmarks of a file, each a run of its own; ``value`` is the decoded document."""
    document = jsonfile.typed(value, _Document, where=where)
    if not document.benchmarks:
        raise BadInputError(f"{where}: benchmarks: is empty; there is nothing to analyse")
    return [_benchmark(one, document, k, data, where) for k, one in enumerate(document.benchmarks)]


def _benchmark(one: _Benchmark, document: _Document, place: int, data: bytes, where: str) -> Imported:
    source = Source(
        path=where if len(document.benchmarks) == 1 else f"{where} (benchmark {place})",
        tool=TOOL,
        version=document.metadata.guidellm_version,
        cannot={"gaps": "GuideLLM keeps a request's first and last token, and none between"},
        remarks=(
            "Other users' prefills stall some gaps and move the mean time per token from the step time.",
        ),
    )
    requests = one.requests
    observed = [_observed(request, "ok") for request in requests.successful or []]
    observed += [
        _observed(request, failed(None, request.info.error or "")) for request in requests.errored or []
    ]
    observed += [_observed(request, "cancelled") for request in requests.incomplete or []]
    strategy, backend = one.config.strategy, one.config.backend
    setting = Setting(
        model=backend.model or "",
        url=backend.target or "",
        streams=strategy.streams if strategy.type_ in ("concurrent", "synchronous") else None,
        wall_clock=True,
    )
    return imported(source, setting, observed, [], data + str(place).encode())


def _observed(one: _Request, outcome: Outcome) -> Observed:
    at = one.info.timings
    start_s = at.request_start if at.request_start is not None else at.targeted_start

    def since(instant: float | None) -> float | None:
        return None if instant is None or start_s is None else instant - start_s

    return Observed(
        ttft_s=since(at.first_token_iteration),
        last_s=since(at.last_token_iteration),
        ended_s=since(at.request_end),
        start_s=start_s,
        scheduled_s=at.targeted_start,
        prompt_tokens=one.prompt_tokens,
        output_tokens=one.output_tokens,
        cached_tokens=one.cached_tokens,
        outcome=outcome,
        detail=one.info.error or "",
    )
