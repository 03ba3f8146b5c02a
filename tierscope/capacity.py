"""``tierscope capacity``: how many replicas keep a promise under a day of somebody's traffic."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from loadtest import traces
from loadtest.plan_workload import Trace
from loadtest.traces import TraceRows
from mockserver import config as profiles
from mockserver import trace_blocks
from mockserver.config import ServerConfig, TierConfig
from mockserver.offered import Goal, Offered, Service, alone, serve
from tierscope.capacity_table import costs, goodput, question, table
from tierscope.errors import BadInputError, RunFailedError

TraceFormat = Literal["azure", "mooncake", "qwen", "burstgpt"]
_FORMATS: tuple[TraceFormat, ...] = get_args(TraceFormat)


def plan_capacity(
    trace: Path,
    *,
    profile: str,
    tier: str | None,
    ttft_s: float,
    tpot_s: float,
    goodput_ratio: float,
    replicas: str,
    format_name: str | None,
    scale: float,
    limit: int | None,
    seed: int | None,
) -> None:
    """Find the smallest number of replicas that reaches the goal, and print what was tried.

    Raises RunFailedError if none within ``replicas`` ("LOW..HIGH") does.
    """
    low, high = _range(replicas)
    config = profiles.load(profile, seed=seed)
    chosen = _tier(config, tier)
    rows = traces.load(
        Trace(file=trace.name, format=_format(trace, format_name), limit=limit), folder=trace.parent
    )
    goal = Goal(ttft_s, tpot_s, goodput_ratio)
    offered = _offered(rows, chosen, config, scale)
    print(question(rows, offered, config, chosen, goal), flush=True)

    def try_out(count: int) -> Service:
        service = serve(config, chosen, count, offered, goal)
        print(f"  {count} replicas: {goodput(service)}", flush=True)
        return service

    _conclude(search(try_out, goal, low, high), goal, high, offered, config, chosen)


def _conclude(
    tried: list[Service], goal: Goal, high: int, offered: Offered, config: ServerConfig, tier: TierConfig
) -> None:
    """Print what was tried and what is enough; raises RunFailedError if nothing is."""
    print(table(tried, goal, config, tier))
    best = next((service for service in tried if _reaches(service, goal)), None)
    if best is None:
        raise RunFailedError(
            f"--replicas: not even {high} keep the promise to {goal.goodput_ratio:.1%} of the requests"
        )
    print(f"{best.replicas} replicas of {tier.name} are enough")
    for line in costs(best, offered, config, tier):
        print(line)


def search(try_out: Callable[[int], Service], goal: Goal, low: int, high: int) -> list[Service]:
    """Try numbers of replicas, doubling and then halving the gap, up to the smallest that reaches the goal.

    All that were tried, by their number. More replicas are taken to be no worse than fewer.
    """
    tried: dict[int, Service] = {}
    failed, count = low - 1, low
    while True:
        tried[count] = try_out(count)
        if _reaches(tried[count], goal):
            break
        failed = count
        if count == high:
            return [tried[number] for number in sorted(tried)]
        count = min(high, 2 * count)
    enough = count
    while enough - failed > 1:
        count = (failed + enough) // 2
        tried[count] = try_out(count)
        if _reaches(tried[count], goal):
            enough = count
        else:
            failed = count
    return [tried[number] for number in sorted(tried)]


def _reaches(service: Service, goal: Goal) -> bool:
    return not service.given_up and service.missed <= goal.misses_allowed(len(service.ttft_s))


def _range(replicas: str) -> tuple[int, int]:
    low, dots, high = replicas.partition("..")
    if low.isascii() and low.isdigit() and (not dots or (high.isascii() and high.isdigit())):
        first, last = int(low), int(high) if dots else int(low)
        if 1 <= first <= last <= 4096:
            return first, last
    raise BadInputError(f"--replicas: {replicas!r} is not allowed; expected 1..64 or the like, up to 4096")


def _tier(config: ServerConfig, name: str | None) -> TierConfig:
    for tier in config.tiers:
        if name in (None, tier.name):
            return tier
    names = " or ".join(tier.name for tier in config.tiers)
    raise BadInputError(f"--tier: {name!r} is no tier of {config.name}; expected {names}")


def _format(path: Path, name: str | None) -> TraceFormat:
    """The format that was named, or the one that the first line of the file shows."""
    if name is not None:
        for known in _FORMATS:
            if name == known:
                return known
        raise BadInputError(f"--format: {name!r} is not allowed; expected {', '.join(_FORMATS)}")
    try:
        with path.open("rb") as file:
            first = file.readline(100_000).decode("utf-8-sig", "replace")
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    columns = next(csv.reader([first]), [])
    if first.lstrip().startswith("{"):
        return "qwen" if '"chat_id"' in first else "mooncake"
    if "TIMESTAMP" in columns:
        return "azure"
    if "Timestamp" in columns:
        return "burstgpt"
    raise BadInputError(
        f"{path}:1: is of no trace that is known; name one with --format: {', '.join(_FORMATS)}"
    )


def _offered(rows: TraceRows, tier: TierConfig, config: ServerConfig, scale: float) -> Offered:
    cache = alone(config, tier, 1).tiers[0].prefix_cache
    id_tokens = rows.block_tokens

    def blocks(row: int) -> tuple[int, ...]:
        assert cache is not None
        assert id_tokens is not None
        return trace_blocks.of_ids(
            rows.block_ids(row).tolist(),
            id_tokens=id_tokens,
            prompt_tokens=int(rows.prompt_tokens[row]),
            block_tokens=cache.block_tokens,
            output_tokens=int(rows.output_tokens[row]),
            nobodys=row,
        )

    shares = cache is not None and rows.has_blocks and id_tokens is not None
    return Offered(
        at_ns=np.rint(rows.at_ns / scale).astype(np.int64),
        prompt_tokens=rows.prompt_tokens,
        output_tokens=rows.output_tokens,
        blocks=blocks if shares else None,
    )
