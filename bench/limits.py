"""How far the client goes: saturation, schedule lag, connections, memory, start-up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench import truth
from bench.load import RUN_ID, Drive, drive
from bench.reference import Pace, reference_server
from bench.stamp_errors import compare
from loadtest import derive
from loadtest.records import RequestRecord

_PLAN = """
name = "bench"
[workload]
prompt_tokens = [16]
output_tokens = {tokens}
tokens_per_word = 1.0
"""
_STAGE = """
[[stages]]
name = "{name}"
requests = {requests}
arrivals = {{ {arrivals} }}
"""
_SHORT = Pace(ttft_ms=5, gap_ms=2)
_STEADY = Pace(ttft_ms=30, gap_ms=2)
_SHORT_TOKENS = 4
_BUSY_RATIO = 0.95
_LATE_RATIO = 0.01


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a plan made here; ``arrivals`` is the inside of its TOML table."""

    name: str
    requests: int
    arrivals: str


def plan(stages: Sequence[Stage], tokens: int) -> str:
    """A plan as TOML."""
    made = [_STAGE.format(name=s.name, requests=s.requests, arrivals=s.arrivals) for s in stages]
    return _PLAN.format(tokens=tokens) + "".join(made)


def closed(streams: int, requests: int, name: str = "") -> Stage:
    """A closed loop."""
    return Stage(name or f"c{streams}", requests, f'kind = "closed", streams = {streams}')


def saturation(cores: tuple[int, int], levels: Sequence[int], gap_ms: float = 20.0) -> None:
    """Raise the number of streams until the client is full or stamps late.

    A level is held if the client used less than 95 % of its core and stamped less than 1 % of the events more
    than 1 ms after they were sent, as happens when it reads several of a stream at once.
    """
    tokens, waves = 200, 2
    stages = [closed(streams, streams * waves) for streams in levels]
    with reference_server(Pace(gap_ms=gap_ms), cores[0]) as reference:
        done = drive(plan(stages, tokens), reference.url, cores[1])
    print(f"\nSaturation: one server core, one client core, {gap_ms:g} ms per token")
    print(
        "streams  events/s  core  µs/event  coalesced  1 ms late  ITL error µs p99  server late ms p99  held"
    )
    best = 0.0
    for streams, stage in zip(levels, stages, strict=True):
        records = [record for record in done.run.records if record.stage == stage.name]
        events_per_s, core_ratio = _middle(done, records)
        coalesced = sum(r.coalesced_events for r in records) / sum(len(r.event_ns) for r in records)
        ids = {f"{RUN_ID}-{record.index}" for record in records}
        answers = [answer for answer in reference.answers if answer.id in ids]
        errors = compare(records, answers, run_id=RUN_ID, zero_ns=done.zero_ns)
        late_s = truth.late_p99_s(answers)
        held = core_ratio < _BUSY_RATIO and errors.late_ratio < _LATE_RATIO
        best = max(best, events_per_s if held else 0.0)
        print(
            f"{streams:7d} {events_per_s:9,.0f}  {core_ratio:4.0%}  {core_ratio * 1e6 / events_per_s:8.1f}"
            f"  {coalesced:9.2%}  {errors.late_ratio:9.2%}  {errors.gap.p99_s * 1e6:16.0f}"
            f"  {late_s * 1e3:18.1f}"
            f"  {'yes' if held else 'no'}{'; the server was late' if late_s > gap_ms / 1e3 else ''}",
            flush=True,
        )
    print(f"held: {best:,.0f} events/s")


def _middle(done: Drive, records: Sequence[RequestRecord]) -> tuple[float, float]:
    """Events per second, and the client's share of its core, in the middle 80 % of a stage's events."""
    events = np.sort(np.concatenate([record.event_ns for record in records])) + done.zero_ns
    start_ns, end_ns = events[events.size // 10], events[events.size * 9 // 10]
    span_s = float(end_ns - start_ns) / 1e9
    return 0.8 * events.size / span_s, (done.cpu_until(end_ns) - done.cpu_until(start_ns)) / span_s


def schedule_lag(cores: tuple[int, int], seconds: float) -> None:
    """How late requests of an open loop leave, short answers, at 500 and 1,000 a second."""
    stages = [closed(32, 320, "warmup")]
    for rate in (500, 1000):
        for kind in ("constant", "poisson"):
            name = f"{kind}-{rate}"
            stages.append(Stage(name, int(rate * seconds), f'kind = "{kind}", rate_per_s = {rate}'))
    with reference_server(_SHORT, cores[0]) as reference:
        done = drive(plan(stages, _SHORT_TOKENS), reference.url, cores[1])
    print(f"\nSchedule lag: open loop, TTFT {_SHORT.ttft_ms:g} ms, {_SHORT_TOKENS} tokens")
    print("arrivals       requests  lag ms p50   p99   max   client core")
    for stage in stages[1:]:
        records = [record for record in done.run.records if record.stage == stage.name]
        lags = [lag * 1e3 for record in records if (lag := derive.lag_s(record)) is not None]
        p50, p99, most = np.quantile(lags, (0.5, 0.99, 1.0))
        _, core_ratio = _middle(done, records)
        print(f"{stage.name:13s} {len(lags):9d}  {p50:10.3f} {p99:6.3f} {most:5.1f}  {core_ratio:11.0%}")


def short_requests(cores: tuple[int, int], requests: int = 10_000, streams: int = 64) -> None:
    """How many short requests a full core sends, and the connections they take."""
    with reference_server(_SHORT, cores[0]) as reference:
        done = drive(plan([closed(streams, requests)], _SHORT_TOKENS), reference.url, cores[1])
    client = done.run.info.client
    assert client is not None
    ended_ns = [record.ended_ns for record in done.run.records]
    failed = sum(record.outcome != "ok" for record in done.run.records)
    span_s = (max(ended_ns) - min(ended_ns)) / 1e9
    print(f"\nShort requests: {streams} streams, TTFT {_SHORT.ttft_ms:g} ms, {_SHORT_TOKENS} tokens")
    print(
        f"{len(ended_ns):,} requests, {failed} failed, {len(ended_ns) / span_s:,.0f} a second, "
        f"{client.cpu_s * 1e6 / len(ended_ns):.0f} µs each"
    )
    print(
        f"connections: {truth.connections(reference.answers)} brought requests; "
        f"the client opened {client.connections_opened} (one of them only to see whether anybody listens)"
    )


def memory(cores: tuple[int, int], requests: int, streams: int = 64) -> None:
    """How the client's memory grows with requests, at a rate that leaves it time to spare.

    On a full core finished requests queue up for their records (up to 20,000), which is no growth of the run.
    The slope is fitted on the second half, when caches and pools are full.
    """
    with reference_server(_STEADY, cores[0]) as reference:
        done = drive(plan([closed(streams, requests)], _SHORT_TOKENS), reference.url, cores[1])
    client = done.run.info.client
    assert client is not None
    ended_ns = np.sort([record.ended_ns for record in done.run.records]) + done.zero_ns
    mb_per_million, rss_mb = growth(done, ended_ns)
    print(f"\nMemory: {streams} streams, TTFT {_STEADY.ttft_ms:g} ms, {_SHORT_TOKENS} tokens")
    print(
        f"{rss_mb:.0f} MB after {len(ended_ns):,} requests ({client.cpu_s / client.wall_s:.0%} of the core), "
        f"{mb_per_million / 10:+.2f} MB per 100,000 requests; after 1,000,000 at this slope "
        f"{rss_mb + mb_per_million * (1 - len(ended_ns) / 1e6):.0f} MB"
    )


def growth(done: Drive, ended_ns: NDArray[np.int64]) -> tuple[float, float]:
    """Slope of the resident size in MB per million requests, and the size when the last one ended."""
    instants, rss_mb = done.samples[:, 0] * 1e9, done.samples[:, 2]
    count = np.searchsorted(ended_ns, instants)
    used = (count > len(ended_ns) / 2) & (instants <= ended_ns[-1])
    if used.sum() < 10:
        return float("nan"), float(rss_mb[-1])
    slope = float(np.polyfit(count[used] / 1e6, rss_mb[used], 1)[0])
    return slope, float(rss_mb[used][-1])


def start_up(cores: tuple[int, int], repeats: int) -> None:
    """CPU time until the run begins, and in all for one request (packing the columns included)."""
    found = []
    for _ in range(repeats):
        with reference_server(_SHORT, cores[0]) as reference:
            done = drive(plan([closed(1, 1)], 1), reference.url, cores[1])
        found.append(done.start_cpu_s)
    print(f"\nStart-up: {np.median(found):.2f} s of CPU until the run begins ({repeats} starts)")
