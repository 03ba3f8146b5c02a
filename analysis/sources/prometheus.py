"""A run's histograms from a Prometheus server's HTTP API, by run id and range of time.

Which target a run was, and when, is found by ``tierscope_run_info``: the label ``run_id`` is there alone.
Counters begin at 0 with the run, so their last values are its totals; with a narrower range those at its
begin are taken away. Slices of the range give pairs in time, which one page cannot.
"""

import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import urlencode, urlsplit

import msgspec
import numpy as np

from analysis.ragged import Floats
from analysis.sources.aggregate import Aggregate
from analysis.sources.exposition import OURS, Sample, aggregate
from analysis.sources.inputs import Input
from tierscope.errors import BadInputError

DEADLINE_S = 30.0
MOST_BYTES = 200_000_000
SLICES = 24
FEWEST_IN_SLICE = 2
FIRST_LOOK_S = 30 * 86400.0
"""How far back a run is looked for if no range is given."""
STEPS = 5000
"""Steps of a range query; Prometheus allows 11,000 points a series."""
COUNTED = ("tierscope_requests_total", "tierscope_prompt_tokens_total", "tierscope_output_tokens_total")
_RUN_LABELS = ("job", "instance")


@dataclass(frozen=True, slots=True)
class Question:
    """What to ask: the server's address, the run, and from when to when, unix seconds; None: all of it."""

    url: str
    run_id: str | None = None
    begin_s: float | None = None
    end_s: float | None = None


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    result: list[_Series] = []


class _Answer(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


def instant(text: str, *, option: str) -> float:
    """An instant in unix seconds, or as ISO 8601 (UTC if it names no zone). Raises BadInputError."""
    try:
        value = float(text)
    except ValueError:
        try:
            told = datetime.fromisoformat(text)
        except ValueError as error:
            raise BadInputError(
                f"{option}: {text!r} is no instant; expected unix seconds or ISO 8601, 2026-01-31T12:00:00Z"
            ) from error
        value = (told if told.tzinfo is not None else told.replace(tzinfo=UTC)).timestamp()
    if not 0 <= value <= 1e11:
        raise BadInputError(f"{option}: {text} is no instant; expected unix seconds from 0 to 1e11")
    return value


def read(question: Question, *, given: Sequence[Input] = ()) -> Aggregate:
    """Ask for a run's histograms, as they stood at its end (or at the end of the range).

    Raises BadInputError in one line if the server cannot be asked, does not know the run, or has several.
    """
    if given:
        raise BadInputError(f"--prometheus: {given[0].path} was given too; report on one or the other")
    url = question.url.rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInputError(f"--prometheus: {question.url!r} is no address; expected http://HOST:PORT")
    begin_s, end_s = _range(question)
    info, first_s, last_s = _run(url, question.run_id, begin_s, end_s)
    where = f"{url} (run {info.get('run_id', '')})"
    target = {name: info[name] for name in _RUN_LABELS if name in info}
    held = _total(url, target, first_s, last_s, cut=question.begin_s is not None)
    labels = {k: v for k, v in info.items() if k != "__name__"}
    notes: list[str] = []
    found = aggregate([*held, Sample("tierscope_run_info", labels, 1.0)], where=where, notes=notes)
    found = replace(
        found,
        source=replace(found.source, tool="tierscope metrics in Prometheus"),
        started_unix_s=first_s,
        duration_s=last_s - first_s,
    )
    pairs = [(a, b) for a in found.tiers for b in found.tiers if a != b]
    sliced = _slices(url, target, first_s, last_s) if pairs else {}
    return replace(found, slices={pair: log for pair in pairs if (log := _log_ratios(sliced, pair)).size})


def _range(question: Question) -> tuple[float, float]:
    now_s = datetime.now(UTC).timestamp()
    end_s = now_s if question.end_s is None else question.end_s
    begin_s = end_s - FIRST_LOOK_S if question.begin_s is None else question.begin_s
    if begin_s >= end_s:
        raise BadInputError(f"--from: {begin_s:g} is not before --to, {end_s:g}")
    return begin_s, end_s


def _run(url: str, run_id: str | None, begin_s: float, end_s: float) -> tuple[dict[str, str], float, float]:
    """The labels of the run's info, and when it was first and last seen in the range."""
    chosen = "" if run_id is None else f"{{run_id={_quoted(run_id)}}}"
    spans = f"[{max(1, math.ceil(end_s - begin_s))}s]"
    found = _instant_query(url, f"tierscope_run_info{chosen}{spans}", end_s)  # every sample that was scraped
    labelled = [(one.metric, [at for at, _ in one.values]) for one in found if one.values]
    if not labelled:
        asked = "any run" if run_id is None else f"run {run_id!r}"
        raise BadInputError(
            f"--prometheus: {url} has nothing of {asked} from {_time(begin_s)} to {_time(end_s)}"
        )
    if len(labelled) > 1:
        names = ", ".join(sorted({metric.get("run_id", "") for metric, _ in labelled})[:5])
        what = "--run" if run_id is None else "--from and --to"
        raise BadInputError(
            f"--prometheus: {url} has {len(labelled)} series of runs ({names}); choose one with {what}"
        )
    metric, at_s = labelled[0]
    return metric, min(at_s), max(at_s)


def _total(url: str, target: dict[str, str], first_s: float, last_s: float, *, cut: bool) -> list[Sample]:
    """What was counted up to the end, less what was there at the begin if the range cuts the run."""
    names = [
        f"{name}_{end}"
        for name in (*OURS, "tierscope_tokens_per_event")
        for end in ("bucket", "sum", "count")
    ]
    ends = _values(url, [*names, *COUNTED], target, last_s, last_s - first_s + 60)
    if not cut:
        return ends
    before = {
        (one.name, _key(one.labels)): one.value
        for one in _values(url, [*names, *COUNTED], target, first_s, 60)
    }
    held = [
        Sample(one.name, one.labels, one.value - before.get((one.name, _key(one.labels)), 0.0))
        for one in ends
    ]
    if any(one.value < 0 and not one.name.endswith("_sum") for one in held):
        raise BadInputError(
            f"--from: a counter at {url} was set back within the range; give the range of one run"
        )
    return held


def _values(
    url: str, names: Sequence[str], target: dict[str, str], at_s: float, back_s: float
) -> list[Sample]:
    """Last values of series of some names, at most ``back_s`` before an instant."""
    pattern = "|".join(names)
    matchers = ",".join([f'__name__=~"{pattern}"', *(f"{k}={_quoted(v)}" for k, v in target.items())])
    found = _instant_query(url, f"{{{matchers}}}", at_s)
    if not found:  # a run that ended: the series went stale, their last values did not
        found = []
        for name in names:
            matcher = ",".join(f"{k}={_quoted(v)}" for k, v in target.items())
            query = f"last_over_time({name}{{{matcher}}}[{math.ceil(back_s)}s])"
            found += [_renamed(one, name) for one in _instant_query(url, query, at_s)]
    return [
        Sample(
            one.metric.get("__name__", ""),
            {k: v for k, v in one.metric.items() if k != "__name__"},
            _number(one),
        )
        for one in found
        if math.isfinite(_number(one))
    ]


def _slices(
    url: str, target: dict[str, str], first_s: float, last_s: float
) -> dict[str, tuple[Floats, Floats]]:
    """By tier: sums and counts of time per token at the ends of equal slices."""
    step_s = max(1.0, (last_s - first_s) / SLICES)
    matcher = ",".join(f"{k}={_quoted(v)}" for k, v in target.items())
    found = []
    for end in ("sum", "count"):
        query = f"sum by (requested_tier) (tierscope_tpot_seconds_{end}{{{matcher}}})"
        values = {"query": query, "start": f"{first_s}", "end": f"{last_s}", "step": f"{step_s}"}
        found.append({one.metric.get("requested_tier", ""): one for one in _ask(url, "query_range", values)})
    sums, counts = found
    return {tier: _aligned(sums[tier], counts[tier]) for tier in sums if tier in counts}


def _aligned(sums: _Series, counts: _Series) -> tuple[Floats, Floats]:
    at = dict(counts.values)
    both = [(float(value), float(at[instant])) for instant, value in sums.values if instant in at]
    told = np.array(both, dtype=np.float64).reshape(-1, 2)
    return told[:, 0], told[:, 1]


def _log_ratios(sliced: dict[str, tuple[Floats, Floats]], pair: tuple[str, str]) -> Floats:
    """Log of the ratio of the two tiers' mean times per token in each slice in which both have some."""
    if not all(tier in sliced for tier in pair):
        return np.empty(0)
    (sum_a, count_a), (sum_b, count_b) = (sliced[tier] for tier in pair)
    size = min(sum_a.size, sum_b.size)
    total_a, total_b = np.diff(sum_a[:size]), np.diff(sum_b[:size])
    n_a, n_b = np.diff(count_a[:size]), np.diff(count_b[:size])
    used = (n_a >= FEWEST_IN_SLICE) & (n_b >= FEWEST_IN_SLICE) & (total_a > 0) & (total_b > 0)
    return np.asarray(np.log((total_a[used] / n_a[used]) / (total_b[used] / n_b[used])))


def _instant_query(url: str, query: str, at_s: float) -> list[_Series]:
    return _ask(url, "query", {"query": query, "time": f"{at_s}"})


def _ask(url: str, what: str, values: dict[str, str]) -> list[_Series]:
    """One request to the HTTP API; the answer's series."""
    request = urllib.request.Request(
        f"{url}/api/v1/{what}", data=urlencode(values).encode(), headers={"Accept": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            data = response.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            data = error.read(MOST_BYTES)
        if not data.lstrip().startswith(b"{"):
            raise BadInputError(f"--prometheus: {url} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise BadInputError(f"--prometheus: {url} cannot be asked: {reason}") from error
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except msgspec.DecodeError as error:
        raise BadInputError(f"--prometheus: {url} does not answer as a Prometheus server: {error}") from error
    if answer.status != "success" or answer.data is None:
        raise BadInputError(f"--prometheus: {url} refuses: {' '.join(answer.error.split())[:200]}")
    return answer.data.result


def _renamed(one: _Series, name: str) -> _Series:
    return msgspec.structs.replace(one, metric=one.metric | {"__name__": name})


def _key(labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _number(one: _Series) -> float:
    try:
        return float(one.value[1]) if one.value is not None else math.nan
    except ValueError:
        return math.nan


def _quoted(text: str) -> str:
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'"{escaped}"'


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
