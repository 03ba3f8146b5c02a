"""Stopping at the verdict: how often it claims what is not so, and how many requests it saves.

python bench/sequential.py [--seeds 20] [--first 1] [--requests 320] [--only WORD]

Plays the shipped plan ``ab`` in virtual time against shipped and other profiles, looks at what had been
recorded at each planned look, and stops at the first conclusive verdict. The last line is the figure.
"""

import argparse
import platform
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import msgspec
import numpy as np

from analysis import load, sequential, table
from analysis.analyze import verdict_so_far
from analysis.model import Verdict
from loadtest import plan as plans
from loadtest import records
from loadtest.plan import Plan, Target
from loadtest.records import RequestRecord, RunInfo
from mockserver import config
from tierscope.simulate import simulate

TWO_BUSY = str(Path(__file__).parent / "profiles/two-busy.toml")
TRUTH = {
    "fast-tier": ("changed", "unchanged"),
    "no-change": ("unchanged", "unchanged"),
    TWO_BUSY: ("unchanged", "unchanged"),
}
"""Answers that are true of decode and prefill."""


def plan_of(seed: int, requests: int) -> Plan:
    """The plan ``ab`` with so many measured requests, to be stopped at its verdict."""
    plan = plans.load("ab", seed=seed)
    warmup, compare = plan.stages
    return msgspec.structs.replace(
        plan,
        stages=(warmup, msgspec.structs.replace(compare, requests=requests)),
        control=msgspec.structs.replace(plan.control, until="verdict"),
    )


def info_of(plan: Plan) -> RunInfo:
    return RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id="sequential",
        tierscope_version=version("tierscope"),
        target=Target(url="http://127.0.0.1:1", model="mock"),
        plan=plan,
        started_unix_s=0.0,
    )


def verdict_after(plan: Plan, found: list[RequestRecord], measured: int) -> Verdict:
    """The verdict once so many measured requests had ended; ``found`` in the order of their ends."""
    counted = np.cumsum([not record.warmup for record in found])
    seen = table.from_records(found[: int(np.searchsorted(counted, measured)) + 1])
    return verdict_so_far(load.from_requests([Path()], [info_of(plan)], seen, []))


def stopped(profile: str, seed: int, requests: int) -> tuple[int, Verdict]:
    """How many measured requests it took, and the verdict of the look that ended the run."""
    plan = plan_of(seed, requests)
    server = msgspec.structs.replace(config.load(profile), seed=seed)
    found = sorted(simulate(plan, server), key=lambda record: record.ended_ns)
    for share in sequential.planned_looks().shares:
        measured = round(share * requests)
        verdict = verdict_after(plan, found, measured)
        if verdict.conclusion != "inconclusive":
            break
    return measured, verdict


def main() -> None:
    parser = argparse.ArgumentParser(description="Stopping at the verdict.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--requests", type=int, default=320)
    parser.add_argument("--only", default="", help="profiles whose name holds this word")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, tierscope {version('tierscope')}\n")
    print(
        "| profile | stopped early | open at the end | wrong on decode | wrong on prefill | requests used |"
    )
    print("|---|---|---|---|---|---|")
    claims, wrong, used = 0, 0, []
    for profile, truth in TRUTH.items():
        if arguments.only not in profile:
            continue
        count: Counter[str] = Counter()
        took = []
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            measured, verdict = stopped(profile, seed, arguments.requests)
            assert verdict.decode is not None
            assert verdict.prefill is not None
            answers = (verdict.decode.answer, verdict.prefill.answer)
            took.append(measured / arguments.requests)
            count["early"] += measured < arguments.requests
            count["open"] += verdict.conclusion == "inconclusive"
            for what, answer, true in zip(("decode", "prefill"), answers, truth, strict=True):
                count[what] += answer not in (true, "inconclusive")
        claims, wrong = claims + 2 * arguments.seeds, wrong + count["decode"] + count["prefill"]
        used += took
        cells = [f"{count[key]} of {arguments.seeds}" for key in ("early", "open", "decode", "prefill")]
        print(f"| {Path(profile).stem} | {' | '.join(cells)} | {np.mean(took):.0%} |".replace("%", " %"))
    print(f"\n{wrong} of {claims} answers wrong; {np.mean(used):.0%} of the planned requests used")


if __name__ == "__main__":
    main()
