"""Other load testers against the same server on the same core: what they cost and how well they measure.

    python bench/peers.py [--peers DIR] [--install] [--only NAME ...] [--streams 64] [--waves 3]

Each tool lives in an environment of its own, DIR/NAME, which ``--install`` makes; one that is not there is
passed over with a line. Nothing needs a network when it runs: the tokenizer is made here. Printed per tool:

- start-up CPU: all its processes, until the server sees the first request;
- CPU per token from then until the last token was sent, and what it used after that, to the end of its last
  process: evaluation of results, for ours the packing of columns;
- TTFT error against the server's own instants, with its sign: the mean, and the 99th percentile of the size.
  Definitions differ (AIPerf counts connecting, for one), and that is part of what a reader of a report gets;
- ITL error where the tool tells single gaps; connections that brought requests; requests that
  were answered in full and are not among those the tool reports.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import machine, truth
from bench.peer_commands import COMMANDS, LEFT_OUT, OURS, PACKAGES, Job
from bench.peer_results import READERS, Seen
from bench.process_tree import TreeCpu
from bench.reference import Pace, reference_server
from bench.stamp_errors import Spread, spread
from bench.truth import Answer

FOLDER = Path(tempfile.gettempdir()) / "tierscope-peers"
TOKENS = 100
_LONGEST_S = 600
_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
HEADER = (
    "tool             start-up CPU s  CPU µs/token  end CPU s  requests/s  TTFT error ms mean     p99"
    "  ITL error ms p50     p99  connections  lost  server late ms p99"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A tool's run, from outside: CPU seconds before, during and after its requests, and what was served."""

    start_cpu_s: float
    cpu_s: float
    end_cpu_s: float
    answers: list[Answer]
    seen: list[Seen]


class PeerErrors(NamedTuple):
    """A tool's figures minus the truth; ``gap`` is None if it tells no single gaps."""

    ttft: Spread
    gap: Spread | None


class PeerError(Exception):
    """A tool could not be run, or left nothing to read; the sentence says why."""


def run(name: str, folder: Path, streams: int, waves: int, cores: tuple[int, int]) -> Outcome:
    """Run one tool. Raises PeerError."""
    with tempfile.TemporaryDirectory() as place:
        job_folder = Path(place)
        if name != OURS:
            shutil.copytree(folder / "tokenizer", job_folder / "tokenizer")
        with reference_server(Pace(), cores[0]) as reference:
            job = Job(reference.url, streams, streams * waves, TOKENS, "./tokenizer", job_folder / "out")
            argv = COMMANDS[name](job)
            argv[0] = sys.executable if name == OURS else str(folder / name / "bin" / argv[0])
            cpu = _execute(argv, job_folder, cores[1])
        answers = [answer for answer in reference.answers if len(answer.sent_ns) == TOKENS]
        if not answers:
            raise PeerError(f"it sent no request: {_last_line(job_folder / 'log')}")
        try:
            seen = READERS[name](job.out)
        except (OSError, KeyError, ValueError, TypeError) as error:
            raise PeerError(
                f"its results cannot be read: {error}; {_last_line(job_folder / 'log')}"
            ) from error
    start_cpu_s = cpu.until(answers[0].arrived_ns)
    served_cpu_s = cpu.until(max(answer.sent_ns[-1] for answer in answers))
    return Outcome(start_cpu_s, served_cpu_s - start_cpu_s, cpu.total_s - served_cpu_s, answers, seen)


def _execute(argv: list[str], folder: Path, cpu: int) -> TreeCpu:
    """Run a command on one core until it ends; gives the CPU time of all its processes."""
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            env=_environment(argv[0], folder),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    os.sched_setaffinity(child.pid, {cpu})
    watched = TreeCpu(child.pid)
    over = threading.Timer(_LONGEST_S, watched.kill)
    over.start()
    try:
        watched.watch()
    finally:
        over.cancel()
        watched.kill()
    return watched


def _environment(program: str, folder: Path) -> dict[str, str]:
    """Variables that keep a tool local. AIPerf finds no tokenizer folder when it is told to stay offline."""
    offline = {} if program.endswith("aiperf") else _OFFLINE
    return os.environ | offline | {"HOME": str(folder), "NO_PROXY": "127.0.0.1", "DO_NOT_TRACK": "1"}


def compare(seen: Sequence[Seen], answers: Sequence[Answer]) -> PeerErrors:
    """Set a tool's figures against the truth.

    Tools send no request id of ours, so requests are joined in the order of starting; the server answers all
    in the same time, so that a swap of two does no harm. Where a tool lost some, the truth is the median.
    """
    paired = len(seen) == len(answers)
    usual_ns = float(np.median([answer.ttft_ns for answer in answers]))
    ttft = [
        one.ttft_s * 1e9 - (answers[place].ttft_ns if paired else usual_ns) for place, one in enumerate(seen)
    ]
    gaps = [
        np.asarray(one.gaps_s[: TOKENS - 1]) * 1e9 - np.diff(answer.sent_ns)
        for one, answer in zip(seen, answers, strict=False)
        if paired and len(one.gaps_s) >= TOKENS - 1
    ]
    return PeerErrors(spread(ttft), spread(np.concatenate(gaps)) if gaps else None)


def line(name: str, found: Outcome) -> str:
    """One row of the table."""
    errors = compare(found.seen, found.answers)
    gap = errors.gap
    span_s = (found.answers[-1].sent_ns[-1] - found.answers[0].arrived_ns) / 1e9
    gaps = f"{gap.p50_s * 1e3:16.3f}  {gap.p99_s * 1e3:6.2f}" if gap else f"{'–':>16s}  {'–':>6s}"
    return (
        f"{name:15s} {found.start_cpu_s:15.1f}  {found.cpu_s * 1e6 / (len(found.answers) * TOKENS):12.0f}"
        f"  {found.end_cpu_s:9.1f}  {len(found.answers) / span_s:10.1f}  {errors.ttft.mean_s * 1e3:+18.2f}"
        f"  {errors.ttft.p99_s * 1e3:6.2f}"
        f"  {gaps}  {truth.connections(found.answers):11d}  {len(found.answers) - len(found.seen):4d}"
        f"  {truth.late_p99_s(found.answers) * 1e3:18.1f}"
    )


def table(
    folder: Path, cores: tuple[int, int], *, streams: int = 64, waves: int = 3, only: Sequence[str] = ()
) -> None:
    """Run the tools that are installed under ``folder``, and print a row for each."""
    print(f"\nOther tools: {streams} streams, {streams * waves} requests, TTFT 100 ms, 20 ms per token")
    print(HEADER)
    for name in only or COMMANDS:
        if name != OURS and not (folder / name / "bin").is_dir():
            print(f"{name:15s} is not installed in {folder} (bench/peers.py --install)")
            continue
        try:
            print(line(name, run(name, folder, streams, waves, cores)), flush=True)
        except PeerError as error:
            print(f"{name:15s} was not measured: {error}", flush=True)


def install(folder: Path, python: str, only: Sequence[str] = ()) -> None:
    """Make an environment for each tool, and the tokenizer all use. One that fails is said and left out."""
    for name in only or PACKAGES:
        done = folder / name / "installed"
        if not done.exists():
            print(f"installing {name}", flush=True)
            try:
                _install(name, folder / name, python)
            except (OSError, subprocess.CalledProcessError) as error:
                print(f"{name} could not be installed: {error}")
                continue
            done.touch()
        if not (folder / "tokenizer").is_dir():
            script = Path(__file__).with_name("tokenizer_folder.py")
            argv = [str(folder / name / "bin" / "python"), str(script), str(folder / "tokenizer")]
            subprocess.run(argv, check=True)


def _install(name: str, place: Path, python: str) -> None:
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q"]
    *before, tool = PACKAGES[name]
    if before:
        subprocess.run([*pip, *before], check=True)
    left_out = LEFT_OUT.get(name)
    if left_out is None:
        subprocess.run([*pip, tool], check=True)
        return
    subprocess.run([*pip, "--no-deps", tool], check=True)
    package = re.split(r"[=<>\[ ]", tool)[0]
    code = f"from importlib.metadata import requires; print('\\n'.join(requires({package!r}) or []))"
    asked = subprocess.run([pip[0], "-c", code], check=True, capture_output=True, text=True).stdout
    rest = [
        need
        for need in asked.splitlines()
        if "extra ==" not in need and not need.startswith((*left_out, "torch="))
    ]
    subprocess.run([*pip, *rest], check=True)


def _last_line(log: Path) -> str:
    lines = [text for text in log.read_text("utf-8", "replace").splitlines() if text.strip()]
    return lines[-1].strip()[:200] if lines else "it said nothing"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, default=FOLDER, help=f"default: {FOLDER}")
    parser.add_argument("--install", action="store_true", help="make what is missing (network, GBs)")
    parser.add_argument("--python", default=sys.executable, help="for --install; inference-perf needs 3.12")
    parser.add_argument("--only", nargs="+", choices=tuple(COMMANDS), default=())
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--waves", type=int, default=3)
    options = parser.parse_args()
    if options.install:
        install(options.peers, options.python, options.only)
    cores = machine.cores()
    os.sched_setaffinity(0, {cores[0]})
    print(machine.describe(), *(f"caution: {caution}" for caution in machine.cautions(cores)), sep="\n")
    started_s = time.monotonic()
    table(options.peers, cores, streams=options.streams, waves=options.waves, only=options.only)
    print(f"\n{time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    main()
