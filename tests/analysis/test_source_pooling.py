"""Several files: what belongs together is pooled, arms are compared if measured side by side."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.analyze import analyze
from analysis.load import Loaded
from analysis.model import Report
from analysis.sources import inputs, withheld
from tierscope.errors import BadInputError

HUNDRED = Path(__file__).parent.parent / "data" / "peers" / "hundred"
BEGIN_NS = 1_795_972_613_000_000_000


def aiperf(path: Path, *, step_ms: float, first_s: float = 0.0, seed: int = 1, count: int = 60) -> Path:
    """A file as AIPerf writes it, of requests every 0.5 s with gaps about a step and two prompt lengths."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8") as file:
        for place in range(count):
            prompt = 128 if place % 2 else 8192
            ttft_ms = 40 + prompt / 80 + rng.exponential(2.0)
            gaps = (step_ms * np.exp(rng.normal(0, 0.03, 31))).tolist()
            start_ns = BEGIN_NS + round((first_s + 0.5 * place + 0.2 * rng.random()) * 1e9)
            metrics: dict[str, Any] = {
                "time_to_first_token": {"value": ttft_ms, "unit": "ms"},
                "inter_chunk_latency": {"value": gaps, "unit": "ms"},
                "request_latency": {"value": ttft_ms + sum(gaps), "unit": "ms"},
                "usage_completion_tokens": {"value": 32, "unit": "tokens"},
                "usage_prompt_tokens": {"value": prompt, "unit": "tokens"},
            }
            meta = {"request_start_ns": start_ns, "benchmark_phase": "profiling"}
            file.write(json.dumps({"metadata": meta, "metrics": metrics}) + "\n")
    return path


def reported(*names: str, **options: Any) -> Report:
    loaded = inputs.read([inputs.parse(name) for name in names])
    assert isinstance(loaded, Loaded)
    return withheld.withhold(analyze(loaded, **options), loaded)


def test_arms_that_were_measured_side_by_side_are_compared(tmp_path: Path) -> None:
    slow = aiperf(tmp_path / "slow", step_ms=20.0)
    fast = aiperf(tmp_path / "fast", step_ms=10.0, first_s=0.25, seed=2)
    report = reported(f"standard={slow}", f"fast={fast}")
    assert report.verdict.conclusion == "decode changed, prefill unchanged"
    assert report.verdict.decode is not None
    ratio = report.verdict.decode.speed_ratio
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 2.0 < ratio.high
    assert (report.verdict.baseline_tier, report.verdict.compared_tier) == ("standard", "fast")
    assert sum(piece.started for piece in report.figures.timeline) == 120


def test_arms_that_were_measured_one_after_the_other_are_not_compared(tmp_path: Path) -> None:
    slow = aiperf(tmp_path / "slow", step_ms=20.0)
    fast = aiperf(tmp_path / "fast", step_ms=10.0, first_s=40.0, seed=2)
    report = reported(f"standard={slow}", f"fast={fast}")
    assert report.verdict.conclusion == "inconclusive"
    assert "a drift of the server would pass for a difference of the tiers" in report.verdict.sentence
    assert report.verdict.sentence in report.headline
    assert (report.verdict.decode, report.verdict.prefill) == (None, None)
    assert not [one for one in report.batch if one.method.startswith("two tiers")]
    assert (report.mechanism, report.fallback) == (None, None)
    steps = {tier.tier: tier.step_s.value for tier in report.tiers}
    assert steps["standard"] == pytest.approx(0.020, rel=0.02)
    assert steps["fast"] == pytest.approx(0.010, rel=0.02)


def test_clocks_of_their_own_leave_open_what_was_measured_when(tmp_path: Path) -> None:
    own = (HUNDRED / "vllm.json").read_bytes()
    other = tmp_path / "other.json"
    other.write_bytes(own.replace(b'"label":null', b'"label":"b"'))
    report = reported(f"a={HUNDRED / 'vllm.json'}", f"b={other}")
    assert "on a clock of its own" in report.verdict.sentence
    assert report.verdict.decode is None


def test_other_numbers_of_streams_are_levels_of_one_sweep(tmp_path: Path) -> None:
    own = json.loads((HUNDRED / "vllm.json").read_bytes())
    own["max_concurrency"] = 8
    other = tmp_path / "eight.json"
    other.write_text(json.dumps(own), encoding="utf-8")
    report = reported(str(HUNDRED / "vllm.json"), str(other))
    assert [point.streams for point in report.figures.sweep] == [4, 8]
    assert {point.active_streams for point in report.figures.sweep} == {4}
    for point in report.figures.sweep:
        assert point.step_s.value == pytest.approx(0.020, rel=0.02)


def test_a_comparison_that_cannot_be_made_is_exit_code_1(tmp_path: Path) -> None:
    from tierscope.cli import main

    a, b = HUNDRED / "llmperf_groq_70b.json", HUNDRED / "llmperf_perplexity_70b.json"
    assert main(["report", f"a={a}", f"b={b}", "--out", str(tmp_path / "r.html")]) == 1


def test_a_batch_asked_of_a_file_without_gaps_is_exit_code_1(tmp_path: Path) -> None:
    from tierscope.cli import main

    options = ["--hardware", "fast-tier", "--out", str(tmp_path / "r.html")]
    assert main(["report", str(HUNDRED / "guidellm.json"), *options]) == 1


def test_a_report_never_takes_the_place_of_what_it_is_made_from(tmp_path: Path) -> None:
    from tierscope.report import report_runs

    own = tmp_path / "result.json"
    own.write_bytes((HUNDRED / "vllm.json").read_bytes())
    for name in (own, Path(f"a={own}")):
        with pytest.raises(BadInputError, match=r"--json: .*result.json is what the report is made from"):
            report_runs([name], html=None, json=own, md=None, hardware=None)
    assert own.read_bytes() == (HUNDRED / "vllm.json").read_bytes()


def copy(folder: Path) -> list[str]:
    (folder / "copy").write_bytes((HUNDRED / "vllm.json").read_bytes())
    return [str(HUNDRED / "vllm.json"), str(folder / "copy")]


def half_named(folder: Path) -> list[str]:
    return [f"a={HUNDRED / 'vllm.json'}", str(aiperf(folder / "x", step_ms=10))]


def model_of_another_name(folder: Path) -> list[str]:
    text = (HUNDRED / "vllm.json").read_text("utf-8")
    (folder / "other").write_text(text.replace('"model_id":"mock"', '"model_id":"other"'), "utf-8")
    return [str(HUNDRED / "vllm.json"), str(folder / "other")]


def folder_and_file(folder: Path) -> list[str]:
    return [str(folder), str(HUNDRED / "vllm.json")]


STRANGERS: dict[str, Callable[[Path], list[str]]] = {
    "has the same content": copy,
    "write TIER=FILE for all files or for none": half_named,
    "model: 'other' differs from 'mock'": model_of_another_name,
    "is a folder and": folder_and_file,
    "tool: 'AIPerf' differs from 'vLLM bench serve'": lambda _: [
        str(HUNDRED / "vllm.json"),
        str(HUNDRED / "aiperf.jsonl"),
    ],
    "is given twice": lambda _: [str(HUNDRED / "vllm.json")] * 2,
    "distributions and": lambda _: [str(HUNDRED / "vllm_summary.json"), str(HUNDRED / "vllm.json")],
    "is reported on by itself": lambda _: [
        str(HUNDRED / "vllm_summary.json"),
        str(HUNDRED / "aiperf_summary.json"),
    ],
    "is not there": lambda folder: [str(folder / "none"), str(HUNDRED / "vllm.json")],
    "is a run folder, which names its tiers itself": lambda folder: [f"fast={folder}"],
    "nothing was given": lambda _: [],
}


@pytest.mark.parametrize("said", sorted(STRANGERS))
def test_files_that_do_not_belong_together_are_refused_in_one_line(said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        inputs.read([inputs.parse(name) for name in STRANGERS[said](tmp_path)])
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
