"""What the load generator costs and how well it stamps, against a server whose sending instants are known.

    python bench/client.py [--quick]

The reference server runs on one core and the client, as users run it, on another. Printed per number of
streams: CPU time of the client per token, all in (user and system, everything but start-up); TTFT error
(stamp of the first token minus the instant the server sent it); ITL error (a gap as the client saw it minus
the same gap as it was sent); the share of tokens that came in one read with an earlier one.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import Run, read_run

TOKENS = 100
TTFT_MS, GAP_MS = 100.0, 20.0
PLAN = """
name = "bench"
[workload]
prompt_tokens = [16]
output_tokens = {tokens}
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


class Figures(NamedTuple):
    """What was measured at one number of streams; pairs are median and 99th percentile."""

    streams: int
    tokens: int
    cpu_us: float
    ttft_ms: tuple[float, float]
    itl_ms: tuple[float, float]
    coalesced_ratio: float
    stamp_source: str


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="64 streams only, within 40 s")
    quick = parser.parse_args().quick
    print(machine())
    print(f"server: TTFT {TTFT_MS:g} ms, {GAP_MS:g} ms per token, {TOKENS} tokens a request\n")
    print(
        "streams  tokens  CPU µs/token  TTFT error ms p50  p99    ITL error ms p50  p99    coalesced  stamps"
    )
    rows = []
    for streams, waves in [(64, 6)] if quick else [(1, 10), (16, 20), (64, 20), (256, 20)]:
        rows.append(figures := measure(streams, waves))
        print(
            f"{figures.streams:7d} {figures.tokens:7d}  {figures.cpu_us:12.1f}"
            f"  {figures.ttft_ms[0]:17.3f}  {figures.ttft_ms[1]:5.3f}"
            f"  {figures.itl_ms[0]:16.3f}  {figures.itl_ms[1]:5.3f}"
            f"  {figures.coalesced_ratio:9.2%}  {figures.stamp_source}",
            flush=True,
        )
    shown = next(row for row in rows if row.streams == 64)
    print(
        f"\nclient: {shown.cpu_us:.1f} us per token, TTFT error p99 {shown.ttft_ms[1]:.2f} ms, "
        f"ITL error p50 {shown.itl_ms[0]:.3f} ms, {shown.coalesced_ratio:.2%} coalesced, 64 streams"
    )


def measure(streams: int, waves: int) -> Figures:
    """Run ``streams`` closed-loop streams for ``waves`` requests each."""
    server_cpu, client_cpu = cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plan = folder / "bench.toml"
        plan.write_text(PLAN.format(tokens=TOKENS, streams=streams, requests=streams * waves), "utf-8")
        with reference_server(folder / "truth.jsonl", server_cpu) as url:
            target = Target(url=url, model="ref")
            argv = locust_argv(str(plan), target=target, out=folder / "run", run_id="bench")
            child = subprocess.Popen([sys.executable, *argv], stderr=subprocess.PIPE, text=True)
            os.sched_setaffinity(child.pid, {client_cpu})
            _, errors = child.communicate(timeout=600)
            if child.returncode:
                raise SystemExit(errors)
        return compare(streams, read_run(folder / "run"), read_truth(folder / "truth.jsonl"))


def compare(streams: int, run: Run, truth: dict[str, list[int]]) -> Figures:
    """Set the client's stamps against the server's instants, request by request."""
    assert run.info.client is not None
    zero_ns = int(run.info.environment["monotonic_zero_ns"])
    ttft_ms, itl_ms, tokens, coalesced = [], [], 0, 0
    for record in run.records:
        assert record.outcome == "ok", record.detail
        tokens += len(record.event_ns)
        if record.warmup:
            continue
        coalesced += record.coalesced_events
        seen = np.array(record.event_ns) + zero_ns
        sent = np.array(truth[f"bench-{record.index}"])
        ttft_ms.append(abs(seen[0] - sent[0]) / 1e6)
        itl_ms.extend(np.abs(np.diff(seen) - np.diff(sent)) / 1e6)
    return Figures(
        streams,
        tokens,
        run.info.client.cpu_s * 1e6 / tokens,
        (float(np.quantile(ttft_ms, 0.5)), float(np.quantile(ttft_ms, 0.99))),
        (float(np.quantile(itl_ms, 0.5)), float(np.quantile(itl_ms, 0.99))),
        coalesced / tokens,
        run.info.client.stamp_source,
    )


@contextmanager
def reference_server(truth: Path, cpu: int) -> Iterator[str]:
    """Run the server on one core; its truth is on disk when the context ends."""
    script = Path(__file__).with_name("reference_server.py")
    argv = [sys.executable, str(script), "--truth", str(truth)]
    argv += ["--ttft-ms", str(TTFT_MS), "--gap-ms", str(GAP_MS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        port = int(child.stdout.readline())
        os.sched_setaffinity(child.pid, {cpu})
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            child.terminate()


def read_truth(path: Path) -> dict[str, list[int]]:
    lines = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return {line["id"]: line["sent_ns"] for line in lines}


def cores() -> tuple[int, int]:
    """Two cores of those this process may use; the same one twice if there is no other."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def machine() -> str:
    """What the figures were measured on."""
    model = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("locust", "gevent", "httptools"))
    system = f"{platform.system()} {platform.release()}"
    return f"{model}, {os.cpu_count()} cores, {system}, Python {platform.python_version()}, {versions}"


if __name__ == "__main__":
    main()
