"""Which tool made a file, told by what is in it: a name says nothing, and may lie."""

import stat
from pathlib import Path
from typing import Any

from analysis.sources import (
    aiperf,
    evalscope,
    exposition,
    genai_bench,
    guidellm,
    inference_perf,
    jsonfile,
    llmperf,
    summaries,
    vllm_serve,
)
from analysis.sources.aggregate import Aggregate
from analysis.sources.observed import Imported
from tierscope.errors import BadInputError

KNOWN = (
    "a run folder, AIPerf's profile_export.jsonl, vLLM bench serve's JSON (--save-detailed), "
    "inference-perf's "
    "per_request_lifecycle_metrics.json, GuideLLM's benchmarks.json, genai-bench's JSON of a scenario, "
    "evalscope's benchmark_data.db, LLMPerf's individual responses, their summaries, or a saved /metrics page"
)
MOST_BYTES = 2_000_000_000


def read(path: Path) -> list[Imported] | Aggregate:
    """Read a file of any known kind.

    Raises BadInputError, in one line, if it cannot be read, is of no known kind, or is damaged.
    """
    where = str(path)
    try:
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):  # some never end
            raise BadInputError(f"{where}: is a device; expected {KNOWN}")
        if status.st_size > MOST_BYTES:
            raise BadInputError(f"{where}: is {status.st_size:,} bytes long; expected at most {MOST_BYTES:,}")
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{where}: cannot be read: {error.strerror}") from error
    if not data.strip():
        raise BadInputError(f"{where}: is empty; expected {KNOWN}")
    if data.startswith(evalscope.MAGIC):
        return [evalscope.read(path, where=where)]
    if exposition.looks_like(data):
        return exposition.read(data, where=where)
    first = data.lstrip()[:1]
    if first not in (b"{", b"["):
        raise _unknown(where)
    return _lines(data, where) or _document(data, where)


def _lines(data: bytes, where: str) -> list[Imported]:
    """What has a document a line; empty if that is not what it is."""
    line = data.lstrip().partition(b"\n")[0]
    if b'"metadata"' not in line or b'"metrics"' not in line:
        return []
    try:
        value = jsonfile.document(line, where=where)
    except BadInputError:
        return []
    ours = isinstance(value, dict) and isinstance(value.get("metadata"), dict)
    return [aiperf.read(data, where=where)] if ours and "request_start_ns" in value["metadata"] else []


def _document(data: bytes, where: str) -> list[Imported] | Aggregate:
    value = jsonfile.document(data, where=where)
    if isinstance(value, list):
        return _list(value, data, where)
    if "ttfts" in value and "itls" in value:
        return [vllm_serve.read(value, data, where=where)]
    if "individual_request_metrics" in value:
        return [genai_bench.read(value, data, where=where)]
    if "benchmarks" in value and isinstance(value["benchmarks"], list):
        return guidellm.read(value, data, where=where)
    summary = summaries.read(value, where=where)
    if summary is None:
        raise _unknown(where)
    return summary


def _list(value: list[Any], data: bytes, where: str) -> list[Imported] | Aggregate:
    if not value:
        raise BadInputError(f"{where}: is an empty list; there is nothing to analyse")
    first = value[0] if isinstance(value[0], dict) else {}
    if "start_time" in first and "info" in first:
        return [inference_perf.read(value, data, where=where)]
    if "ttft_s" in first or "inter_token_latency_s" in first:
        return [llmperf.read(value, data, where=where)]
    summary = summaries.read(value, where=where)
    if summary is None:
        raise _unknown(where)
    return summary


def _unknown(where: str) -> BadInputError:
    return BadInputError(f"{where}: is of no kind that is known; expected {KNOWN}")
