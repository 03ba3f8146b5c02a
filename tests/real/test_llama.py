"""``run`` and ``report`` against a server that we did not write: llama.cpp with a real 270 M model."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from loadtest import records
from tests.real.llama import PARALLEL, Llama

OUTPUT_TOKENS = 24
PLAN = f"""
name = "small-sweep"
[workload]
prompt_tokens = [16]
output_tokens = {OUTPUT_TOKENS}
tokens_per_word = 1
[[stages]]
name = "warmup"
warmup = true
requests = 1
arrivals = {{ kind = "closed", streams = 1 }}
[[stages]]
name = "c1"
requests = 3
arrivals = {{ kind = "closed", streams = 1 }}
[[stages]]
name = "c4"
requests = 12
arrivals = {{ kind = "closed", streams = 4 }}
[[stages]]
name = "c8"
requests = 16
arrivals = {{ kind = "closed", streams = 8 }}
[[stages]]
name = "c16"
requests = 32
arrivals = {{ kind = "closed", streams = 16 }}
"""

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]


@dataclass(frozen=True)
class Sweep:
    run: records.Run
    report: dict[str, Any]
    generated_tokens: float
    steps: float


@pytest.fixture(scope="module")
def sweep(llama: Llama, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "plan.toml").write_text(PLAN)
    before = llama.metric("tokens_predicted_total"), llama.metric("n_decode_total")
    out = folder / "run"
    tierscope("run", folder / "plan.toml", "--url", llama.url, "--out", out, "--metrics-port", "0")
    after = llama.metric("tokens_predicted_total"), llama.metric("n_decode_total")
    tierscope("report", out, "--json", folder / "report.json")
    return Sweep(
        run=records.read_run(out),
        report=json.loads((folder / "report.json").read_text()),
        generated_tokens=after[0] - before[0],
        steps=after[1] - before[1],
    )


def tierscope(*words: object) -> None:
    argv = [sys.executable, "-m", "tierscope", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr


def test_every_request_to_the_real_server_is_recorded_and_ended_well(sweep: Sweep) -> None:
    assert sweep.run.info.status == "complete"
    assert sweep.run.notes == []
    assert Counter(record.outcome for record in sweep.run.records) == {"ok": 64}
    assert [record.index for record in sweep.run.records] == list(range(64))


def test_tokens_are_those_that_the_server_counted(sweep: Sweep) -> None:
    counted = [record.output_tokens or 0 for record in sweep.run.records]
    assert all(record.tokens_source == "usage" for record in sweep.run.records)
    assert sum(counted) == sweep.generated_tokens
    assert set(counted) == {OUTPUT_TOKENS}
    assert all(
        (record.prompt_tokens or 0) > 16 for record in sweep.run.records
    )  # its chat template adds some


def test_the_largest_batch_inferred_is_the_parallelism_in_force(sweep: Sweep) -> None:
    answers = [answer for answer in sweep.report["batch"] if answer["quantity"] == "max batch"]
    assert len(answers) == 1
    assert answers[0]["identified"]
    assert answers[0]["estimate"]["value"] == PARALLEL


def test_a_larger_batch_makes_a_slower_step_and_the_report_saw_it(sweep: Sweep) -> None:
    step_s = {p["active_streams"]: p["step_s"]["value"] for p in sweep.report["figures"]["sweep"]}
    # 19, 104 and 98 ms on two busy cores: four and eight are told apart by a machine with nothing else to do.
    assert step_s[1] < min(step_s[4], step_s[8])
    # On average more than one sequence shared a step, by the server's own count.
    assert sweep.generated_tokens / sweep.steps > 2


def test_one_tier_alone_gets_no_tier_verdict(sweep: Sweep) -> None:
    assert sweep.report["verdict"]["conclusion"] == "inconclusive"
