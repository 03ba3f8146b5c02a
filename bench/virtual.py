"""How quick is virtual time? A trace simulated, tokens a second at a full batch, a fleet under a day of load.

python bench/virtual.py [--trace FILE.jsonl] [--requests 2000] [--quick]

Without ``--trace`` (Mooncake's conversation trace, say) requests with such lengths are made up. Everything
runs in one thread; seconds are CPU seconds of this process, with the wall clock's beside them. The last line
is the figure.
"""

import argparse
import contextlib
import io
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from bench import machine
from loadtest import records
from mockserver import config
from mockserver.config import ServerConfig
from mockserver.fleet import Fleet
from mockserver.job import Job
from mockserver.offered import Goal, Offered, serve
from tierscope.simulate import simulate_run

PROFILE = "h100-70b"
BATCH = 64
_BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Took:
    """How long something took."""

    cpu_s: float
    wall_s: float

    def __str__(self) -> str:
        return f"{self.cpu_s:.2f} s ({self.wall_s:.2f} s by the wall clock)"


def timed(do: Callable[[], object]) -> Took:
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    do()
    return Took(time.process_time() - cpu_s, time.perf_counter() - wall_s)


def made_up(path: Path, requests: int) -> None:
    """Write a trace as long as Mooncake's conversations are: 3 a second, 13,700 tokens in and 350 out."""
    rng = np.random.default_rng(1)
    at_ms = np.cumsum(rng.exponential(1000 / 3.0, requests)).round().astype(int).tolist()
    prompts = np.clip(rng.lognormal(np.log(13_700) - 0.5, 1.0, requests), 100, 120_000).astype(int).tolist()
    outputs = np.clip(rng.lognormal(np.log(350) - 0.3, 0.8, requests), 1, 2000).astype(int).tolist()
    fresh = 1
    with path.open("w") as file:
        for at, prompt, output in zip(at_ms, prompts, outputs, strict=True):
            blocks = -(-prompt // _BLOCK_TOKENS)
            ids = [0, *range(fresh, fresh + blocks - 1)]
            fresh += blocks
            row = {"timestamp": at, "input_length": prompt, "output_length": output, "hash_ids": ids}
            file.write(json.dumps(row) + "\n")


def simulated(trace: Path | None, requests: int) -> str:
    """Simulate a trace as ``tierscope simulate`` does, records written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if trace is None:
            made_up(folder / "trace.jsonl", requests)
        else:
            (folder / "trace.jsonl").write_bytes(trace.read_bytes())
        (folder / "plan.toml").write_text(
            'name = "trace"\n[workload]\n'
            f'trace = {{ file = "trace.jsonl", format = "mooncake", limit = {requests} }}\n'
            '[[stages]]\nname = "play"\narrivals = { kind = "trace" }\n'
        )
        with contextlib.redirect_stdout(io.StringIO()):
            took = timed(
                lambda: simulate_run(str(folder / "plan.toml"), profile=PROFILE, seed=1, out=folder / "run")
            )
        done = records.read_run(folder / "run").records
    tokens = sum(record.output_tokens or 0 for record in done)
    virtual_s = max(record.ended_ns for record in done) / 1e9
    what = "a made-up trace" if trace is None else trace.name
    print(f"simulate: {len(done)} requests of {what}, {tokens} tokens, {virtual_s:.0f} virtual s: {took}")
    return f"{len(done)} requests in {took.cpu_s:.2f} s"


def alone(replicas: int = 1) -> ServerConfig:
    """One tier of the profile without hidden load, its batch full at ``BATCH``."""
    loaded = config.load(PROFILE)
    tier = msgspec.structs.replace(
        loaded.tiers[0], target_batch=0, max_batch=BATCH, replicas=replicas, prefix_cache=None
    )
    return msgspec.structs.replace(loaded, tiers=(tier,))


def tokens_per_s(tokens_each: int, *, streams: bool) -> float:
    """Generate tokens at a full batch: ``streams`` keeps every instant and stops at each end of a job."""
    server = alone()
    fleet, name = Fleet(server, keep_tokens=streams), server.tiers[0].name
    rng = np.random.default_rng(2)
    for number in range(4 * BATCH):
        fleet.submit(name, Job(number, 200, int(rng.integers(tokens_each // 2, tokens_each))), 0)
    generated = 0

    def run() -> None:
        nonlocal generated
        while fleet.own_jobs:
            for _, step in fleet.advance_to_finish(2**62):
                generated += step.generated_tokens

    took = timed(run)
    kept = "every instant kept" if streams else "first and last instants kept"
    print(f"tokens: {generated} at batch {BATCH}, {kept}: {took}, {generated / took.cpu_s / 1e6:.1f} M/s")
    return generated / took.cpu_s


def day(hours: float, replicas: int) -> None:
    """Offer a fleet 5 requests a second of Azure's conversation lengths (2023): 1,155 tokens in, 211 out."""
    rng = np.random.default_rng(3)
    count = round(hours * 3600 * 5)
    at_ns = np.cumsum(rng.exponential(0.2e9, count)).astype(np.int64)
    prompts = np.clip(rng.lognormal(np.log(1155) - 0.4, 0.9, count), 1, 14_000).astype(np.int64)
    outputs = np.clip(rng.lognormal(np.log(211) - 0.3, 0.8, count), 1, 1000).astype(np.int64)
    loaded = config.load(PROFILE)
    goal = Goal(ttft_s=2.0, tpot_s=0.08, goodput_ratio=0.0)
    took = timed(lambda: serve(loaded, loaded.tiers[0], replicas, Offered(at_ns, prompts, outputs), goal))
    print(
        f"capacity: {count} requests in {hours:g} h, {int(outputs.sum())} tokens, {replicas} replicas: "
        f"{took}, a day in {took.cpu_s * 24 / hours:.0f} s"
    )


def memory() -> None:
    """Peak memory of a fleet's simulation for more requests and for more tokens each."""
    loaded, goal = config.load(PROFILE), Goal(3600.0, 60.0, 0.0)
    peaks = []
    for count, tokens in ((200, 100), (200, 400), (800, 100)):
        what = Offered(np.arange(count) * 10**9, np.full(count, 100), np.full(count, tokens))
        tracemalloc.start()
        serve(loaded, loaded.tiers[0], 1, what, goal)
        peaks.append(f"{count} requests of {tokens} tokens {tracemalloc.get_traced_memory()[1] / 1e3:.0f} kB")
        tracemalloc.stop()
    print(f"memory: {'; '.join(peaks)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Virtual time.")
    parser.add_argument("--trace", type=Path, help="a Mooncake trace (JSONL)")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="within half a minute")
    arguments = parser.parse_args()
    print(machine.describe())
    requests = simulated(arguments.trace, arguments.requests)
    streams = tokens_per_s(2000 if arguments.quick else 10_000, streams=True)
    tokens_per_s(2000 if arguments.quick else 10_000, streams=False)
    day(0.5 if arguments.quick else 24.0, replicas=4)
    memory()
    print(f"virtual time: {requests}, {streams / 1e6:.1f} million simulated tokens/s at batch {BATCH}")


if __name__ == "__main__":
    main()
