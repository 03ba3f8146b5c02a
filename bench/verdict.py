"""Is the verdict right? Seeds of a profile whose fast tier is real, and of two whose tiers are identical.

python bench/verdict.py [--seeds 10] [--first 1]

Runs the shipped plan ``ab`` in virtual time and reports it as ``tierscope simulate`` and ``tierscope report``
would. The last line is the figure.
"""

import argparse
import contextlib
import io
import platform
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from analysis.analyze import analyze
from analysis.model import Report
from tierscope.simulate import simulate_run

TWO_BUSY = str(Path(__file__).parent / "profiles/two-busy.toml")
EXPECTED = {
    "fast-tier": {"decode changed, prefill unchanged"},
    "no-change": {"neither changed", "inconclusive"},
    TWO_BUSY: {"neither changed", "inconclusive"},
}


def reported(profile: str, seed: int) -> Report:
    """Simulate and analyse one run."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(io.StringIO()):
            simulate_run("ab", profile=profile, seed=seed, out=Path(folder) / "run")
        return analyze([Path(folder) / "run"])


def row(profile: str, seed: int, report: Report) -> str:
    verdict = report.verdict
    decode, prefill = verdict.decode, verdict.prefill
    cells = [Path(profile).stem, str(seed), verdict.conclusion]
    for test in (decode, prefill):
        ratio = test.speed_ratio if test is not None else None
        known = ratio is not None and None not in (ratio.value, ratio.low, ratio.high)
        cells.append(f"{ratio.value:.3f} ({ratio.low:.3f}–{ratio.high:.3f})" if ratio and known else "–")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Verdict over seeds.")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}, tierscope {version('tierscope')}\n")
    table = [
        "| profile | seed | conclusion | decode ratio (95 %) | prefill ratio (95 %) |",
        "|---|---|---|---|---|",
    ]
    right: Counter[str] = Counter()
    for profile, allowed in EXPECTED.items():
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            report = reported(profile, seed)
            right[profile] += report.verdict.conclusion in allowed
            table.append(row(profile, seed, report))
    print("\n".join(table), end="\n\n")
    print(", ".join(f"{Path(name).stem}: {right[name]} of {arguments.seeds} right" for name in EXPECTED))


if __name__ == "__main__":
    main()
