"""llama.cpp's own metrics, recorded beside a run: the true batch of a server that we did not write."""

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest import records, server_samples
from loadtest.server_truth import truth
from tests.real.llama import Llama

OUTPUT_TOKENS = 12
PLAN = f"""
name = "watched"
[workload]
prompt_tokens = [16]
output_tokens = {OUTPUT_TOKENS}
tokens_per_word = 1.5
[[stages]]
name = "c4"
requests = 10
arrivals = {{ kind = "closed", streams = 4 }}
"""

pytestmark = [pytest.mark.real_engine, pytest.mark.slow]


def test_the_batch_that_was_recorded_beside_a_run_is_the_servers(llama: Llama, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    before = llama.metric("tokens_predicted_total"), llama.metric("n_decode_total")
    words = ["run", tmp_path / "plan.toml", "--url", llama.url, "--out", tmp_path / "run"]
    words += ["--metrics-port", "0", "--scrape", "auto"]
    argv = [sys.executable, "-m", "tierscope", *map(str, words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    after = llama.metric("tokens_predicted_total"), llama.metric("n_decode_total")

    samples = server_samples.read(tmp_path / "run")
    assert samples is not None
    assert (samples.notes, [scrape.trouble for scrape in samples.scrapes if scrape.trouble]) == ([], [])
    found = truth(samples)
    assert found is not None
    assert found.engine == "llamacpp"
    tokens = sum(record.output_tokens or 0 for record in records.read_run(tmp_path / "run").records)
    assert samples.increase("llamacpp:tokens_predicted_total") == after[0] - before[0] == tokens
    assert found.mean_batch == pytest.approx(tokens / (after[1] - before[1]))
    assert 1 <= (found.running_max or 0) <= 4
