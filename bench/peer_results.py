"""What other load testers say they saw: TTFTs and gaps out of their own result files.

Each reader takes the folder a tool wrote into and gives its good requests in the order they were sent. A tool
that tells no single gap has empty ones: then its ITL error cannot be known.
"""

import json
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.records import RUN_FILE, read_run

_NS_PER_S = 1e9


class Seen(NamedTuple):
    """One request as a tool reports it. ``start_s`` is on the tool's own clock and only for the order."""

    start_s: float
    ttft_s: float
    gaps_s: tuple[float, ...]


def tierscope(folder: Path) -> list[Seen]:
    """Read a run folder of ours."""
    records = read_run(_only(folder, RUN_FILE).parent).records
    return sorted(
        Seen(
            record.sent_ns / _NS_PER_S,
            (record.event_ns[0] - record.sent_ns) / _NS_PER_S,
            tuple((after - before) / _NS_PER_S for before, after in pairwise(record.event_ns)),
        )
        for record in records
        if record.outcome == "ok" and record.sent_ns is not None
    )


def aiperf(folder: Path) -> list[Seen]:
    """Read NVIDIA AIPerf's ``profile_export.jsonl`` (0.13): a line a request, values in ms."""
    lines = _only(folder, "profile_export.jsonl").read_text("utf-8").splitlines()
    found = []
    for line in map(json.loads, lines):
        metrics, about = line["metrics"], line["metadata"]
        if line.get("error") or "time_to_first_token" not in metrics or about["benchmark_phase"] == "warmup":
            continue
        gaps = metrics.get("inter_chunk_latency", {"value": []})["value"]
        ttft_s = metrics["time_to_first_token"]["value"] / 1e3
        found.append(Seen(about["request_start_ns"] / _NS_PER_S, ttft_s, tuple(gap / 1e3 for gap in gaps)))
    return sorted(found)


def evalscope(folder: Path) -> list[Seen]:
    """Read evalscope's ``benchmark_data.db`` (1.14): a row a request, gaps as a JSON list, seconds."""
    connection = sqlite3.connect(f"file:{_only(folder, 'benchmark_data.db')}?mode=ro", uri=True)
    try:
        rows = connection.execute(
            "SELECT start_time, first_chunk_latency, inter_token_latencies FROM result WHERE success"
        ).fetchall()
    finally:
        connection.close()
    return sorted(Seen(start_s, ttft_s, tuple(json.loads(gaps))) for start_s, ttft_s, gaps in rows)


def genai_bench(folder: Path) -> list[Seen]:
    """Read genai-bench's result file of one scenario (0.0.5): it tells neither starts nor gaps, seconds."""
    document = _document(_only(folder, "*_num_concurrency_*.json"))
    requests = document["individual_request_metrics"]
    return [
        Seen(float(place), request["ttft"], ())
        for place, request in enumerate(requests)
        if request["error_code"] is None
    ]


def guidellm(folder: Path) -> list[Seen]:
    """Read GuideLLM's ``benchmarks.json`` (0.8): TTFT in ms, no single gaps."""
    (benchmark,) = _document(_only(folder, "benchmarks.json"))["benchmarks"]
    return sorted(
        Seen(request["request_start_time"], request["time_to_first_token_ms"] / 1e3, ())
        for request in benchmark["requests"]["successful"]
    )


def inference_perf(folder: Path) -> list[Seen]:
    """Read inference-perf's ``per_request_lifecycle_metrics.json`` (0.7): instants of chunks, seconds."""
    found = []
    for request in _document(_only(folder, "per_request_lifecycle_metrics.json")):
        times = request["info"]["response_metrics"].get("output_token_times") or []
        if request["error"] is None and times:
            gaps = tuple(after - before for before, after in pairwise(times))
            found.append(Seen(request["start_time"], times[0] - request["start_time"], gaps))
    return sorted(found)


def vllm(folder: Path) -> list[Seen]:
    """Read the detailed result of ``vllm bench serve`` (0.32): parallel lists, seconds."""
    document = _document(_only(folder, "*.json"))
    parts = zip(document["start_times"], document["ttfts"], document["itls"], document["errors"], strict=True)
    return sorted(Seen(start_s, ttft_s, tuple(gaps)) for start_s, ttft_s, gaps, error in parts if not error)


READERS: dict[str, Callable[[Path], list[Seen]]] = {
    "tierscope": tierscope,
    "aiperf": aiperf,
    "evalscope": evalscope,
    "genai-bench": genai_bench,
    "guidellm": guidellm,
    "inference-perf": inference_perf,
    "vllm": vllm,
}


def _only(folder: Path, pattern: str) -> Path:
    """The one file of that name, at any depth. Raises FileNotFoundError if there is none, or several."""
    found = sorted(folder.rglob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(f"{folder}: {len(found)} files are called {pattern}; expected one")
    return found[0]


def _document(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
