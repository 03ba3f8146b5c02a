"""``vllm bench serve --save-result --save-detailed`` (0.33, 2026): parallel lists, every gap, in seconds."""

from typing import Any

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Need, Source
from tierscope.errors import BadInputError

TOOL = "vLLM bench serve"


class _Result(msgspec.Struct):
    ttfts: list[float | None]
    itls: list[list[float]]
    input_lens: list[int]
    output_lens: list[int]
    start_times: list[float] | None = None
    latencies: list[float] | None = None
    errors: list[str | None] | None = None
    model_id: str | None = None
    max_concurrency: int | None = None
    request_rate: Any = None


def read(value: Any, data: bytes, *, where: str) -> Imported:
    """Read a detailed result; ``value`` is the decoded document."""
    result = jsonfile.typed(value, _Result, where=where)
    count = len(result.ttfts)
    for name in ("itls", "input_lens", "output_lens", "start_times", "latencies", "errors"):
        other = getattr(result, name)
        if other is not None and len(other) != count:
            raise BadInputError(
                f"{where}: {name}: has {len(other)} entries; expected {count}, one for each of ttfts"
            )
    cannot: dict[Need, str] = {"schedule": "it does not tell when a request should have left"}
    if result.start_times is None:
        cannot["starts"] = "this version of the tool does not tell when a request was sent"
    remarks = ["Instants are the tool's own, taken in its event loop: a busy client stamps late."]
    surplus = sum(map(_surplus, result.itls, result.output_lens))
    if surplus:
        remarks.append(
            f"In {surplus} of {count} requests the last gap ended with a chunk that brought no token; "
            "it is left out."
        )
    source = Source(path=where, tool=TOOL, cannot=cannot, remarks=tuple(remarks))
    endless = result.request_rate in (None, "inf")
    setting = Setting(
        model=result.model_id or "",
        streams=result.max_concurrency if endless else None,
    )
    return imported(source, setting, [_observed(result, k) for k in range(count)], [], data)


def _observed(result: _Result, k: int) -> Observed:
    error = (result.errors[k] if result.errors is not None else None) or ""
    ttft_s, gaps = result.ttfts[k], result.itls[k]
    bad = bool(error) or not ttft_s or result.output_lens[k] <= 0
    told = error or "vLLM counts it as failed and tells no reason"
    return Observed(
        ttft_s=None if bad else ttft_s,
        gaps_s=gaps[:-1] if _surplus(gaps, result.output_lens[k]) else gaps,
        ended_s=None if result.latencies is None else result.latencies[k],
        start_s=None if result.start_times is None else result.start_times[k],
        prompt_tokens=result.input_lens[k],
        output_tokens=result.output_lens[k],
        outcome=failed(None, told) if bad else "ok",
        detail=told.strip().rpartition("\n")[2] if bad else "",
    )


def _surplus(gaps: list[float], tokens: int) -> bool:
    """Whether there are as many gaps as tokens: N tokens have N − 1, and the last chunk none."""
    return len(gaps) == tokens > 0
