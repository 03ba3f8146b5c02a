"""The front door through a proxy and TLS: the question for the model and the load take the same way."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.records import read_run
from tests.loadtest.certificates import make_certificate, secured
from tests.loadtest.peer import Peer
from tests.loadtest.tunnels import Tunnels, relay

PASSWORD, KEY = "Passwort-9", "sk-Sekret-7"
PLAN = """
name = "short"
seed = 3
[workload]
prompt_tokens = [64]
output_tokens = 8
[[tiers]]
name = "standard"
[[stages]]
name = "all"
requests = 8
arrivals = { kind = "closed", streams = 2 }
"""


@pytest.fixture
def mock_port() -> Iterator[int]:
    argv = [sys.executable, "-m", "tierscope", "serve", "fast-tier", "--port", "0"]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    found = re.search(r"http://[^:]+:(\d+)", child.stdout.readline())
    assert found is not None
    yield int(found[1])
    child.terminate()
    assert child.wait(20) == 0
    child.stdout.close()


def test_everything_goes_through_the_proxy_and_no_secret_is_left_behind(
    mock_port: int, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path, "DNS:llm.test")

    def to_the_mock(connection: socket.socket, _: int) -> None:
        with socket.create_connection(("127.0.0.1", mock_port)) as onward:
            relay(connection, onward)

    front = Peer(secured(certificate.serving(), to_the_mock))
    tunnels = Tunnels(front.port)
    middle = Peer(tunnels)
    (tmp_path / "plan.toml").write_text(PLAN)
    out = tmp_path / "run"
    argv = [sys.executable, "-m", "tierscope", "run", str(tmp_path / "plan.toml"), "--out", str(out)]
    argv += ["--url", "https://llm.test:8443", "--ca-file", str(certificate.cert), "--stamps", "user"]
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"HTTPS_PROXY": f"http://me:{PASSWORD}@127.0.0.1:{middle.port}", "TIERSCOPE_API_KEY": KEY}
    try:
        done = subprocess.run(
            [*argv, "--metrics-port", "0"],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        middle.close()
        front.close()
    assert done.returncode == 0, done.stderr
    run = read_run(out)
    assert run.info.target.model == "mock"
    assert {record.outcome for record in run.records} == {"ok"}
    assert {record.stamp_source for record in run.records} == {"user"}
    assert {head.split(b"\r\n")[0] for head in tunnels.heads} == {b"CONNECT llm.test:8443 HTTP/1.1"}
    assert len(tunnels.heads) == front.connections > 1
    assert f"https://llm.test:8443 through the proxy http://127.0.0.1:{middle.port}" in done.stderr
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    for secret in (PASSWORD, KEY):
        assert secret.encode() not in written + done.stdout.encode() + done.stderr.encode()
