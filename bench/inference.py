"""What the analysis can say of servers that it has never seen: each target with the figure reached.

python bench/inference.py [--quick] [--servers 200] [--seed 7] [--workers 2]

Draws servers (``servers``), plays plans against them in virtual time, reads the run folders back (``trials``)
and prints one row per target. "not built" stands where the analysis has no such answer.
"""

import argparse
import math
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import servers
from bench.trials import Outcome, trial

QUICK_SERVERS, SERVERS = 20, 200


@dataclass(frozen=True)
class Row:
    """A target, how its figure is got, and when it is met."""

    what: str
    target: str
    figure: Callable[[list[Outcome]], tuple[float, str]] | None
    met: Callable[[float], bool] = math.isfinite


def _share(outcomes: list[Outcome], name: str) -> tuple[float, str]:
    values = [getattr(one, name) for one in outcomes if getattr(one, name) is not None]
    if not values:
        return math.nan, "no case"
    return sum(values) / len(
        values
    ), f"{100 * sum(values) / len(values):.1f} % ({sum(values)} of {len(values)})"


def _rms(outcomes: list[Outcome], name: str) -> tuple[float, str]:
    values = np.array([value for one in outcomes for value in getattr(one, name)])
    if not values.size:
        return math.nan, "no case"
    figure = float(np.sqrt(np.mean(values**2)))
    return figure, f"{figure:.4f} ({values.size} values, worst {np.abs(values).max():.3f})"


def _prefill(outcomes: list[Outcome]) -> tuple[float, str]:
    figure, said = _rms(outcomes, "prefill_errors")
    return figure, f"{said}; {sum(one.prefill_open for one in outcomes)} open"


def _factor(outcomes: list[Outcome], name: str) -> tuple[float, str]:
    values = np.array([value for one in outcomes if (value := getattr(one, name)) is not None])
    if not values.size:
        return math.nan, "no case"
    factor = float(np.exp(np.median(np.abs(values))))
    return factor, f"{factor:.3f} ({values.size} claimed)"


def _hidden(outcomes: list[Outcome]) -> tuple[float, str]:
    factor, said = _factor(outcomes, "hidden_error")
    return factor, f"{said.removesuffix(')')}, {sum(one.hidden_open for one in outcomes)} not identified)"


def _within(outcomes: list[Outcome]) -> tuple[float, str]:
    values = [abs(one.hidden_error) for one in outcomes if one.hidden_error is not None]
    if not values:
        return math.nan, "no case"
    good = sum(value <= math.log(1.25) for value in values)
    return good / len(values), f"{100 * good / len(values):.1f} % ({good} of {len(values)})"


def _power(outcomes: list[Outcome], busy: bool) -> tuple[float, str]:
    return _share([one for one in outcomes if one.busy == busy], "conclusive")


def _auc(outcomes: list[Outcome]) -> tuple[float, str]:
    values = [one.auc for one in outcomes if one.auc is not None]
    if not values:
        return math.nan, "no case"
    shares = [abs(one.share_error) for one in outcomes if one.share_error is not None]
    auc = f"{np.mean(values):.3f} mean, {min(values):.3f} worst of {len(values)}"
    return float(np.mean(values)), f"{auc}; share off by {np.mean(shares):.3f}"


def _mechanism(outcomes: list[Outcome]) -> tuple[float, str]:
    right = [one.answered == servers.ANSWERS[one.kind] for one in outcomes]  # type: ignore[index]
    named = sum(one.named for one in outcomes)
    figure = sum(right) / len(right)
    return figure, f"{figure:.3f} ({sum(right)} of {len(right)}; {named} right or said to be open)"


def _price(outcomes: list[Outcome]) -> tuple[float, str]:
    values = [one.price_error for one in outcomes if one.price_error is not None]
    return (max(values), f"off by {max(values):.1e} at most") if values else (math.nan, "no case")


def _blind(outcomes: list[Outcome]) -> tuple[float, str]:
    values = [claimed for one in outcomes for claimed in one.blind]
    if not values:
        return math.nan, "no case"
    return sum(values) / len(values), f"{sum(values)} of {len(values)} claimed a batch"


def _covered(outcomes: list[Outcome]) -> tuple[float, str]:
    values = [held for one in outcomes for held in one.covered]
    if not values:
        return math.nan, "no case"
    return sum(values) / len(values), f"{sum(values)} of {len(values)}"


ROWS = (
    Row("largest batch exact", "≥ 95 %", partial(_share, name="largest_exact"), lambda x: x >= 0.95),
    Row("clean curve, RMSE of ln step", "≤ 0.01", partial(_rms, name="curve_errors"), lambda x: x <= 0.01),
    Row("hidden batch by a calibrated curve, median factor", "≤ 1.15", _hidden, lambda x: x <= 1.15),
    Row("the same within 25 %", "≥ 80 %", _within, lambda x: x >= 0.8),
    Row(
        "the same, coverage of the 95 % interval",
        "0.90 to 0.98",
        partial(_share, name="hidden_covered"),
        lambda x: 0.9 <= x <= 0.98,
    ),
    Row(
        "the same from histograms, median factor",
        "≤ 1.2",
        partial(_factor, name="binned_error"),
        lambda x: x <= 1.2,
    ),
    Row("hidden batch by white box, coverage where claimed", "≥ 0.90", _covered, lambda x: x >= 0.9),
    Row("prefill ratio where known, RMSE of ln", "≤ 0.03", _prefill, lambda x: x <= 0.03),
    Row("decode falsely changed, N = 80", "≤ 8 %", partial(_share, name="decode_false"), lambda x: x <= 0.08),
    Row(
        "prefill falsely unchanged at +10 %",
        "≤ 5 %",
        partial(_share, name="edge_false"),
        lambda x: x <= 0.05,
    ),
    Row("joint power, busy, N = 160", "≥ 90 %", partial(_power, busy=True), lambda x: x >= 0.9),
    Row("joint power, idle, N = 160", "≥ 85 %", partial(_power, busy=False), lambda x: x >= 0.85),
    Row("fallback AUC above a step ratio of 1.25", "≥ 0.93", _auc, lambda x: x >= 0.93),
    Row("mechanism", "≥ 0.80", _mechanism, lambda x: x >= 0.8),
    Row("price algebra", "exact", _price, lambda x: x < 1e-9),
    Row("ε < 0.1 without a sweep", "not identified", _blind, lambda x: x == 0),
)


def table(outcomes: list[Outcome]) -> list[str]:
    """The rows of the table in Markdown."""
    lines = ["| what | target | figure | met |", "|---|---|---|---|"]
    for row in ROWS:
        if row.figure is None:
            lines.append(f"| {row.what} | {row.target} | not built | – |")
            continue
        value, said = row.figure(outcomes)
        met = "–" if math.isnan(value) else "yes" if row.met(value) else "NO"
        lines.append(f"| {row.what} | {row.target} | {said} | {met} |")
    return lines


def confusion(outcomes: list[Outcome]) -> list[str]:
    """What was answered for each mechanism."""
    counts = Counter((one.kind, one.answered) for one in outcomes)
    return [f"{kind} → {answer}: {count}" for (kind, answer), count in sorted(counts.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description="Figures of inference on servers drawn anew.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SERVERS} servers, smaller sweeps")
    parser.add_argument("--servers", type=int, default=None)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    count = arguments.servers or (QUICK_SERVERS if arguments.quick else SERVERS)
    started = time.monotonic()
    work = partial(trial, seed=arguments.seed, quick=arguments.quick)
    with get_context("spawn").Pool(arguments.workers) as pool:
        outcomes = pool.map(work, range(count), chunksize=1)
    print(f"Python {platform.python_version()}, {platform.machine()}, tierscope {version('tierscope')}")
    print(f"{count} servers, seed {arguments.seed}, {time.monotonic() - started:.0f} s\n")
    print("\n".join(table(outcomes)), end="\n\n")
    print("\n".join(confusion(outcomes)))


if __name__ == "__main__":
    main()
