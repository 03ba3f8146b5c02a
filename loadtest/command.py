"""The command line that runs a plan under Locust, for whoever starts it as a child process. Pure."""

from collections.abc import Sequence
from pathlib import Path

from loadtest.plan import Target


def locust_argv(
    plan: str,
    *,
    target: Target,
    out: Path,
    seed: int | None = None,
    run_id: str | None = None,
    metrics_port: int = 0,
    insecure: bool = False,
    ca_file: Path | None = None,
    stamps: str = "auto",
    web: bool = False,
    workers: int = 0,
    parent_pid: int | None = None,
    extra: Sequence[str] = (),
) -> list[str]:
    """Give the arguments after the Python interpreter; ``extra`` is passed on to Locust as it is.

    The child prints progress on stderr and exits 0 (complete), 2 (bad input) or 3 (the run failed), each of
    the last two with one line. Its key comes from its environment. ``metrics_port`` 0 means no metrics, and
    ``workers`` 0 that the process sends itself. It ends soon after the process ``parent_pid``.
    """
    argv = ["-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--plan", plan]
    argv += ["--host", target.url, "--model", target.model, "--api", target.api, "--out", str(out)]
    argv += ["--metrics-port", str(metrics_port)]
    argv += [] if seed is None else ["--seed", str(seed)]
    argv += [] if run_id is None else ["--run-id", run_id]
    argv += ["--insecure"] if insecure else []
    argv += [] if ca_file is None else ["--ca-file", str(ca_file)]
    argv += [] if stamps == "auto" else ["--stamps", stamps]
    argv += ["--workers", str(workers)] if workers else []
    argv += [] if parent_pid is None else ["--parent-pid", str(parent_pid)]
    argv += [] if web else ["--headless"]
    return [*argv, *extra]


def worker_argv(master_port: int, *, parent_pid: int, stamps: str = "auto") -> list[str]:
    """Give the arguments of a worker on this machine; what is run it hears from its master."""
    argv = ["-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--worker"]
    argv += ["--master-port", str(master_port), "--parent-pid", str(parent_pid)]
    return [*argv, "--stamps", stamps]
