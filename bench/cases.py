"""What streams cost and how well they are stamped: one case is one number of streams and one server."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bench import truth
from bench.load import RUN_ID, drive
from bench.reference import Pace, reference_server
from bench.stamp_errors import StampErrors, compare

TOKENS = 100
PLAN = """
name = "bench"
[workload]
prompt_tokens = [16]
output_tokens = {length}
tokens_per_word = 1.0
[[stages]]
name = "warmup"
warmup = true
requests = {streams}
arrivals = {{ kind = "closed", streams = {streams} }}
[[stages]]
name = "measured"
requests = {requests}
arrivals = {{ kind = "closed", streams = {streams} }}
"""


@dataclass(frozen=True, slots=True)
class Case:
    """``streams`` closed-loop streams for ``waves`` requests each, after one of warm-up."""

    name: str
    streams: int
    gap_ms: float
    waves: int
    grid: bool = False
    halved: bool = False
    spread: bool = False
    """Lengths from half to one and a half times the usual one, so that streams do not end together."""
    stamps: str = ""
    """``user`` forces stamps of the client's own clock."""

    @property
    def pace(self) -> Pace:
        """How the server answers."""
        return Pace(gap_ms=self.gap_ms, grid=self.grid)

    @property
    def plan(self) -> str:
        """What the client is to run, in TOML."""
        length = f'{{ kind = "uniform", minimum = {TOKENS // 2}, maximum = {TOKENS * 3 // 2} }}'
        return PLAN.format(
            length=length if self.spread else TOKENS,
            streams=self.streams,
            requests=self.streams * self.waves,
        )


class Figures(NamedTuple):
    """What one run of a case gave. CPU is in µs per token, all in; core shares are of one core."""

    cpu_us: float
    raw_us: float
    """The same of the raw client, in the same minute; 0 if it was not asked for."""
    core_ratio: float
    errors: StampErrors
    coalesced_ratio: float
    peak_mb: float
    late_p99_s: float
    """How late the reference server itself was."""
    server_core_ratio: float
    stamp_source: str


CASES = (
    Case("1 stream", 1, 30, 4),
    Case("64 streams", 64, 30, 4),
    Case("256 streams", 256, 30, 4),
    Case("500 streams", 500, 30, 4),
    Case("2,000 streams", 2000, 40, 3),
    Case("2,000, spread", 2000, 40, 3, spread=True),
    Case("500, one grid", 500, 30, 3, grid=True),
    Case("2,000, one grid", 2000, 100, 2, grid=True),
    Case("500, half a core", 500, 30, 3, halved=True),
    Case("500, user stamps", 500, 30, 3, stamps="user"),
)
QUICK = (Case("500 streams", 500, 30, 3),)
SHOWN = "500 streams"
"""The case of the last line."""

HEADER = (
    "case              CPU µs/token  × raw  core   TTFT error µs p50  p99     ITL error µs p50  p99    "
    "stamp p99  coalesced  RSS MB  server late µs p99  core  stamps"
)


def measure(case: Case, cores: tuple[int, int], *, raw: bool) -> Figures:
    """Run a case once, the raw client right before it."""
    server_cpu, client_cpu = cores
    raw_us = 0.0
    if raw:
        with reference_server(case.pace, server_cpu) as reference:
            raw_us = run_raw(reference.url, client_cpu, case.streams, case.streams * 2)
    extra = ("--stamps", case.stamps) if case.stamps else ()
    with reference_server(case.pace, server_cpu) as reference:
        done = drive(case.plan, reference.url, client_cpu, extra=extra, halved=case.halved)
    records = [record for record in done.run.records if not record.warmup]
    client = done.run.info.client
    assert client is not None
    events = sum(len(record.event_ns) for record in records)
    return Figures(
        cpu_us=done.cpu_s * 1e6 / done.tokens,
        raw_us=raw_us,
        core_ratio=client.cpu_s / client.wall_s,
        errors=compare(records, reference.answers, run_id=RUN_ID, zero_ns=done.zero_ns),
        coalesced_ratio=sum(record.coalesced_events for record in records) / events,
        peak_mb=done.peak_mb,
        late_p99_s=truth.late_p99_s(reference.answers),
        server_core_ratio=reference.core_ratio,
        stamp_source=client.stamp_source,
    )


def run_raw(url: str, cpu: int, streams: int, requests: int) -> float:
    """CPU µs per token of the raw client."""
    script = Path(__file__).with_name("raw_client.py")
    argv = [sys.executable, str(script), "--url", url, "--streams", str(streams)]
    argv += ["--requests", str(requests), "--tokens", str(TOKENS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        os.sched_setaffinity(child.pid, {cpu})
        said, _ = child.communicate(timeout=600)
    found = json.loads(said)
    if found["tokens"] != requests * TOKENS:
        raise SystemExit(f"the raw client: {found['tokens']} tokens came, {requests * TOKENS} were asked for")
    return float(found["cpu_s"]) * 1e6 / requests / TOKENS


def line(case: Case, runs: Sequence[Figures]) -> str:
    """One row: medians over the repeats, and the smallest and largest cost where there are several."""

    def mid(values: Sequence[float]) -> float:
        return statistics.median(values)

    cpu_us = [run.cpu_us for run in runs]
    ratios = [run.cpu_us / run.raw_us for run in runs if run.raw_us]
    ttft, gap = [run.errors.ttft for run in runs], [run.errors.gap for run in runs]
    row = (
        f"{case.name:17s} {mid(cpu_us):12.1f}  {f'{mid(ratios):5.2f}' if ratios else '    –'}"
        f"  {mid([run.core_ratio for run in runs]):4.0%}"
        f"  {mid([e.p50_s for e in ttft]) * 1e6:18.0f}  {mid([e.p99_s for e in ttft]) * 1e6:6.0f}"
        f"  {mid([e.p50_s for e in gap]) * 1e6:17.1f}  {mid([e.p99_s for e in gap]) * 1e6:6.0f}"
        f"  {mid([run.errors.first_stamp.p99_s for run in runs]) * 1e6:9.0f}"
        f"  {mid([run.coalesced_ratio for run in runs]):9.2%}  {mid([run.peak_mb for run in runs]):6.0f}"
        f"  {mid([run.late_p99_s for run in runs]) * 1e6:18.0f}"
        f"  {mid([run.server_core_ratio for run in runs]):4.0%}  {runs[-1].stamp_source}"
    )
    if len(runs) == 1:
        return row
    spread = f"{len(runs)} runs: µs/token {min(cpu_us):.1f}–{max(cpu_us):.1f}"
    spread += f", × raw {min(ratios):.2f}–{max(ratios):.2f}" if ratios else ""
    return f"{row}\n{'':17s}  {spread}"


def last_line(case: Case, runs: Sequence[Figures]) -> str:
    """The figure of the benchmark."""
    median = sorted(runs, key=lambda run: run.cpu_us)[(len(runs) - 1) // 2]
    return (
        f"client: {median.cpu_us:.1f} us per token, TTFT error p99 {median.errors.ttft.p99_s * 1e3:.2f} ms, "
        f"ITL error p50 {median.errors.gap.p50_s * 1e3:.3f} ms, {median.coalesced_ratio:.2%} coalesced, "
        f"{case.streams} streams"
    )
