"""How fast the mock server's engine is in virtual time, mode by mode, and what memory it needs.

    python bench/engine.py [--quick] [--repeats N]

One engine on one core, a batch of 64 that is always full, under the law of ``h100-70b``; nothing but
``submit`` and ``advance`` is timed, in CPU time. Of several repeats the best is printed: whatever else the
machine does only adds. ``memory``: the peak of allocations (tracemalloc) of runs in which outputs are ten
times as long, with as many requests.
"""

import argparse
import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import machine
from mockserver import config, roofline
from mockserver.engine import Engine, Job, Limits
from mockserver.tier_config import PrefixCache, Speculation

BATCH, PROMPT = 64, 500
SHOWN = "outputs of 200 tokens"


@dataclass(frozen=True, slots=True)
class Case:
    """An engine and the jobs that keep it full."""

    name: str
    engine: Callable[[], Engine]
    output_tokens: int = 200
    blocks: bool = False


def engine(**more: Any) -> Engine:
    """A fresh one, whose limits and options differ as said."""
    law = roofline.law(config.load("h100-70b").deployment)
    bounds: dict[str, Any] = {
        "max_batch": BATCH,
        "step_tokens": 16_384,
        "prefill_tokens": 8192,
        "kv_tokens": 10**6,
    }
    bounds |= {key: more.pop(key) for key in list(more) if key in Limits.__slots__}
    return Engine(roofline.step_function(law), Limits(**bounds), noise_ratio=0.01, **more)


CASES = (
    Case(SHOWN, engine),
    Case("the same, tokens not kept", lambda: engine(keep_tokens=False)),
    Case("outputs of 20 tokens", engine, 20),
    Case("outputs of 2,000 tokens", engine, 2000),
    Case("prefill pauses decoding", lambda: engine(prefill="pause")),
    Case("static batches", lambda: engine(batching="static")),
    Case("KV by need, often full", lambda: engine(kv_tokens=38_000, when_kv_is_full="preempt")),
    Case("prefix cache, half of a prompt hits", lambda: engine(prefix_cache=PrefixCache()), blocks=True),
    Case("speculation, 2.5 tokens a step", lambda: engine(speculation=Speculation())),
)


def jobs(case: Case, tokens: int) -> list[Job]:
    """As many as generate so many tokens, in whole batches."""
    count = max(2 * BATCH, tokens // case.output_tokens // BATCH * BATCH)
    half, whole = PROMPT // 32, (PROMPT + case.output_tokens) // 16
    common = tuple(range(half)) if case.blocks else ()
    return [
        Job(
            number,
            PROMPT,
            case.output_tokens,
            blocks=common + tuple(range(number * 10**6, number * 10**6 + whole - half))
            if case.blocks
            else (),
        )
        for number in range(1, count + 1)
    ]


def run(case: Case, tokens: int) -> tuple[int, int, float]:
    """Tokens, steps and CPU seconds of one run."""
    server, queue = case.engine(), jobs(case, tokens)
    steps = generated = now_ns = 0
    gc.collect()
    begun = time.process_time()
    for job in queue:
        server.submit(job, 0)
    while server.own_jobs:
        now_ns += 10**9
        for step in server.advance(now_ns):
            steps, generated = steps + 1, generated + step.generated_tokens
    return generated, steps, time.process_time() - begun


def peak_bytes(output_tokens: int, requests: int) -> int:
    """The most that is allocated while so many requests run, their results thrown away."""
    server = engine(keep_tokens=False)
    tracemalloc.start()
    now_ns = 0
    for number in range(requests):
        server.submit(Job(number, PROMPT, output_tokens), 0)
    while server.own_jobs:
        now_ns += 10**9
        server.advance(now_ns)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer tokens, within 15 s")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, {machine.cores()[0]})
    print(machine.describe())
    tokens = 400_000 if options.quick else 4_000_000
    shown = 0.0
    for case in CASES:
        generated, steps, seconds = min(
            (run(case, tokens) for _ in range(options.repeats)), key=lambda result: result[2]
        )
        rate = generated / seconds
        shown = rate if case.name == SHOWN else shown
        print(
            f"{case.name:36} {rate / 1e6:6.2f} M tokens/s  {seconds / steps * 1e6:6.2f} µs a step", flush=True
        )
    requests = 500 if options.quick else 4000
    peaks = [peak_bytes(length, requests) / requests for length in (100, 1000)]
    print(f"memory: {peaks[0]:,.0f} bytes a request of 100 tokens, {peaks[1]:,.0f} of 1,000")
    print(f"engine: {shown:,.0f} simulated tokens/s at batch {BATCH}")


if __name__ == "__main__":
    main()
