"""NVIDIA AIPerf's ``profile_export.jsonl`` (0.13, 2026): a line a request, every gap, wall-clock instants."""

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Source

TOOL = "AIPerf"
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


class _Number(msgspec.Struct):
    value: float | list[float] | None
    unit: str = ""


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int | None = None
    credit_issued_ns: int | None = None
    benchmark_phase: str = ""
    was_cancelled: bool = False


class _Error(msgspec.Struct):
    code: int | None = None
    type: str | None = None
    message: str | None = None


class _Line(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Number] = {}
    error: _Error | None = None


def read(data: bytes, *, where: str) -> Imported:
    """Read the file's lines; requests that failed or were cancelled are kept as such."""
    found, notes = jsonfile.lines(data, _Line, where=where)
    reused = [_number(line, "http_req_connection_reused") for line in found]
    fresh = sum(value == 0 for value in reused)
    remarks = ["Instants are AIPerf's own, taken in its event loop: a busy client stamps late."]
    if fresh:
        remarks.append(
            f"TTFT of {fresh} of {len(found)} requests holds the making of their connection, which "
            "AIPerf counts in."
        )
    source = Source(path=where, tool=TOOL, remarks=tuple(remarks))
    return imported(source, Setting(wall_clock=True), [_observed(line) for line in found], notes, data)


def _observed(line: _Line) -> Observed:
    meta, gaps = line.metadata, line.metrics.get("inter_chunk_latency")
    usage = _number(line, "usage_completion_tokens")
    output = usage if usage is not None else _number(line, "output_sequence_length")
    prompt = _number(line, "usage_prompt_tokens")
    if prompt is None:
        prompt = _number(line, "input_sequence_length")
    wrong = line.error
    detail = "" if wrong is None else f"{wrong.type or ''}: {wrong.message or ''}"
    end_s = None if meta.request_end_ns is None else (meta.request_end_ns - meta.request_start_ns) / 1e9
    ttft_s = _seconds(line, "time_to_first_token")
    each_s = [] if gaps is None or not isinstance(gaps.value, list) else gaps.value
    scale = _UNITS_S.get(gaps.unit, 1e-3) if gaps is not None else 1.0
    latency_s = _seconds(line, "request_latency")
    return Observed(
        ttft_s=ttft_s,
        ended_s=end_s if latency_s is None else latency_s,
        gaps_s=None if ttft_s is None else [gap * scale for gap in each_s],
        start_s=meta.request_start_ns / 1e9,
        scheduled_s=None if meta.credit_issued_ns is None else meta.credit_issued_ns / 1e9,
        prompt_tokens=_whole(prompt),
        output_tokens=_whole(output),
        cached_tokens=_whole(_number(line, "usage_prompt_cache_read_tokens")),
        outcome="cancelled" if meta.was_cancelled else "ok" if wrong is None else failed(wrong.code, detail),
        status=None if wrong is None else wrong.code,
        detail=detail,
        warmup=meta.benchmark_phase == "warmup",
        counted_by_server=usage is not None,
    )


def _number(line: _Line, name: str) -> float | None:
    found = line.metrics.get(name)
    return found.value if found is not None and isinstance(found.value, float) else None


def _seconds(line: _Line, name: str) -> float | None:
    value = _number(line, name)
    return None if value is None else value * _UNITS_S.get(line.metrics[name].unit, 1e-3)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
