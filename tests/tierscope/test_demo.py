"""The demo, with a plan of a few seconds: its own server, its own run, its own report."""

import json
import re
from pathlib import Path

import pytest

from tierscope import demo

PLAN = """
name = "short"
[workload]
prompt_tokens = [64]
output_tokens = 16
[[tiers]]
name = "standard"
body = { service_tier = "default" }
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[stages]]
name = "compare"
requests = 16
arrivals = { kind = "closed", streams = 4 }
"""


def test_the_demo_serves_runs_reports_and_tells_the_truth_it_was_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "short.toml"
    plan.write_text(PLAN)
    monkeypatch.setattr(demo, "PLAN", str(plan))
    out = tmp_path / "out"
    demo.run_demo(profile="fast-tier", out=out, seed=5)
    said = capfd.readouterr().out
    assert str(out / "report.html") in said
    assert (out / "report.html").stat().st_size > 10_000
    report = json.loads((out / "report.json").read_text())
    assert [(tier["tier"], tier["outcomes"]) for tier in report["tiers"]] == [
        ("standard", {"ok": 8}),
        ("fast", {"ok": 8}),
    ]
    assert report["runs"][0]["seed"] == 5
    assert re.search(r"own count, .* a batch of \d+ on standard, \d+ on fast$", said, re.MULTILINE)


def test_true_batches_are_tokens_over_steps_between_two_readings() -> None:
    page = """# TYPE x counter
vllm:generation_tokens_total{{model_name="mock",tier="a"}} {0}
vllm:generation_tokens_total{{model_name="mock",tier="idle"}} 7.0
vllm:iteration_tokens_total_count{{model_name="mock",tier="a"}} {1}
vllm:iteration_tokens_total_count{{model_name="mock",tier="idle"}} 3.0
"""
    assert demo.true_batches(page.format(100.0, 10.0), page.format(1300.0, 40.0)) == {"a": 40.0}
