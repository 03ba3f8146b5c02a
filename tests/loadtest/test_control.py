"""Whole runs under Locust that measure first, wait when told to, and end before their stages do."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtest.command import locust_argv
from loadtest.plan import Target
from loadtest.records import PromptCounting, Run
from tests.loadtest.conftest import ChatServer
from tests.loadtest.locust_runs import Ended, Started, free_port

PLAN = """
name = "tiny"
seed = 3
{control}
[workload]
prompt_tokens = [40, 80]
output_tokens = 5
{workload}
[[tiers]]
name = "standard"
[[tiers]]
name = "fast"
body = {{ service_tier = "priority" }}
{tier}
[[stages]]
name = "only"
{stage}
"""
COUNTED = "tokens_per_word = 1"
PRICES = """
[[prices]]
models = ["m", "slow"]
tiers = ["standard", "default", "priority"]
input_usd_per_mtok = 10
output_usd_per_mtok = 1000
as_of = 2026-11-01
source = "test"
"""


def closed(requests: int, streams: int = 3) -> str:
    return f"requests = {requests}\narrivals = {{ kind = 'closed', streams = {streams} }}"


Go = Callable[..., Ended]


@pytest.fixture
def go(server: ChatServer, tmp_path: Path) -> Go:
    def run(
        stage: str,
        *,
        model: str = "m",
        extra: tuple[str, ...] = (),
        interrupt_at_request: int = 0,
        **more: str,
    ) -> Ended:
        plan = tmp_path / "tiny.toml"
        parts = {"control": "", "workload": COUNTED, "tier": ""} | more
        plan.write_text(PLAN.format(stage=stage, **parts))
        target = Target(url=server.url, model=model)
        argv = locust_argv(str(plan), target=target, out=tmp_path / "run", web=False, extra=extra)
        started = Started(argv, tmp_path / "run")
        try:
            if interrupt_at_request:
                started.wait_for(lambda: len(server.requests) == interrupt_at_request)
                started.process.send_signal(signal.SIGINT)
            return started.end()
        finally:
            started.process.kill()

    return run


def counting(run: Run) -> PromptCounting:
    assert run.info.prompt_counting is not None
    return run.info.prompt_counting


# Measuring first


def test_what_a_server_counts_is_measured_first_and_prompts_then_fit(go: Go) -> None:
    ended = go(closed(12), model="wordy", workload="")
    run = ended.run()
    assert ended.code == 0
    first, rest = run.records[:3], run.records[3:]
    assert {record.stage for record in first} == {"calibration"}
    assert all(record.warmup and record.outcome == "ok" for record in first)
    assert len(rest) == 12
    assert [record.index for record in run.records] == list(range(15))
    found = counting(run)
    assert found.source == "measured"
    assert found.tokens_per_word == pytest.approx(1.5, abs=0.01)
    assert found.overhead_tokens == pytest.approx(7, abs=0.5)
    assert found.achieved_error_max_ratio is not None
    assert found.achieved_error_max_ratio <= 1.5 / 40  # one word more or less
    errors = [abs((one.prompt_tokens or 0) / one.prompt_class_tokens - 1) for one in rest]
    assert found.achieved_error_max_ratio == pytest.approx(max(errors))
    assert ended.lines[-1].startswith("run complete: 12 requests, 0 failed")
    page = (ended.folder / "metrics.prom").read_text()
    assert 'stage="calibration"' in page


def test_a_plan_that_knows_sends_nothing_to_find_out(go: Go) -> None:
    run = go(closed(4)).run()
    assert {record.stage for record in run.records} == {"only"}
    assert counting(run).source == "stated"


def test_a_server_that_tells_no_usage_is_taken_at_one_token_a_word(go: Go) -> None:
    ended = go(closed(4), model="uncounted", workload="")
    run = ended.run()
    assert (ended.code, counting(run).source, counting(run).tokens_per_word) == (0, "assumed", 1.0)
    assert ended.lines[0] == "one token a word is assumed: the server told no prompt tokens"
    assert counting(run).achieved_error_p50_ratio is None


def test_a_server_that_refuses_the_first_requests_ends_the_run_in_one_line(go: Go) -> None:
    ended = go(closed(400), model="unauthorized", workload="")
    run = ended.run()
    assert ended.code == 3
    why = "the first 3 requests all failed: HTTP 401: auth: no such key: sekret"
    assert ended.lines == [f"run failed: {why}; what was recorded is in {ended.folder}"]
    assert (run.info.status, len(run.records)) == ("partial", 3)


def test_a_stop_while_measuring_leaves_what_was_sent_and_sends_no_more(go: Go, server: ChatServer) -> None:
    ended = go(closed(400), model="endless", workload="", interrupt_at_request=1)
    run = ended.run()
    assert ended.code == 3
    assert len(ended.lines) == 1
    assert "interrupted" in ended.lines[0]
    assert (run.info.status, [record.outcome for record in run.records]) == ("partial", ["cancelled"])
    assert len(server.requests) == 1


# Ending early


def test_too_many_failures_end_a_run_in_order(go: Go) -> None:
    control = "[control]\nstop_at_error_ratio = 0.4\nerror_window_requests = 20\n"
    ended = go(closed(400), model="flaky", control=control)
    run = ended.run()
    assert ended.code == 0
    assert run.info.status == "complete"
    assert run.info.status_detail.endswith("requests failed; stop_at_error_ratio is 0.4 of 20")
    assert f"ending early: {run.info.status_detail}" in ended.lines
    assert 8 <= sum(record.outcome == "http_error" for record in run.records) <= 40  # of 200
    assert "cancelled" not in {record.outcome for record in run.records}


def test_the_ceiling_of_cost_is_not_passed(go: Go, tmp_path: Path) -> None:
    """Answers cost 5 · 1,000 $ a million: 0.005 $ each, and prompts little."""
    (tmp_path / "prices.toml").write_text(PRICES)
    control = "[control]\ncost_ceiling_usd = 0.1\n"
    ended = go(closed(400), control=control, extra=("--prices", str(tmp_path / "prices.toml")))
    run = ended.run()
    assert ended.code == 0
    assert run.info.status == "complete"
    assert "cost_ceiling_usd" in run.info.status_detail
    costs = [(r.prompt_tokens or 0) * 10e-6 + (r.output_tokens or 0) * 1000e-6 for r in run.records]
    assert 0.08 < sum(costs) <= 0.1


def test_a_ceiling_without_a_price_is_refused_before_anything_is_sent(go: Go, server: ChatServer) -> None:
    ended = go(closed(4), control="[control]\ncost_ceiling_usd = 1.0\n")
    assert ended.code == 2
    assert len(ended.lines) == 1
    assert "no price is known for m on tier standard" in ended.lines[0]
    assert not server.requests
    assert not ended.folder.exists()


# Conversations, waiting, and speaking to several


@pytest.mark.parametrize("kind", ["open", "closed"])
def test_conversations_grow_as_long_as_the_plan_aims_at(go: Go, kind: str) -> None:
    """The server counts the words of all that is resent, its own answers included."""
    steady = "requests = 24\narrivals = { kind = 'poisson', rate_per_s = 30.0 }"
    sessions = "[workload.sessions]\nturns = 4\nturn_tokens = 10\nswitch_turn = 2\nswitch_tier = 'fast'"
    stage = steady if kind == "open" else closed(24)
    run = go(stage, workload=f"{COUNTED}\n{sessions}").run()
    assert len(run.records) == 24
    assert {record.session for record in run.records} == {f"only-{number}" for number in range(6)}
    for record in run.records:
        assert record.outcome == "ok"
        assert record.prompt_tokens == record.prompt_class_tokens
        assert record.turn == record.index % 4
    opening = {record.session: record for record in run.records if record.turn == 0}
    for record in run.records:
        first = opening[record.session]
        assert record.prompt_class_tokens == first.prompt_class_tokens + 15 * record.turn
        assert record.requested_tier == ("fast" if record.turn >= 2 else first.requested_tier)


@pytest.mark.parametrize("kind", ["open", "closed"])
def test_a_tier_that_is_told_to_wait_is_left_alone_until_then(go: Go, kind: str) -> None:
    steady = "requests = 40\narrivals = { kind = 'constant', rate_per_s = 40.0 }"
    stage = steady if kind == "open" else closed(40)
    ended = go(stage, model="busy", control="[control]\nhonour_retry_after = true\n")
    run = ended.run()
    assert ended.code == 0
    refused = [record for record in run.records if record.outcome == "rate_limited"]
    assert [record.retry_after_s for record in refused] == [1.0]
    told_ns = refused[0].ended_ns
    later = [
        record
        for record in run.records
        if record.requested_tier == "fast" and record.index > refused[0].index and record.sent_ns is not None
        and record.sent_ns > told_ns
    ]  # fmt: skip
    assert later
    for record in later:
        assert record.scheduled_ns >= told_ns + 999_000_000
        assert (record.sent_ns or 0) >= record.scheduled_ns
    assert len(run.records) == 40


def test_a_tier_with_an_address_of_its_own_is_asked_there(go: Go, server: ChatServer) -> None:
    other = ChatServer()
    other.start()
    try:
        ended = go(closed(12), tier=f'url = "{other.url}/v1"')
    finally:
        other.stop()
    run = ended.run()
    assert ended.code == 0
    assert len(run.records) == 12
    assert (len(server.requests), len(other.requests)) == (6, 6)
    assert {"service_tier" in body for _, body in other.requests} == {True}
    assert {"service_tier" in body for _, body in server.requests} == {False}
    assert {headers["host"] for headers, _ in other.requests} == {other.url.removeprefix("http://")}


def test_an_address_of_a_tier_where_nobody_listens_is_one_line(go: Go) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    ended = go(closed(12), tier=f'url = "{url}"')
    assert (ended.code, ended.lines) == (3, [f"run failed: cannot connect to {url}: Connection refused"])


def test_an_address_of_a_tier_that_is_none_is_refused_by_name(go: Go) -> None:
    ended = go(closed(12), tier='url = "ftp://h"')
    assert ended.code == 2
    assert len(ended.lines) == 1
    assert "tiers[1].url: 'ftp://h' is not allowed" in ended.lines[0]
