"""evalscope's ``benchmark_data.db`` (1.14, 2026): an SQLite table, a row a request, gaps as a JSON list."""

import sqlite3
from pathlib import Path
from urllib.parse import quote

import msgspec

from analysis.sources import jsonfile
from analysis.sources.observed import Imported, Observed, Setting, failed, imported
from analysis.sources.source import Source
from tierscope.errors import BadInputError

TOOL = "evalscope"
MAGIC = b"SQLite format 3\x00"
_QUERY = """SELECT start_time, completed_time, first_chunk_latency, inter_token_latencies, success,
prompt_tokens, completion_tokens, is_stream, request FROM result"""


class _Asked(msgspec.Struct):
    model: str = ""


def read(path: Path, *, where: str) -> Imported:
    """Read the table of a finished benchmark; the file is opened for reading only."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        try:
            rows = connection.execute(_QUERY).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise BadInputError(
            f"{where}: is an SQLite file, but no whole result of evalscope: {error}"
        ) from error
    source = Source(
        path=where,
        tool=TOOL,
        cannot={"schedule": "evalscope does not tell when a request should have left"},
        remarks=("Instants are the tool's own, taken in its event loop: a busy client stamps late.",),
    )
    models = [_model(row[-1]) for row in rows[:1]]
    observed = [_observed(row[:-1], where) for row in rows]
    return imported(source, Setting(model="".join(models)), observed, [], path.read_bytes())


def _observed(row: tuple[object, ...], where: str) -> Observed:
    start, end, ttft, gaps, success, prompt, output, streamed = row
    start_s, end_s, good = _float(start), _float(end), success == 1
    told: list[float] = []
    if isinstance(gaps, str) and gaps:
        told = jsonfile.typed(jsonfile.document(gaps.encode(), where=where), list[float], where=where)
    return Observed(
        ttft_s=_float(ttft) if good and streamed != 0 else None,
        gaps_s=told,
        ended_s=None if start_s is None or end_s is None else end_s - start_s,
        start_s=start_s,
        prompt_tokens=prompt if isinstance(prompt, int) else None,
        output_tokens=output if isinstance(output, int) else None,
        outcome="ok" if good else failed(None, ""),
        detail="" if good else "evalscope counts it as failed and tells no reason",
    )


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _model(request: object) -> str:
    try:
        return msgspec.json.decode(request if isinstance(request, str) else "", type=_Asked).model
    except msgspec.DecodeError:
        return ""
