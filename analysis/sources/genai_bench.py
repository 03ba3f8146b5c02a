"""genai-bench's file of one scenario (0.0.5, 2025): TTFT and mean time per token; no starts, no gaps."""

from typing import Any

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Source
from tierscope.errors import BadInputError

TOOL = "genai-bench"
_UNITS_S = {"s": 1.0, "ms": 1e-3}


class _Request(msgspec.Struct):
    ttft: float | None = None
    tpot: float | None = None
    e2e_latency: float | None = None
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    error_code: int | None = None
    error_message: str | None = None


class _Document(msgspec.Struct):
    individual_request_metrics: list[_Request]
    unit: str = msgspec.field(name="_time_unit", default="s")


def read(value: Any, data: bytes, *, where: str) -> Imported:
    """Read one scenario at one load; ``value`` is the decoded document."""
    document = jsonfile.typed(value, _Document, where=where)
    scale = _UNITS_S.get(document.unit)
    if scale is None:
        raise BadInputError(f"{where}: _time_unit: {document.unit!r} is not known; expected s or ms")
    source = Source(
        path=where,
        tool=TOOL,
        cannot={
            "gaps": "genai-bench keeps a request's mean time per token, and no single gap",
            "starts": "genai-bench does not tell when a request was sent",
            "schedule": "genai-bench does not tell when a request should have left",
        },
        remarks=(
            "Requests are in the order in which they ended, and their last token is taken to be their end.",
        ),
    )
    observed = [_observed(one, scale) for one in document.individual_request_metrics]
    return imported(source, Setting(), observed, [], data)


def _observed(one: _Request, scale: float) -> Observed:
    detail, tokens = one.error_message or "", one.num_output_tokens
    end_s = None if one.e2e_latency is None else one.e2e_latency * scale
    ttft_s = None if one.ttft is None else one.ttft * scale
    last_s = None
    if ttft_s is not None and one.tpot is not None and tokens is not None:
        last_s = ttft_s + one.tpot * scale * (tokens - 1)
    return Observed(
        ttft_s=ttft_s,
        last_s=last_s,
        ended_s=end_s,
        prompt_tokens=one.num_input_tokens,
        output_tokens=tokens,
        outcome="ok" if one.error_code is None else failed(one.error_code, detail),
        status=one.error_code,
        detail=detail,
    )
