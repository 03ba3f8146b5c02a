"""LLMPerf's individual responses (2023): TTFT and a mean over all tokens; no starts, no gaps.

``inter_token_latency_s`` counts TTFT in: it is the instant of the last token over the number of tokens (in
published files it times the tokens lies 0–90 ms before ``end_to_end_latency_s``), so that
TPOT = (inter_token_latency · N − TTFT) / (N − 1).
"""

from typing import Any

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Source

TOOL = "LLMPerf"


class _Request(msgspec.Struct):
    ttft_s: float | None = None
    inter_token_latency_s: float | None = None
    end_to_end_latency_s: float | None = None
    number_input_tokens: int | None = None
    number_output_tokens: int | None = None
    error_code: int | None = None
    error_msg: str | None = None


def read(value: Any, data: bytes, *, where: str) -> Imported:
    """Read the list of responses; ``value`` is the decoded document."""
    requests = jsonfile.typed(value, list[_Request], where=where)
    source = Source(
        path=where,
        tool=TOOL,
        cannot={
            "gaps": "LLMPerf keeps a mean over a request's tokens, and no single gap",
            "starts": "LLMPerf does not tell when a request was sent",
            "schedule": "LLMPerf does not tell when a request should have left",
        },
        remarks=(
            "Tokens are counted by LLMPerf with one tokeniser for all models, and not by the server.",
            "Its inter-token latency counts TTFT in; time per token here is without it.",
        ),
    )
    return imported(source, Setting(), [_observed(one) for one in requests], [], data)


def _observed(one: _Request) -> Observed:
    detail, tokens = one.error_msg or "", one.number_output_tokens
    last_s = None
    if one.inter_token_latency_s is not None and tokens is not None:
        last_s = one.inter_token_latency_s * tokens
    good = one.error_code is None
    return Observed(
        ttft_s=one.ttft_s if good else None,
        last_s=last_s if good else None,
        ended_s=one.end_to_end_latency_s if good else None,
        prompt_tokens=one.number_input_tokens,
        output_tokens=tokens if good else None,
        outcome="ok" if good else failed(one.error_code, detail),
        status=one.error_code if one.error_code is not None and 100 <= one.error_code <= 599 else None,
        detail=detail,
    )
