"""What the load generator costs and how well it stamps, against a server whose sending instants are known.

    python bench/client.py [--quick] [--repeats N] [--only PART ...] [--peers DIR]

The reference server (``bench/reference_server.py``) runs on one core and the client, as users run it, on
another. Printed per number of streams, errors as absolute values against the server's own instants:

- CPU time of the client per token, all in (user and system, everything but start-up), and the ratio to the
  least a client in Python can do (``bench/raw_client.py``), which was run right before: a faster or slower
  machine cancels out of it;
- TTFT error: the client's TTFT minus (first token sent − request arrived at the server's socket);
- ITL error: a gap as the client saw it minus the same gap as it was sent;
- the error of the first token's stamp alone, the share of tokens that came in one read with an earlier one;
- the server's own lateness and load: where its core is full, the row says nothing of the client.

``spread``: lengths differ, so that streams do not all end at once. ``one grid``: all streams send at the
same instants. ``half a core``: the client is stopped (SIGSTOP) for 10 of every 20 ms. ``user stamps``: the
client's own clock instead of the kernel's. Other load testers are run in the same way, on the same core, if
``--peers`` names a folder of theirs (``bench/peers.py``).
"""

import argparse
import os
from pathlib import Path

from bench import cases, limits, machine, peers
from bench.cases import CASES, QUICK, SHOWN, Case, Figures

PARTS = ("streams", "saturation", "lag", "short", "memory", "start", "peers")
LEVELS = (500, 1000, 1250, 1500, 1750, 2000)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help=f"only {SHOWN}, within 40 s")
    parser.add_argument("--repeats", type=int, default=1, help="of each row; medians and ranges are printed")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to run; default: all")
    parser.add_argument("--case", help="rows whose name holds this, of the first part")
    parser.add_argument("--requests", type=int, default=200_000, help="of the part `memory`")
    parser.add_argument("--peers", type=Path, default=peers.FOLDER, help=f"default: {peers.FOLDER}")
    options = parser.parse_args()
    cores = machine.cores()
    os.sched_setaffinity(0, {cores[0]})
    print(machine.describe(), *(f"caution: {caution}" for caution in machine.cautions(cores)), sep="\n")
    figures = streams(QUICK, 1, cores) if options.quick else full(options, cores)
    if SHOWN in figures:
        case = next(case for case in (*QUICK, *CASES) if case.name == SHOWN)
        print(f"\n{cases.last_line(case, figures[SHOWN])}")


def full(options: argparse.Namespace, cores: tuple[int, int]) -> dict[str, list[Figures]]:
    """Run the parts that were asked for."""
    figures: dict[str, list[Figures]] = {}
    chosen = [case for case in CASES if options.case is None or options.case in case.name]
    for part in options.only:
        if part == "streams":
            figures = streams(chosen, options.repeats, cores)
        elif part == "saturation":
            limits.saturation(cores, LEVELS)
        elif part == "lag":
            limits.schedule_lag(cores, seconds=10)
        elif part == "short":
            limits.short_requests(cores)
        elif part == "memory":
            limits.memory(cores, options.requests)
        elif part == "start":
            limits.start_up(cores, max(3, options.repeats))
        else:
            peers.table(options.peers, cores)
    return figures


def streams(
    chosen: tuple[Case, ...] | list[Case], repeats: int, cores: tuple[int, int]
) -> dict[str, list[Figures]]:
    """Measure the cases; repeats of all rows alternate, so that a drift of the machine hits them alike."""
    print(f"\nserver: TTFT 100 ms, {cases.TOKENS} tokens a request\n{cases.HEADER}", flush=True)
    found: dict[str, list[Figures]] = {case.name: [] for case in chosen}
    for turn in range(repeats):
        for case in chosen:
            try:
                found[case.name].append(cases.measure(case, cores, raw=True))
            except SystemExit as failure:
                print(f"{case.name:17s} not measured: {failure}")
                continue
            if turn == repeats - 1:
                print(cases.line(case, found[case.name]), flush=True)
    return {name: runs for name, runs in found.items() if runs}


if __name__ == "__main__":
    main()
