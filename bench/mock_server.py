"""A mock server as a child process on a core of its own, whose steps last as long as one wants."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet

from bench.reference import cpu_seconds
from mockserver import config, roofline
from mockserver.config import ServerConfig
from mockserver.hardware import Deployment

_END_S = 60


@dataclass(frozen=True, slots=True)
class Use:
    """CPU that a process has used so far, and how much of it in the engines; seconds of each."""

    cpu_s: float
    engine_s: float


def steady(streams: int, step_s: float) -> ServerConfig:
    """One tier without noise or hidden load, whose steps with so many streams take ``step_s``.

    Hardware is made up to be fast; what is missing of the step is overhead, so that it stays the same while
    contexts grow.
    """
    fast = Deployment(chip="B200", model="Llama-3.1-8B", chips=64, mfu_ratio=1.0, layer_overhead_s=0.0,
                      step_overhead_s=0.0, sequence_overhead_s=0.0, all_reduce_s=0.0)  # fmt: skip
    alone_s = roofline.step_s(roofline.law(fast), float(streams), 300.0 * streams)
    if alone_s > step_s:
        raise SystemExit(
            f"steps of {step_s * 1e3:g} ms cannot be made; the law alone takes {alone_s * 1e3:g} ms"
        )
    deployment = msgspec.structs.replace(fast, step_overhead_s=step_s - alone_s)
    tier = config.TierConfig(name="steady", max_batch=2 * streams, noise_ratio=0.0)
    return ServerConfig(name="steady", deployment=deployment, tiers=(tier,))


class MockServer:
    """A running server. Its steps are known once its context has ended."""

    def __init__(self, url: str, begun_s: float, pid: int) -> None:
        self.url, self._begun_s, self._pid = url, begun_s, pid
        self._lags_ns = self._ended_ns = np.zeros(0, dtype=np.int64)

    def lags_s(self, begin_s: float, end_s: float) -> NDArray[np.float64]:
        """How late steps were handed out that ended between two instants of CLOCK_MONOTONIC."""
        ended_s = self._begun_s + self._ended_ns / 1e9
        return self._lags_ns[(ended_s >= begin_s) & (ended_s < end_s)] / 1e9

    def read_log(self, log: Path) -> None:
        """Take the steps that generated tokens from the server's log."""
        steps = parquet.read_table(log, columns=["t_end_ns", "generated_tokens", "lag_ns"])
        brought = steps.column("generated_tokens").to_numpy() > 0
        self._lags_ns = steps.column("lag_ns").to_numpy()[brought]
        self._ended_ns = steps.column("t_end_ns").to_numpy()[brought]

    def use(self) -> Use:
        """What the process has used so far."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
        (spent,) = (family for family in families if family.name == "mockserver_engine_seconds")
        return Use(cpu_seconds(self._pid), spent.samples[0].value)


@contextmanager
def mock_server(server_config: ServerConfig, cpu: int) -> Iterator[MockServer]:
    """Run a server on one core; after the context its step log has been read."""
    with tempfile.TemporaryDirectory() as folder:
        profile, log = Path(folder) / "profile.json", Path(folder) / "steps.parquet"
        profile.write_bytes(msgspec.json.encode(server_config))
        argv = [sys.executable, str(Path(__file__)), str(profile), str(log)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            os.sched_setaffinity(child.pid, {cpu})
            assert child.stdout is not None
            url, begun_s = child.stdout.readline().split()
            server = MockServer(url, float(begun_s), child.pid)
            try:
                yield server
            finally:
                child.terminate()
                try:
                    child.wait(_END_S)
                except subprocess.TimeoutExpired:
                    child.kill()
        server.read_log(log)


def main() -> None:
    """In the child: serve a configuration that stands in a JSON file."""
    from mockserver import serving

    profile, log = sys.argv[1:]
    server_config = msgspec.json.decode(Path(profile).read_bytes(), type=ServerConfig)

    def ready(url: str) -> None:
        print(url, time.monotonic(), flush=True)  # a few ms after the zero of its instants

    serving.serve(server_config, host="127.0.0.1", port=0, step_log=Path(log), ready=ready)


if __name__ == "__main__":
    main()
