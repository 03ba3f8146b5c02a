"""The recording rules against closed forms, computed by promtool's own rule tester."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from grafana.stack import Stack, files

STEP_S = 15
BOUNDS = ("0.1", "0.2", "1", "2", "4", "8", "30", "60", "90", "+Inf")
Sample = tuple[dict[str, str], float]


def _promtool(*arguments: str, cwd: Path) -> str:
    if shutil.which("promtool") is None:
        message = "promtool is not installed (Debian package prometheus); the rules were NOT checked"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    done = subprocess.run(
        ["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _write(folder: Path, stack: Stack) -> None:
    for place, content in files(stack).items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(content)


def _series(name: str, per_step: int, **labels: str) -> dict[str, str]:
    inside = ", ".join(f'{key}="{value}"' for key, value in (_WHERE | labels).items())
    return {"series": f"{name}{{{inside}}}", "values": f"0+{per_step}x20"}


def _histogram(name: str, counts: dict[str, int], **labels: str) -> list[dict[str, str]]:
    """Cumulative buckets that grow by ``counts`` (upper bound → observations) each step."""
    total, found = 0, []
    for bound in BOUNDS:
        total += counts.get(bound, 0)
        found.append(_series(f"{name}_bucket", total, **labels, le=bound))
    return found


_WHERE = {"job": "j", "instance": "i", "model": "m"}


def _run(folder: Path, series: list[dict[str, str]], expected: dict[str, list[Sample]]) -> None:
    """Let promtool evaluate the rules over ``series`` and compare, each value to four decimals."""
    _write(folder, Stack())
    checks = [
        {
            "expr": f"round({record}, 0.0001)",
            "eval_time": "4m",
            "exp_samples": [
                {"labels": "{" + ", ".join(f'{k}="{v}"' for k, v in labels.items()) + "}", "value": value}
                for labels, value in samples
            ],
        }
        for record, samples in expected.items()
    ]
    test = {"interval": f"{STEP_S}s", "input_series": series, "promql_expr_test": checks}
    document = {
        "rule_files": ["prometheus/rules.yml"],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [test],
    }
    (folder / "test.yml").write_text(json.dumps(document))  # JSON is YAML
    assert "SUCCESS" in _promtool("test", "rules", "test.yml", cwd=folder)


@pytest.mark.parametrize("interval_s", [0.5, 1.0, 30.0])
def test_promtool_accepts_configuration_and_rules(tmp_path: Path, interval_s: float) -> None:
    # Debian 12's Prometheus 2.42 does not know native histograms from classic ones.
    _write(tmp_path, Stack(native_histograms=False, scrape_interval_s=interval_s, baseline_tier="default"))
    assert "rules found" in _promtool("check", "config", "prometheus/prometheus.yml", cwd=tmp_path)


def test_quantiles_are_those_of_all_requests_of_a_tier(tmp_path: Path) -> None:
    ttft, otps = "tierscope_ttft_seconds", "tierscope_otps_tokens_per_second"
    series = [
        *_histogram(ttft, {"0.2": 10}, requested_tier="standard", prompt_class="128"),
        *_histogram(ttft, {"2": 30}, requested_tier="standard", prompt_class="2048"),
        *_histogram(otps, {"60": 10}, requested_tier="standard", prompt_class="128"),
        *_histogram("tierscope_itl_seconds", {}, requested_tier="standard", prompt_class="128"),
    ]
    tier = {"job": "j", "model": "m", "requested_tier": "standard"}
    expected: dict[str, list[Sample]] = {
        # The 20th of 40: 10 lie below, so it is a third of the way through (1, 2].
        "tier:tierscope_ttft_seconds:p50": [(tier, 1.3333)],
        # The 38th of 40: 28/30 of the way.
        "tier:tierscope_ttft_seconds:p95": [(tier, 1.9333)],
        "tier:tierscope_otps_tokens_per_second:p50": [(tier, 45.0)],
        "tier:tierscope_itl_seconds:p50": [],  # announced, never observed: no series, not NaN
    }
    _run(tmp_path, series, expected)


def test_ratios_pair_prompt_classes_however_many_requests_each_tier_sent(tmp_path: Path) -> None:
    ttft, otps = "tierscope_ttft_seconds", "tierscope_otps_tokens_per_second"
    series = [
        *_histogram(ttft, {"0.2": 10}, requested_tier="standard", prompt_class="128"),  # 0.15
        *_histogram(ttft, {"0.1": 10}, requested_tier="fast", prompt_class="128"),  # 0.05: a third
        *_histogram(ttft, {"2": 10}, requested_tier="standard", prompt_class="2048"),  # 1.5
        *_histogram(ttft, {"4": 900}, requested_tier="fast", prompt_class="2048"),  # 3: twice
        *_histogram(ttft, {"8": 10}, requested_tier="standard", prompt_class="8192"),
        *_histogram(ttft, {}, requested_tier="fast", prompt_class="8192"),  # not seen: left out
        *_histogram(otps, {"60": 10}, requested_tier="standard", prompt_class="128"),  # 45
        *_histogram(otps, {"90": 10}, requested_tier="fast", prompt_class="128"),  # 75
    ]
    fast = {"job": "j", "instance": "i", "requested_tier": "fast"}
    expected: dict[str, list[Sample]] = {
        "tier:tierscope_ttft:ratio_to_baseline": [(fast, 0.8165)],  # sqrt(2/3)
        "tier:tierscope_otps:ratio_to_baseline": [(fast, 1.6667)],
        # (3 - 0.05) / (6 - 0.15); the standard tier's (4, 8] is 6
        "tier:tierscope_ttft_increment:ratio_to_baseline": [(fast, 0.5043)],
    }
    _run(tmp_path, series, expected)


def test_failures_are_a_share_of_the_requests_that_ended(tmp_path: Path) -> None:
    requests = "tierscope_requests_total"
    series = [
        _series(requests, 3, requested_tier="standard", outcome="ok"),  # and no series of failures
        _series(requests, 9, requested_tier="fast", outcome="ok"),
        _series(requests, 3, requested_tier="fast", outcome="timeout"),
        _series(requests, 0, requested_tier="flex", outcome="ok"),
    ]
    standard, fast, flex = (
        {"job": "j", "model": "m", "requested_tier": tier} for tier in ("standard", "fast", "flex")
    )
    expected: dict[str, list[Sample]] = {
        "tier:tierscope_requests:rate": [(standard, 0.2), (fast, 0.8), (flex, 0.0)],
        "tier:tierscope_failed_requests:ratio": [(standard, 0.0), (fast, 0.25)],
    }
    _run(tmp_path, series, expected)
