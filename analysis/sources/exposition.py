"""A saved ``/metrics`` page: our own histograms, or those of a vLLM server, as counts per bucket. Pure.

The text format is Prometheus' exposition format 0.0.4 (2014): ``name{label="value",…} number [timestamp]``.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from analysis.model import Metric
from analysis.sources.aggregate import Aggregate, Binned, Counts, Series
from analysis.sources.source import Need, Source
from tierscope.errors import BadInputError

OURS: dict[str, Metric] = {
    "tierscope_ttft_seconds": "ttft",
    "tierscope_ttft_from_scheduled_seconds": "ttft_from_scheduled",
    "tierscope_tpot_seconds": "tpot",
    "tierscope_itl_seconds": "itl",
    "tierscope_otps_tokens_per_second": "otps",
    "tierscope_e2e_seconds": "e2e",
    "tierscope_schedule_lag_seconds": "lag",
}
SERVERS: dict[str, Metric] = {
    "vllm:time_to_first_token_seconds": "ttft",
    "vllm:inter_token_latency_seconds": "itl",
    "vllm:time_per_output_token_seconds": "itl",  # its name before 0.11: one value a token all the same
    "vllm:request_time_per_output_token_seconds": "tpot",
    "vllm:e2e_request_latency_seconds": "e2e",
}
_CANNOT: dict[Need, str] = {
    "requests": "a page of histograms keeps counts per bucket and no single request",
    "starts": "a page of histograms keeps no instant",
    "order": "a page of histograms keeps no order of requests",
}
_HEAD_BYTES, _HEAD_LINES = 65536, 200
_TOLD = re.compile(rb"^# (TYPE|HELP) [a-zA-Z_:]|^[a-zA-Z_:][a-zA-Z0-9_:]*_(bucket|sum|count)\{.*\} \S")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?\s*$")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_UNESCAPED = {"\\": "\\", "n": "\n", '"': '"'}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page: a name, its labels, and a number."""

    name: str
    labels: dict[str, str]
    value: float


def looks_like(data: bytes) -> bool:
    """Whether one of the first whole lines says the type of a metric, or is a sample of a histogram."""
    head = data[:_HEAD_BYTES].split(b"\n")[:_HEAD_LINES]
    return any(_TOLD.match(line) for line in head)


def read(data: bytes, *, where: str) -> Aggregate:
    """Read a page. Raises BadInputError if nothing on it is known."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadInputError(f"{where}: is no text in UTF-8: {error.reason} at byte {error.start}") from error
    samples, damaged = parse(text)
    notes = [f"{where}: {damaged} lines could not be read and are left out"] if damaged else []
    return aggregate(samples, where=where, notes=notes)


def parse(text: str) -> tuple[list[Sample], int]:
    """All samples of a page, and how many lines were none."""
    found: list[Sample] = []
    damaged = 0
    for line in text.split("\n"):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        sample = _sample(line)
        if sample is None:
            damaged += 1
        else:
            found.append(sample)
    return found, damaged


def aggregate(samples: Iterable[Sample], *, where: str, notes: list[str]) -> Aggregate:
    """Histograms and counts of samples that belong to one page, or to one end of a range."""
    held = list(samples)
    families = OURS if any(one.name.startswith("tierscope_") for one in held) else SERVERS
    series: list[Series] = []
    by_name: dict[str, list[Sample]] = {}
    for one in held:
        by_name.setdefault(one.name, []).append(one)
    for name, metric in families.items():
        mine = [*by_name.get(f"{name}_bucket", ()), *by_name.get(f"{name}_sum", ())]
        series += _series(mine, name, metric, where, notes)
    series = _of_one_kind(series, where, notes)
    if not any(isinstance(one.shape, Binned) and one.shape.count for one in series):
        known = ", ".join(
            name for name in (*OURS, *SERVERS) if name.endswith(("ttft_seconds", "token_seconds"))
        )
        raise BadInputError(f"{where}: no histogram that is known has any value; expected {known} or others")
    own = families is OURS
    info = next((one.labels for one in held if one.name == "tierscope_run_info"), {})
    cannot = dict(_CANNOT)
    if not any(one.metric == "itl" for one in series):
        cannot["gaps"] = "the page has no histogram of inter-token latency"
    return Aggregate(
        source=Source(
            where, "tierscope /metrics" if own else "a vLLM server's /metrics", None, cannot, _remarks(own)
        ),
        series=series,
        counts=_counts(held) if own else _server_counts(held),
        run_id=info.get("run_id", ""),
        plan=info.get("plan", ""),
        model=info.get("model", next((one.labels.get("model_name", "") for one in held if not own), "")),
        measured_by="client" if own else "server",
        notes=tuple(notes),
        tokens_per_event=_tokens_per_event(held),
        stamp_source=info.get("stamp_source", ""),
    )


def _of_one_kind(series: list[Series], where: str, notes: list[str]) -> list[Series]:
    """Of each metric and tier those with the fullest one's edges: only equal buckets add up."""
    fullest: dict[tuple[str, str], Binned] = {}
    for one in series:
        if isinstance(one.shape, Binned):
            known = fullest.setdefault((one.metric, one.tier), one.shape)
            if one.shape.count > known.count:
                fullest[one.metric, one.tier] = one.shape
    kept = [
        one
        for one in series
        if isinstance(one.shape, Binned) and one.shape.fits(fullest[one.metric, one.tier])
    ]
    if len(kept) < len(series):
        notes.append(f"{where}: {len(series) - len(kept)} histograms have other buckets and are left out")
    return kept


def _remarks(own: bool) -> tuple[str, ...]:
    if own:
        return ("Quantiles are sure to within a bucket, 9 %; means are exact.",)
    return (
        "Latencies are the server's own, of all users and all tiers; neither network nor client is in them.",
        "Its buckets are coarse: steps below 10 ms share one, so that a quantile may be anywhere in it.",
    )


def _series(held: list[Sample], name: str, metric: Metric, where: str, notes: list[str]) -> Iterator[Series]:
    """The histograms of one family, one a label set."""
    cumulative: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for one in held:
        key = tuple(sorted((k, v) for k, v in one.labels.items() if k != "le"))
        if one.name == f"{name}_bucket" and (edge := _float(one.labels.get("le", ""))) is not None:
            buckets = cumulative.setdefault(key, {})
            buckets[edge] = buckets.get(edge, 0.0) + one.value
        elif one.name == f"{name}_sum":
            sums[key] = sums.get(key, 0.0) + one.value
    for key, buckets in cumulative.items():
        shape = _binned(buckets, sums.get(key))
        if shape is None:
            notes.append(
                f"{where}: {name}: of one label set counts fall or buckets are missing; it is left out"
            )
            continue
        labels = dict(key)
        size = labels.get("prompt_class", "")
        yield Series(
            metric=metric,
            tier=_tier(labels),
            shape=shape,
            prompt_class=int(size) if size.isdecimal() else None,
            stage=labels.get("stage", ""),
            served_tier=labels.get("served_tier", ""),
        )


def _binned(cumulative: dict[float, float], total: float | None) -> Binned | None:
    """Counts per bucket of cumulative ones; None if they are none."""
    edges = sorted(edge for edge in cumulative if edge > 0)  # no time lies below 0
    if len(edges) < 2 or not math.isinf(edges[-1]):
        return None
    counts = np.diff([cumulative[edge] for edge in edges], prepend=0.0)
    if not np.isfinite(counts).all() or (counts < 0).any():
        return None
    finite = total if total is not None and math.isfinite(total) else None
    return Binned(np.array(edges[:-1]), np.rint(counts).astype(np.int64), finite)


def _tier(labels: dict[str, str]) -> str:
    return labels.get("requested_tier") or labels.get("model_name") or labels.get("model") or "server"


def _counts(held: list[Sample]) -> list[Counts]:
    """Requests of our own counters, by tier; a counter that never moved makes no tier."""
    outcomes: dict[str, dict[str, int]] = {}
    tokens: dict[str, dict[str, int]] = {}
    for one in held:
        if not math.isfinite(one.value):
            continue
        if one.name == "tierscope_requests_total":
            mine, name = outcomes.setdefault(_tier(one.labels), {}), one.labels.get("outcome", "")
            mine[name] = mine.get(name, 0) + round(one.value)
        elif one.name in ("tierscope_prompt_tokens_total", "tierscope_output_tokens_total"):
            mine = tokens.setdefault(_tier(one.labels), {})
            mine[one.name] = mine.get(one.name, 0) + round(one.value)
    return [
        Counts(
            tier,
            {name: count for name, count in found.items() if count},
            tokens.get(tier, {}).get("tierscope_prompt_tokens_total", 0),
            tokens.get(tier, {}).get("tierscope_output_tokens_total", 0),
        )
        for tier, found in outcomes.items()
    ]


def _tokens_per_event(held: list[Sample]) -> dict[str, float]:
    """Mean tokens per event of each tier."""
    found: dict[str, list[float]] = {}
    ends = ("tierscope_tokens_per_event_sum", "tierscope_tokens_per_event_count")
    for one in held:
        if one.name in ends and math.isfinite(one.value):
            found.setdefault(_tier(one.labels), [0.0, 0.0])[ends.index(one.name)] += one.value
    return {tier: total / count for tier, (total, count) in found.items() if count}


def _server_counts(held: list[Sample]) -> list[Counts]:
    """Answers of a vLLM server that ended, and its tokens."""
    names = ("vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total")
    found: dict[str, list[int]] = {}
    for one in held:
        if one.name in names and math.isfinite(one.value):
            found.setdefault(_tier(one.labels), [0, 0, 0])[names.index(one.name)] += round(one.value)
    return [Counts(tier, {"ok": each[0]}, each[1], each[2]) for tier, each in found.items()]


def _sample(line: str) -> Sample | None:
    match = _SAMPLE.fullmatch(line.strip("\r"))
    if match is None:
        return None
    value = _float(match[3])
    labels = _labels(match[2] or "")
    return None if value is None or labels is None else Sample(match[1], labels, value)


def _labels(text: str) -> dict[str, str] | None:
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _LABEL.match(text, place)
        if match is None:
            return None
        value = match[2]
        if "\\" in value:
            value = re.sub(r"\\(.)", lambda m: _UNESCAPED.get(m[1], m[0]), value)
        found[match[1]] = value
        place = match.end()
    return found


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
