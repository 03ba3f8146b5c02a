"""How often is the verdict right, by kind of server and number of requests? Power and false claims.

python bench/power.py [--seeds 20] [--first 1000] [--only WORD]

Plays the shipped plan ``ab`` in virtual time against servers that the analysis was not made on, and counts
the
"""

import argparse
import platform
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from analysis.analyze import analyze
from analysis.model import Verdict
from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Target
from loadtest.records import RunInfo
from mockserver.config import HiddenLoad, ServerConfig, TierConfig
from mockserver.hardware import Deployment
from tierscope.simulate import simulate

EXPERTS = Deployment(chip="B200", chips=8, model="DeepSeek-V3", weight_bits=8)
DENSE = Deployment(chip="H100", chips=8, model="Llama-3.1-70B", weight_bits=8)
IDLE = HiddenLoad(prompt_tokens=2000, output_tokens=1500)
BUSY = HiddenLoad(prompt_tokens=3000, output_tokens=600)
SIZES = (40, 80, 160)


def server(deployment: Deployment, batches: tuple[int, int], hidden: HiddenLoad, **fast: Any) -> ServerConfig:
    """A server with a standard and a fast tier; ``fast`` overrides the deployment of the second."""
    names = (("standard", "default"), ("fast", "priority"))
    return ServerConfig(
        name="power",
        deployment=deployment,
        tiers=tuple(
            TierConfig(
                name=name,
                service_tiers=(value,),
                max_batch=256,
                target_batch=batch,
                hidden=hidden,
                deployment=fast if name == "fast" else {},
            )
            for (name, value), batch in zip(names, batches, strict=True)
        ),
    )


# What it is, what is true of (decode, prefill), and the server. "edge": a change of exactly the margin.
SERVERS: list[tuple[str, tuple[str, str], ServerConfig]] = [
    ("experts, 48 against 6, idle", ("changed", "unchanged"), server(EXPERTS, (48, 6), IDLE)),
    ("experts, 48 against 6, busy", ("changed", "unchanged"), server(EXPERTS, (48, 6), BUSY)),
    ("dense, 48 against 8, idle", ("changed", "unchanged"), server(DENSE, (48, 8), IDLE)),
    ("dense, 48 against 8, busy", ("changed", "unchanged"), server(DENSE, (48, 8), BUSY)),
    ("dense, 24 against 8, busy", ("changed", "unchanged"), server(DENSE, (24, 8), BUSY)),
    ("dense, equal, busy", ("unchanged", "unchanged"), server(DENSE, (32, 32), BUSY)),
    ("dense, nobody else", ("unchanged", "unchanged"), server(DENSE, (0, 0), IDLE)),
    ("dense, prefill +10 %, idle", ("unchanged", "edge"), server(DENSE, (32, 32), IDLE, mfu_ratio=0.765)),
    ("dense, prefill +10 %, busy", ("unchanged", "edge"), server(DENSE, (32, 32), BUSY, mfu_ratio=0.765)),
    ("dense, newer chip", ("changed", "changed"), server(DENSE, (32, 32), IDLE, chip="B200")),
]


def verdict_on(config: ServerConfig, seed: int, per_tier: int) -> Verdict:
    """Play and analyse one run."""
    plan = plans.load("ab", seed=seed)
    warmup, compare = plan.stages
    plan = msgspec.structs.replace(
        plan, stages=(warmup, msgspec.structs.replace(compare, requests=2 * per_tier))
    )
    info = RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id="power",
        tierscope_version=version("tierscope"),
        target=Target(url="simulated:power", model="mock"),
        plan=plan,
        started_unix_s=0.0,
        simulated=True,
        status="complete",
    )
    with tempfile.TemporaryDirectory() as folder:
        records.write_run(Path(folder), info, simulate(plan, msgspec.structs.replace(config, seed=seed)))
        return analyze([Path(folder)]).verdict


def main() -> None:
    parser = argparse.ArgumentParser(description="Power of the verdict.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--only", default="", help="servers whose description holds this word")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, tierscope {version('tierscope')}\n")
    print("| server | requests per tier | decode right / open / wrong | prefill right / open / wrong |")
    print("|---|---|---|---|")
    false: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for name, truths, config in SERVERS:
        for per_tier in SIZES:
            if arguments.only not in name:
                continue
            counts: list[Counter[str]] = [Counter(), Counter()]
            for seed in range(arguments.first, arguments.first + arguments.seeds):
                found = verdict_on(config, seed, per_tier)
                assert found.decode is not None
                assert found.prefill is not None
                answers = (found.decode.answer, found.prefill.answer)
                for what, count, answer, truth in zip(
                    ("decode", "prefill"), counts, answers, truths, strict=True
                ):
                    graded = grade(answer, truth)
                    count[graded] += 1
                    asked[f"{what} {truth}, {per_tier} requests"] += 1
                    false[f"{what} {truth}, {per_tier} requests"] += graded == "wrong"
            cells = [" / ".join(str(count[key]) for key in ("right", "open", "wrong")) for count in counts]
            print(f"| {name} | {per_tier} | {cells[0]} | {cells[1]} |", flush=True)
    print()
    for key, total in asked.items():
        print(f"wrong about {key}: {false[key]} of {total}")


def grade(answer: str, truth: str) -> str:
    """Grade an answer; of a change of exactly the margin only "unchanged" is wrong."""
    if answer == "inconclusive":
        return "open"
    if truth == "edge":
        return "wrong" if answer == "unchanged" else "right"
    return "right" if answer == truth else "wrong"


if __name__ == "__main__":
    main()
