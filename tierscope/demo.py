"""``tierscope demo``: a mock server with two tiers, a load test against it, a report. One command, a minute.

Nothing is faked: the server and the load generator are the processes that ``tierscope serve`` and
``tierscope run`` start, they meet over HTTP, and the report sees nothing but the client's records and the
hardware's name.
"""

import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.plan import Plan, Target
from loadtest.plan import load as load_plan
from mockserver import config as profiles
from tierscope.ask import ask_model
from tierscope.errors import ToldError
from tierscope.report import report_runs
from tierscope.run import check_end, new_run_folder, start_locust

PLAN = "ab"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


def run_demo(*, profile: str, out: Path | None, seed: int | None) -> None:
    """Serve ``profile``, run the plan ``ab`` against it, write and print the report."""
    began_s = time.monotonic()
    plan = load_plan(PLAN, seed=seed)
    profiles.load(profile)  # refuses what is none before anything is made
    folder = new_run_folder(out, plan)
    server_cpu, client_cpu = _two_cores()
    with _mock_server(profile, cpu=server_cpu) as url:
        target = Target(url=url, model=ask_model(url))
        metrics_port = _free_port()
        _say_what_runs(plan, target, profile, metrics_port)
        before = _read_metrics(url)
        code = start_locust(
            PLAN, target=target, folder=folder, seed=plan.seed, metrics_port=metrics_port, cpu=client_cpu
        )
        after = _read_metrics(url) if code == 0 else before
    check_end(folder, code)
    print()
    paths = report_runs([folder], html=None, json=folder / "report.json", md=None, hardware=profile)
    batches = [f"{batch:.0f} on {tier}" for tier, batch in true_batches(before, after).items()]
    print(f"  The mock's own count, which the report has not seen: a batch of {', '.join(batches)}")
    print(f"\n{time.monotonic() - began_s:.0f} s; open in a browser:", *paths[:1])


def _say_what_runs(plan: Plan, target: Target, profile: str, metrics_port: int) -> None:
    requests = sum(stage.requests or 0 for stage in plan.stages)
    tiers = " and ".join(tier.name for tier in plan.tiers)
    print(f"mock server {profile} on {target.url}: {requests} requests to its tiers {tiers}")
    print(f"metrics while it lasts: http://127.0.0.1:{metrics_port}/metrics", flush=True)


def _two_cores() -> tuple[int | None, int | None]:
    """A core for the server and another one for the client, or None where there are not two."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[1]) if len(cores) >= 2 else (None, None)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _mock_server(profile: str, *, cpu: int | None) -> Iterator[str]:
    """Run ``tierscope serve`` on a free port; yields its URL and stops it at the end.

    Raises ToldError with its exit code if it does not come up; it has said why itself.
    """
    argv = [sys.executable, "-m", "tierscope", "serve", profile, "--port", "0"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        if cpu is not None:
            os.sched_setaffinity(child.pid, {cpu})
        line = child.stdout.readline()
        found = re.search(r"http://\S+", line)
        if found is None:
            raise ToldError(child.wait(START_TIMEOUT_S) or 3)
        yield found[0]
    finally:
        child.terminate()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


def _read_metrics(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/metrics", timeout=10) as response:
        text: str = response.read().decode()
        return text


def true_batches(before: str, after: str) -> dict[str, float]:
    """Mean batch per tier between two readings of the mock's /metrics: Δ generated tokens / Δ steps.

    The mock counts its hidden users' tokens too, as a real server would.
    """
    tokens = _difference(before, after, "vllm:generation_tokens_total")
    steps = _difference(before, after, "vllm:iteration_tokens_total_count")
    return {tier: tokens[tier] / steps[tier] for tier in tokens if steps.get(tier, 0.0) > 0}


def _difference(before: str, after: str, name: str) -> dict[str, float]:
    first, last = _by_tier(before, name), _by_tier(after, name)
    return {tier: value - first.get(tier, 0.0) for tier, value in last.items()}


def _by_tier(text: str, name: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for labels, value in re.findall(rf"^{re.escape(name)}\{{([^}}]*)\}} (\S+)$", text, flags=re.MULTILINE):
        tier = re.search(r'tier="([^"]*)"', labels)
        if tier is not None:
            values[tier[1]] = values.get(tier[1], 0.0) + float(value)
    return values
