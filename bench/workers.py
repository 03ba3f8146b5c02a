"""Nothing is lost between several processes: what the server saw against what a run of workers tells of it.

python bench/workers.py [--runs 10] [--workers 2]

Runs the front door against ``tierscope serve``; every second run is stopped in mid-stream. The server's own
count, the records, Locust's statistics and the metrics page must agree in each; the server need not know of
requests that were cancelled before it answered. The last line is the figure.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.machine import describe
from loadtest.records import read_run

PLAN = """
name = "workers"
[workload]
prompt_tokens = [32, 256]
output_tokens = 40
tokens_per_word = 1
[[tiers]]
name = "standard"
body = { service_tier = "default" }
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[stages]]
name = "closed"
requests = 60
arrivals = { kind = "closed", streams = 15 }
[[stages]]
name = "open"
duration_s = 3
arrivals = { kind = "poisson", rate_per_s = 40 }
"""
STOPS_S = (0.6, 1.2, 5.0, 6.0, 0.9)
"""When the second, fourth, … run is stopped, from its first answer on."""
SETTLE_S = 20.0
HEADER = "  run  ended         server  records  cancelled  Locust  page  workers"


@dataclass(frozen=True)
class Counts:
    """One run, counted in four places."""

    server: int
    records: int
    cancelled: int
    unanswered: int
    """Cancelled before any answer: the server may or may not have begun to count them."""
    locust: int
    page: int
    workers: list[int]

    @property
    def agree(self) -> bool:
        """Whether all say the same, and something."""
        each = {self.records, self.locust, self.page, sum(self.workers)}
        seen = self.records - self.unanswered <= self.server <= self.records
        return len(each) == 1 and seen and self.records > 0


def main() -> int:
    """Do the runs, print a line each; 0 if all agree."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print(f"{describe()}\n{options.workers} workers\n{HEADER}")
    agreeing = 0
    with tempfile.TemporaryDirectory() as name, _server() as server:
        url = re.search(r"http://\S+", server.stdout.readline() if server.stdout else "")
        assert url is not None
        for number in range(1, options.runs + 1):
            stop_s = None if number % 2 else STOPS_S[(number // 2 - 1) % len(STOPS_S)]
            counts = one_run(Path(name) / str(number), url[0], workers=options.workers, stop_s=stop_s)
            agreeing += counts.agree
            print(
                f"  {number:3}  {'at its end' if stop_s is None else f'stopped {stop_s:4.1f} s':12}"
                f"  {counts.server:6}  {counts.records:7}  {counts.cancelled:9}  {counts.locust:6}"
                f"  {counts.page:4}  {counts.workers}{'' if counts.agree else '  <- they differ'}",
                flush=True,
            )
        server.terminate()
    print(f"workers: {agreeing} of {options.runs} runs agree in every count")
    return 0 if agreeing == options.runs else 1


def _server() -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tierscope", "serve", "fast-tier", "--port", "0"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def one_run(folder: Path, url: str, *, workers: int, stop_s: float | None) -> Counts:
    """Run the plan to its end, or interrupt it ``stop_s`` after its first request; count in every place."""
    folder.mkdir()
    (folder / "plan.toml").write_text(PLAN)
    before = ended_at(url)
    argv = [sys.executable, "-m", "tierscope", "run", str(folder / "plan.toml"), "--url", url]
    argv += ["--workers", str(workers), "--metrics-port", "0", "--out", str(folder / "run")]
    argv += ["--", "--csv", str(folder / "stats")]
    run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if stop_s is not None:
        while ended_at(url) == before and run.poll() is None:
            time.sleep(0.02)
        time.sleep(stop_s)
        run.send_signal(signal.SIGINT)
    run.wait()
    found = read_run(folder / "run")
    return Counts(
        server=_settled(url, before + len(found.records)) - before,
        records=len(found.records),
        cancelled=Counter(record.outcome for record in found.records)["cancelled"],
        unanswered=sum(
            record.outcome == "cancelled" and record.headers_ns is None for record in found.records
        ),
        locust=_locust(folder / "stats_stats.csv"),
        page=_sum(r"^tierscope_requests_total\{.*\} (\S+)$", (folder / "run" / "metrics.prom").read_text()),
        workers=[worker.requests for worker in found.info.workers],
    )


def ended_at(url: str) -> int:
    """How many requests have ended at the server, those that a client broke off included."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/metrics", timeout=10) as response:
        return _sum(r"^vllm:request_success_total\{.*\} (\S+)$", response.read().decode())


def _settled(url: str, expected: int) -> int:
    """The server's count once it is the expected one, or after 20 s: it hears late of broken connections."""
    deadline_s = time.monotonic() + SETTLE_S
    while (count := ended_at(url)) != expected and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return count


def _locust(path: Path) -> int:
    cells = [row.split(",") for row in path.read_text().splitlines()[1:]]
    return sum(int(count) for kind, _, count, *_ in cells if kind == "E2E")


def _sum(pattern: str, page: str) -> int:
    return sum(int(float(value)) for value in re.findall(pattern, page, flags=re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main())
