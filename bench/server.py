"""How many events a second the mock server writes on one core, and how late its steps are handed out.

    python bench/server.py [--quick] [--streams N] [--seconds S]

The server runs on one core, as users run it (uvloop where it is installed), and ``bench/event_reader.py``,
which does no more than count, on another. All streams decode together, in steps as long as the rate of events
asks for; the law, the noise and other users are out of the way. Printed per rate:

- events a second that arrived, of those that were due;
- how late steps were handed out, from the server's own log of every step (a step's last stream gets its token
  later by the time that writing to all others takes: the CPU of one event times their number);
- CPU of the server per event, and its share of the core; the engines' share of that.

``answers of 200 tokens``: each stream ends after so many and is asked for again, so that requests, heads and
ends are in it too. The last rates are more than a core can write: a host too slow for its profile writes the
tokens of several steps together, says so, and is as late as it says. At the end: ``simulated tokens``, the
engine alone in virtual time (``bench/engine.py`` has more of it).
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import engine, machine
from bench.mock_server import mock_server, steady

_COLUMNS = ("events/s", "late p50", "p99", "CPU/event", "core", "engine")
HEADER = f"{'due':36s}" + "".join(f"{name:>11s}" for name in _COLUMNS)
_WARM_S = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """Events that are due each second, and how long answers are."""

    events_per_s: float
    tokens: int | None = None
    """None: longer than what is measured."""

    @property
    def name(self) -> str:
        """What is printed for it."""
        told = "long answers" if self.tokens is None else f"answers of {self.tokens} tokens"
        return f"{self.events_per_s:,.0f} events/s, {told}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one case gave."""

    events_per_s: float
    lag_p50_s: float
    lag_p99_s: float
    cpu_s_per_event: float
    core_ratio: float
    engine_ratio: float

    @property
    def in_time(self) -> bool:
        """Whether steps were handed out when they should."""
        return self.lag_p50_s <= 0.0003 and self.lag_p99_s <= 0.002


SHOWN = Case(62_500)
CASES = (Case(20_000), Case(40_000), SHOWN, Case(62_500, 200), Case(80_000), Case(100_000), Case(150_000))
QUICK = (SHOWN, Case(62_500, 200))


def measure(case: Case, streams: int, seconds: float, cores: tuple[int, int]) -> Figures:
    """Run a server and a reader for one case."""
    reader = Path(__file__).with_name("event_reader.py")
    with mock_server(steady(streams, streams / case.events_per_s), cores[0]) as server:
        argv = [sys.executable, str(reader), "--url", server.url, "--streams", str(streams)]
        outlasts = int(case.events_per_s / streams * (_WARM_S + seconds + 5.0))
        argv += [
            "--tokens",
            str(case.tokens or outlasts),
            "--warm-s",
            str(_WARM_S),
            "--seconds",
            str(seconds),
        ]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            os.sched_setaffinity(child.pid, {cores[1]})
            assert child.stdout is not None
            child.stdout.readline()
            before = server.use()
            found = json.loads(child.stdout.readline())
            after = server.use()
    cpu_s, engine_s = after.cpu_s - before.cpu_s, after.engine_s - before.engine_s
    lag_p50_s, lag_p99_s = np.quantile(server.lags_s(found["begin_s"], found["end_s"]), (0.5, 0.99))
    return Figures(
        events_per_s=found["events"] / (found["end_s"] - found["begin_s"]),
        lag_p50_s=float(lag_p50_s),
        lag_p99_s=float(lag_p99_s),
        cpu_s_per_event=cpu_s / max(1, found["events"]),
        core_ratio=cpu_s / (found["end_s"] - found["begin_s"]),
        engine_ratio=engine_s / max(cpu_s, 1e-9),
    )


def line(case: Case, found: Figures) -> str:
    """One row of the table."""
    told = (
        f"{found.events_per_s:,.0f}",
        f"{found.lag_p50_s * 1e3:.2f} ms",
        f"{found.lag_p99_s * 1e3:.2f} ms",
        f"{found.cpu_s_per_event * 1e6:.2f} µs",
        f"{found.core_ratio:.0%}",
        f"{found.engine_ratio:.1%}",
    )
    return f"{case.name:36s}" + "".join(f"{value:>11s}" for value in told)


def simulated_tokens_per_s() -> float:
    """Tokens a second of the engine alone, the best of three."""
    shown = next(case for case in engine.CASES if case.name == engine.SHOWN)
    runs = [engine.run(shown, 400_000) for _ in range(3)]
    return max(tokens / cpu_s for tokens, _, cpu_s in runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two rates only, within 40 s")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--seconds", type=float, help="of each rate; default: 10, with --quick 5")
    options = parser.parse_args()
    cores, seconds = machine.cores(), options.seconds or (5.0 if options.quick else 10.0)
    os.sched_setaffinity(0, {cores[1]})
    print(machine.describe(), *(f"caution: {caution}" for caution in machine.cautions(cores)), sep="\n")
    print(f"\n{options.streams} streams, {seconds:g} s a rate\n{HEADER}", flush=True)
    figures = {}
    for case in QUICK if options.quick else CASES:
        figures[case] = measure(case, options.streams, seconds, cores)
        print(line(case, figures[case]), flush=True)
    in_time = [found.events_per_s for found in figures.values() if found.in_time]
    most = max(in_time, default=0.0)
    print(f"\nthe most that came with steps late by p50 ≤ 0.3 ms, p99 ≤ 2 ms: {most:,.0f} events/s")
    shown, tokens_per_s = figures[SHOWN], simulated_tokens_per_s()
    print(
        f"server: steps of {options.streams} streams late by p50 {shown.lag_p50_s * 1e3:.2f} ms, "
        f"p99 {shown.lag_p99_s * 1e3:.2f} ms, engine {shown.engine_ratio:.1%} of its CPU, "
        f"{shown.events_per_s:,.0f} events/s, {tokens_per_s:,.0f} simulated tokens/s"
    )


if __name__ == "__main__":
    main()
