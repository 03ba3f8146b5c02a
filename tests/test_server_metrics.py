"""A whole run with the mock's own metrics recorded beside: what the server counted is what the client saw."""

import re
import subprocess
import sys

import pytest

from loadtest import records, server_samples
from loadtest.records import Run
from loadtest.scrape import parse
from loadtest.server_samples import Scrape, ServerSamples
from loadtest.server_truth import truth
from mockserver.metrics import ServerMetrics
from tests.mockserver.naive_steps import played

LIMIT_S = 90
STREAMS = 6
PLAN = f"""
name = "watched"
seed = 5
[workload]
prompt_tokens = [128, 512]
output_tokens = 48
tokens_per_word = 1.0
[[tiers]]
name = "standard"
body = {{ service_tier = "default" }}
[[tiers]]
name = "fast"
body = {{ service_tier = "priority" }}
[[stages]]
name = "compare"
requests = 60
arrivals = {{ kind = "closed", streams = {STREAMS} }}
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, ServerSamples]:
    """A run against the mock, and what was scraped of it meanwhile."""
    folder = tmp_path_factory.mktemp("watched")
    (folder / "plan.toml").write_text(PLAN)
    serve = [sys.executable, "-m", "tierscope", "serve", "fast-tier", "--port", "0"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as mock:
        try:
            assert mock.stdout is not None
            found = re.search(r"http://\S+", mock.stdout.readline())
            assert found is not None
            run = [sys.executable, "-m", "tierscope", "run", str(folder / "plan.toml"), "--url", found[0]]
            run += ["--out", str(folder / "run"), "--metrics-port", "0", "--scrape", "auto"]
            subprocess.run(run, check=True, timeout=LIMIT_S, capture_output=True)
        finally:
            mock.terminate()
            mock.communicate(timeout=LIMIT_S)
    samples = server_samples.read(folder / "run")
    assert samples is not None
    return records.read_run(folder / "run"), samples


def test_server_and_client_count_the_same_requests_on_the_same_clock(
    watched: tuple[Run, ServerSamples],
) -> None:
    run, samples = watched
    assert samples.notes == []
    assert all(not scrape.trouble for scrape in samples.scrapes)
    assert len(samples.scrapes) >= 3
    assert samples.increase("vllm:request_success_total") == len(run.records) == 60
    for tier in ("standard", "fast"):
        asked = [record for record in run.records if record.requested_tier == tier]
        assert samples.increase("vllm:request_success_total", {"tier": tier}) == len(asked)
    assert run.info.ended_ns is not None
    instants = [scrape.at_ns for scrape in samples.scrapes]
    assert 0 < instants[0] < min(record.sent_ns or 0 for record in run.records)
    assert max(record.ended_ns for record in run.records) < instants[-1] < run.info.ended_ns


def test_the_mean_batch_from_counters_is_the_truth_that_the_mock_tells(
    watched: tuple[Run, ServerSamples],
) -> None:
    _, samples = watched
    for tier in ("standard", "fast"):
        found = truth(samples, {"tier": tier})
        assert found is not None
        steps = samples.increase("mockserver_step_seconds_count", {"tier": tier})
        tokens = samples.increase("vllm:generation_tokens_total", {"tier": tier})
        assert steps is not None
        assert tokens is not None
        assert found.mean_batch == pytest.approx(tokens / steps)
        gauge = samples.level("mockserver_batch", {"tier": tier})[1]
        assert gauge.min() * 0.7 <= found.mean_batch <= gauge.max() * 1.3
        assert found.running_max is not None
        assert found.mean_batch is not None
        assert found.running_max >= found.mean_batch * 0.9
        assert found.waiting_max is not None
        assert found.cache_hit_ratio is None  # the mock has no prefix cache


@pytest.mark.parametrize("draft_tokens", [0, 3])
def test_batch_cache_and_speculation_are_read_from_the_mocks_page_as_from_vllms(draft_tokens: int) -> None:
    steps, _ = played(6, pause=False, draft_tokens=draft_tokens)
    metrics = ServerMetrics("m", {"a": 100_000, "b": 100_000})
    pages = [metrics.page()]
    for number, step in enumerate(steps, start=1):
        metrics.on_step("a", step, 0)
        if number % 20 == 0 or number == len(steps):
            pages.append(metrics.page())
    scrapes = [
        Scrape(at_ns=number, took_s=0.0, samples=parse(page.decode())) for number, page in enumerate(pages)
    ]
    found = truth(ServerSamples(scrapes), {"tier": "a"})
    assert found is not None
    got = [step.generated_tokens - step.accepted_tokens for step in steps]
    assert found.mean_batch == pytest.approx(sum(got) / len(steps))
    assert found.running_max == max(step.running for step in (*steps[19::20], steps[-1]))
    assert found.cache_hit_ratio == pytest.approx(0.4)  # what the steps were made with
    drafted = sum(step.drafted_tokens for step in steps)
    if drafted:
        assert found.speculation_accepted_ratio == sum(step.accepted_tokens for step in steps) / drafted
    else:
        assert found.speculation_accepted_ratio is None
    silent = truth(ServerSamples(scrapes), {"tier": "b"})
    assert silent is not None
    assert silent.running_max == 0
