"""Other tools' result files are read as those tools mean them: their own summaries are the truth.

The files of ``hundred`` were made against a mock of 100 ms to the first token and 99 gaps of 20 ms.
"""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from analysis.analyze import analyze
from analysis.load import Loaded
from analysis.model import Metric, Report
from analysis.rendering import report_json
from analysis.sources import aggregate_report, inputs, recognise, withheld
from analysis.sources.aggregate import Aggregate
from tierscope.errors import BadInputError

PEERS = Path(__file__).parent.parent / "data" / "peers"
HUNDRED = PEERS / "hundred"


def document(name: str) -> Any:
    return json.loads((HUNDRED / name).read_text("utf-8"))


def opened(*names: str) -> Loaded:
    found = inputs.read([inputs.parse(name if "/" in name else str(HUNDRED / name)) for name in names])
    assert isinstance(found, Loaded)
    return found


@cache
def reported(*names: str) -> Report:
    loaded = opened(*names)
    return withheld.withhold(analyze(loaded), loaded)


def summary(name: str) -> Aggregate:
    found = recognise.read(HUNDRED / name)
    assert isinstance(found, Aggregate)
    return found


def told(name: str, metric: Metric) -> tuple[float | None, float | None]:
    """Mean and median of a metric as a summary file gives them."""
    (one,) = [series.shape for series in summary(name).series if series.metric == metric]
    return one.mean, one.quantile(0.5).value


def own_vllm() -> dict[Metric, float]:
    own = document("vllm.json")
    return {
        "ttft": own["mean_ttft_ms"] / 1e3,
        "tpot": own["mean_tpot_ms"] / 1e3,
        "itl": own["mean_itl_ms"] / 1e3,
        "e2e": own["mean_e2el_ms"] / 1e3,
    }


def own_aiperf() -> dict[Metric, float]:
    own = document("aiperf_summary.json")
    return {
        "ttft": own["time_to_first_token"]["avg"] / 1e3,
        "tpot": own["inter_token_latency"]["avg"] / 1e3,
        "itl": own["inter_chunk_latency"]["avg"] / 1e3,
        "otps": own["output_token_throughput_per_user"]["avg"],
        "e2e": own["request_latency"]["avg"] / 1e3,
    }


def own_inference_perf() -> dict[Metric, float]:
    own = document("inference_perf_summary.json")["successes"]["latency"]
    return {
        "ttft": own["time_to_first_token"]["mean"],
        "tpot": own["time_per_output_token"]["mean"],
        "itl": own["inter_token_latency"]["mean"],
        "e2e": own["request_latency"]["mean"],
    }


def own_guidellm() -> dict[Metric, float]:
    own = document("guidellm.json")["benchmarks"][0]["metrics"]
    return {
        "ttft": own["time_to_first_token_ms"]["successful"]["mean"] / 1e3,
        "tpot": own["inter_token_latency_ms"]["successful"]["mean"] / 1e3,
        "e2e": own["request_latency"]["successful"]["mean"],
    }


def own_genai_bench() -> dict[Metric, float]:
    own = document("genai_bench.json")["aggregated_metrics"]["stats"]
    return {"ttft": own["ttft"]["mean"], "tpot": own["tpot"]["mean"], "e2e": own["e2e_latency"]["mean"]}


OWN = {
    "vllm.json": own_vllm,
    "aiperf.jsonl": own_aiperf,
    "inference_perf.json": own_inference_perf,
    "guidellm.json": own_guidellm,
    "genai_bench.json": own_genai_bench,
}
WITH_GAPS = ["vllm.json", "aiperf.jsonl", "inference_perf.json"]
WITHOUT_GAPS = ["guidellm.json", "genai_bench.json", "llmperf_groq_70b.json"]


@pytest.mark.parametrize("name", sorted(OWN))
def test_means_are_those_that_the_tool_itself_gives(name: str) -> None:
    (tier,) = reported(name).tiers
    means = {row.metric: row.mean for row in tier.quantiles}
    for metric, own in OWN[name]().items():
        assert means[metric] == pytest.approx(own, rel=1e-6), metric
    assert tier.outcomes == {"ok": 8}
    assert (tier.prompt_tokens, tier.output_tokens) == (256, 800)


@pytest.mark.parametrize("name", WITH_GAPS)
def test_the_step_of_a_mock_of_20_ms_is_found_where_gaps_are_told(name: str) -> None:
    (tier,) = reported(name).tiers
    assert tier.step_s.value == pytest.approx(0.020, rel=0.01)
    assert tier.step_s.low is not None
    assert tier.step_s.high is not None
    assert tier.step_s.low <= tier.step_s.high


@pytest.mark.parametrize("name", WITHOUT_GAPS)
def test_a_mean_over_a_request_is_no_step_and_no_gap(name: str) -> None:
    report = reported(name)
    (tier,) = report.tiers
    rows = {row.metric: row for row in tier.quantiles}
    assert tier.step_s.value is None
    assert tier.tokens_per_s.value is None
    assert tier.tokens_per_delivery is None
    assert rows["itl"].count == 0
    assert rows["tpot"].count > 0
    assert "gaps" in report.sources[0].cannot
    assert any("not identified" in note and "step time" in note for note in report.notes)


@pytest.mark.parametrize("name", ["genai_bench.json", "llmperf_groq_70b.json"])
def test_without_starts_nothing_is_said_of_time(name: str) -> None:
    report = reported(name)
    assert report.figures.timeline == []
    (steady,) = [item for item in report.trust if item.topic == "steady state"]
    assert steady.level == "caution"
    assert "does not tell when a request was sent" in steady.sentence
    assert report.runs[0].started_unix_s is None


@pytest.mark.parametrize("name", ["vllm.json", "inference_perf.json", "genai_bench.json"])
def test_a_lateness_that_nobody_told_is_not_nought(name: str) -> None:
    rows = {row.metric: row for row in reported(name).tiers[0].quantiles}
    assert rows["lag"].count == 0
    assert rows["ttft_from_scheduled"].count == 0


@pytest.mark.parametrize("name", sorted(path.name for path in HUNDRED.iterdir() if path.suffix != ".md"))
def test_no_report_on_another_tools_file_holds_a_number_that_is_none(name: str) -> None:
    found = inputs.read([inputs.parse(str(HUNDRED / name))])
    report = aggregate_report.answer(found) if isinstance(found, Aggregate) else reported(name)
    data = report_json.encode(report)
    assert msgspec.json.decode(data, type=Report).tiers == report.tiers
    assert b"NaN" not in data


@pytest.mark.parametrize(
    ("detailed", "name"),
    [("vllm.json", "vllm_summary.json"), ("aiperf.jsonl", "aiperf_summary.json")],
)
def test_a_summary_and_the_requests_it_sums_up_agree(detailed: str, name: str) -> None:
    rows = {row.metric: row for row in reported(detailed).tiers[0].quantiles}
    for metric in ("ttft", "tpot", "e2e"):
        mean, middle = told(name, metric)
        assert rows[metric].mean == pytest.approx(mean, rel=1e-6)
        assert rows[metric].p50.value == pytest.approx(middle, rel=1e-6)


def test_evalscopes_percentiles_and_means_are_its_own() -> None:
    assert told("evalscope_percentiles.json", "ttft")[1] == pytest.approx(0.1062981)
    assert told("evalscope_summary.json", "ttft")[0] == pytest.approx(0.10541)


def test_evalscopes_table_gives_the_means_that_it_prints() -> None:
    own = json.loads((PEERS / "own_summaries.json").read_text("utf-8"))["evalscope"]
    (tier,) = reported(str(PEERS / "evalscope" / "benchmark_data.db")).tiers
    means = {row.metric: row.mean for row in tier.quantiles}
    assert means["ttft"] == pytest.approx(own["ttft_mean_ms"] / 1e3, abs=1e-5)
    assert means["itl"] == pytest.approx(own["itl_mean_ms"] / 1e3, abs=1e-5)


@pytest.mark.parametrize("name", ["llmperf_groq_70b.json", "llmperf_perplexity_70b.json"])
def test_llmperfs_latency_per_token_counts_ttft_in(name: str) -> None:
    """Its mean times the tokens never lies after the end of the request, and TPOT without TTFT is shorter."""
    good = [one for one in document(name) if one["error_code"] is None]
    for one in good:
        last_s = one["inter_token_latency_s"] * one["number_output_tokens"]
        assert -1e-6 <= one["end_to_end_latency_s"] - last_s < 0.1
    loaded = opened(name).requests
    found = loaded.column("tpot_s")[loaded.text_is("outcome", "ok")]
    own = [
        (one["inter_token_latency_s"] * one["number_output_tokens"] - one["ttft_s"])
        / (one["number_output_tokens"] - 1)
        for one in good
    ]
    assert found == pytest.approx(own, rel=1e-6)


def test_a_failure_of_another_tool_keeps_its_status() -> None:
    report = reported("llmperf_perplexity_70b.json")
    (group,) = report.errors
    assert (group.outcome, group.status, group.count) == ("rate_limited", 429, 2)


def test_vllms_gap_of_a_last_chunk_without_a_token_is_left_out() -> None:
    path = PEERS / "vllm" / "openai-chat-infqps-concurrency2-ref.json"
    raw = json.loads(path.read_text("utf-8"))
    assert {len(gaps) for gaps in raw["itls"]} == set(raw["output_lens"])
    report = reported(str(path))
    rows = {row.metric: row for row in report.tiers[0].quantiles}
    own = np.concatenate([gaps[:-1] for gaps in raw["itls"]])
    assert rows["itl"].count == own.size
    assert rows["itl"].mean == pytest.approx(own.mean(), rel=1e-6)
    assert any("brought no token" in note for note in report.notes)


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_name_says_nothing_of_a_files_kind(name: str, tmp_path: Path) -> None:
    hidden = tmp_path / "whatever.txt"
    shutil.copy(HUNDRED / name, hidden)
    found = inputs.read([inputs.parse(str(hidden))])
    assert isinstance(found, Loaded)
    assert found.sources[0].tool == opened(name).sources[0].tool


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"hello", "of no kind that is known"),
        (b"# Title\n\ntext { with braces }\n", "of no kind that is known"),
        (b"\x00\x01\x02\xff", "of no kind that is known"),
        (b"[]", "is an empty list"),
        (b"{}", "of no kind that is known"),
        (b"[1, 2]", "of no kind that is known"),
        (b'{"ttfts": [0.1], "itls"', "cut short or damaged"),
        (b'{"ttfts": [0.1], "itls": []}', "missing required field"),
        (
            b'{"ttfts": [0.1], "itls": [], "input_lens": [1], "output_lens": [1]}',
            "itls: has 0 entries; expected 1",
        ),
        (b'{"ttfts": [], "itls": [], "input_lens": [], "output_lens": []}', "holds no request"),
        (b'{"benchmarks": []}', "benchmarks: is empty"),
        (b'{"individual_request_metrics": [{"ttft": "soon"}]}', "Expected `float | null`"),
        (b'{"individual_request_metrics": [{}], "_time_unit": "h"}', "'h' is not known; expected s or ms"),
        (b'[{"ttft_s": 1e300, "end_to_end_latency_s": 1, "number_output_tokens": 2}]', "is no time"),
        (b"SQLite format 3\x00garbage", "no whole result of evalscope"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"metadata": {"request_start_ns": 1}, "metrics": {}', "cut short or damaged"),
        (b"# TYPE up gauge\nup 1\n", "no histogram that is known has any value"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInputError) as refused:
        inputs.read([inputs.parse(str(path))])
    assert said in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_line_that_is_cut_short_loses_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_bytes((HUNDRED / "aiperf.jsonl").read_bytes()[:-2000])
    report = reported(str(path))
    assert report.tiers[0].outcomes == {"ok": 7}
    assert any("line 8 is cut short and left out" in note for note in report.notes)


def test_of_many_lines_that_are_none_only_some_are_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_bytes((HUNDRED / "aiperf.jsonl").read_bytes() + b'{"metadata": 1}\n' * 1000)
    loaded = opened(str(path))
    assert len(loaded.requests) == 8
    assert len(loaded.notes) == 11
    assert "990 more lines are left out" in loaded.notes[-1]


def test_nan_as_pythons_json_writes_it_is_a_number_that_is_not_told(tmp_path: Path) -> None:
    own = document("genai_bench.json")
    own["individual_request_metrics"][0]["tpot"] = float("nan")
    path = tmp_path / "nan.json"
    path.write_text(json.dumps(own), encoding="utf-8")
    rows = {row.metric: row.count for row in reported(str(path)).tiers[0].quantiles}
    assert (rows["ttft"], rows["tpot"]) == (8, 7)


def test_one_request_is_reported_without_intervals(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document("inference_perf.json")[:1]), encoding="utf-8")
    (tier,) = reported(str(path)).tiers
    assert tier.step_s.value == pytest.approx(0.020, rel=0.02)
    assert (tier.step_s.low, tier.step_s.high) == (None, None)


def test_a_clock_that_jumps_back_within_a_request_is_said(tmp_path: Path) -> None:
    own = document("inference_perf.json")
    times = own[0]["info"]["response_metrics"]["output_token_times"]
    times[50:] = [at - 1.0 for at in times[50:]]
    path = tmp_path / "jump.json"
    path.write_text(json.dumps(own), encoding="utf-8")
    report = reported(str(path))
    assert any("the clock jumped back" in note for note in report.notes)
    assert report.tiers[0].step_s.value == pytest.approx(0.020, rel=0.02)


def test_what_all_failed_is_data_and_exit_code_1(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tierscope.cli import main

    own = document("llmperf_perplexity_70b.json")
    path = tmp_path / "failed.json"
    path.write_text(json.dumps([one for one in own if one["error_code"] is not None]), encoding="utf-8")
    assert main(["report", str(path), "--out", str(tmp_path / "r.html")]) == 1
    assert "None of 2 requests succeeded" in capfd.readouterr().out
    assert (tmp_path / "r.html").exists()


@pytest.mark.parametrize("path", ["/dev/full", "/dev/zero", "/dev/null"])
def test_a_device_is_refused_before_it_is_read(path: str) -> None:
    """Some of them never end."""
    with pytest.raises(BadInputError, match=f"^{path}: is a device; expected "):
        recognise.read(Path(path))
