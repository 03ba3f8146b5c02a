"""Our tables in Locust's web UI: what its page is told, and a whole run started from there."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flask
import msgspec
import numpy as np
import pytest

from loadtest import derive, web
from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import read_run
from loadtest.status import ClientStatus, Quantiles, Status, TierStatus

LIMIT_S = 60
STATUS = Status(
    at_s=30.0, stage="compare", stage_number=2, stages=3, warmup=False, ended=40, requests=160,
    elapsed_s=12.4, duration_s=None, started_per_s=3.25, ended_per_s=3.0, open_loop=True, in_flight=8,
    tiers=[
        TierStatus(
            tier="standard", ended=20, failed=0, ttft_s=Quantiles(0.048, 0.2, 1.34),
            itl_s=Quantiles(0.0158, 0.02, 0.03), otps_per_s=Quantiles(63.4, 64.0, 65.0),
        ),
        TierStatus(tier="fast", ended=20, failed=3),
    ],
    errors={"timeout": 3},
    client=ClientStatus(
        cpu_ratio=0.31, worst_lag_s=0.0004, hub_late_s=0.0012, stamp_source="kernel", coalesced_ratio=0.01
    ),
    cautions=["careful"],
)  # fmt: skip
PLAN = """
name = "tiny"
seed = 3
[workload]
prompt_tokens = [8, 16]
output_tokens = 5
[[tiers]]
name = "standard"
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[stages]]
name = "compare"
requests = 60
arrivals = { kind = "closed", streams = 2 }
"""


@pytest.fixture
def ui() -> SimpleNamespace:
    """What ``extend`` needs of Locust's web UI, with a page that is polled as Locust's is."""
    app = flask.Flask("ui")

    @app.route("/stats/requests")
    def polled() -> flask.Response:
        return flask.jsonify({"state": "running", "stats": []})

    @app.route("/other")
    def other() -> flask.Response:
        return flask.jsonify({"state": "running"})

    return SimpleNamespace(app=app, template_args={"kept": 1}, auth_required_if_enabled=lambda view: view)


def test_the_polled_answer_carries_rows_for_each_column_of_our_tables(ui: SimpleNamespace) -> None:
    web.extend(ui, lambda: STATUS)
    client = ui.app.test_client()
    answer = client.get("/stats/requests").get_json()
    assert answer["state"] == "running"
    rows = {one["key"]: one["data"] for one in answer["extended_stats"]}
    columns = {
        table["key"]: [column["key"] for column in table["structure"]]
        for table in ui.template_args["extended_tables"]
    }
    assert [tab["key"] for tab in ui.template_args["extended_tabs"]] == list(columns) == list(rows)
    standard, fast = rows[web.TIERS]
    assert list(standard) == columns[web.TIERS]
    assert (standard["ttft_p50"], standard["ttft_p99"]) == pytest.approx((48, 1340))
    assert (standard["itl_p50"], standard["otps_p95"]) == pytest.approx((15.8, 64.0))
    assert fast == {"name": "fast", "ended": 20, "failed": 3}
    health = {row["name"]: row["value"] for row in rows[web.CLIENT]}
    assert health["CPU of one core"] == "31%"
    assert health["worst schedule lag"] == "0.4 ms"
    assert health["failed"] == "3 timeout"
    assert health["! caution 1"] == "careful"
    assert ui.template_args["kept"] == 1


def test_other_answers_are_left_alone_and_before_a_run_tables_are_empty(ui: SimpleNamespace) -> None:
    web.extend(ui, lambda: None)
    client = ui.app.test_client()
    assert client.get("/other").get_json() == {"state": "running"}
    assert [one["data"] for one in client.get("/stats/requests").get_json()["extended_stats"]] == [[], []]
    assert client.get(web.STATUS_PATH).get_json() is None


def test_the_status_is_there_as_it_is(ui: SimpleNamespace) -> None:
    web.extend(ui, lambda: STATUS)
    assert msgspec.json.decode(ui.app.test_client().get(web.STATUS_PATH).data, type=Status) == STATUS


# A whole run


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def fetch(url: str, data: bytes | None = None) -> Any:
    with urllib.request.urlopen(url, data, timeout=10) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith(("{", "null")) else text


def wait_for(child: subprocess.Popen[str], holds: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while True:
        try:
            if holds():
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_run_that_is_started_in_the_ui_shows_its_tiers_there_and_ends_with_the_records_figures(
    server: Any, tmp_path: Path
) -> None:
    plan, port, folder = tmp_path / "tiny.toml", free_port(), tmp_path / "run"
    plan.write_text(PLAN)
    argv = locust_argv(str(plan), target=Target(url=server.url, model="m"), out=folder, web=True)
    argv += ["--web-host", "127.0.0.1", "--web-port", str(port)]
    ui = f"http://127.0.0.1:{port}"
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")}
    with subprocess.Popen(
        [sys.executable, *argv], stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        try:
            wait_for(child, lambda: "LLM tiers" in fetch(ui))
            assert fetch(f"{ui}{web.STATUS_PATH}") is None
            wait_for(child, lambda: fetch(f"{ui}/stats/requests")["state"] in ("ready", "stopped"))
            fetch(f"{ui}/swarm", b"")
            wait_for(child, (folder / "requests.parquet").exists)
            answer = fetch(f"{ui}/stats/requests")
        finally:
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=LIMIT_S)
    records = [record for record in read_run(folder).records if record.stage == "compare"]
    rows = next(one["data"] for one in answer["extended_stats"] if one["key"] == web.TIERS)
    assert sum(row["ended"] for row in rows) == len(records) == 60
    for row in rows:
        values = [derive.ttft_s(record) for record in records if record.requested_tier == row["name"]]
        expected = np.quantile([value for value in values if value is not None], (0.5, 0.95, 0.99)) * 1e3
        assert [row[f"ttft_{which}"] for which in ("p50", "p95", "p99")] == pytest.approx(expected.tolist())
