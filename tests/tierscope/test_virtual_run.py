"""A simulated run says what a real one says: desk, limits, faults, prefixes, kinds and counts of tokens."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest

from loadtest import plan as plans
from loadtest import records
from loadtest.records import RequestRecord
from loadtest.workload import Source, open_source
from mockserver import config as profiles
from mockserver.config import ServerConfig
from mockserver.job import StepDone
from mockserver.tier_config import PrefixCache, RateLimits, Speculation
from mockserver.wire_config import Fault, FaultKind, Wire
from tests.mockserver.served import served
from tierscope.simulate import simulate
from tierscope.typedtoml import parse

SERVER = """
name = "everything"
seed = 4
ingest_s = 0.001
[deployment]
chip = "H100"
model = "Llama-3.1-8B"
layer_overhead_s = 0.0
[wire]
tokens_per_event = 2
reasoning_ratio = 0.34
refuse_unknown = true
[[tiers]]
name = "standard"
service_tiers = ["default"]
prefix_cache = { block_tokens = 8 }
speculation = { draft_tokens = 3, acceptance_ratio = 0.6 }
[[tiers]]
name = "fast"
service_tiers = ["priority"]
speculation = { draft_tokens = 3, acceptance_ratio = 0.6, smoothed = true }
echo = "requested"
downgrade_to = "standard"
downgrade_ratio = 0.4
limits = { requests_per_min = 0.05, burst_s = 3600, over = "reject" }
[[faults]]
kind = "http_error"
every = 23
status = 503
[[faults]]
kind = "stream_error"
every = 19
[[faults]]
kind = "cut"
every = 29
after_tokens = 0
[[faults]]
kind = "reset"
every = 31
[[faults]]
kind = "garbage"
every = 17
[[faults]]
kind = "stall"
every = 13
wait_s = 0.05
[[faults]]
kind = "no_usage"
every = 11
[[faults]]
kind = "no_end"
every = 37
[[faults]]
kind = "delay"
every = 7
wait_s = 0.01
"""
PLAN = """
name = "everything"
seed = 9
[workload]
prompt_tokens = [40, 100]
output_tokens = 11
ignore_eos = false
tokens_per_word = 1.0
sessions = { turns = 3, turn_tokens = 20 }
[[tiers]]
name = "standard"
body = { service_tier = "default" }
[[tiers]]
name = "fast"
body = { service_tier = "priority" }
[[tiers]]
name = "odd"
body = { service_tier = "no-such-tier" }
[[tiers]]
name = "unread"
body = { ignore_eos = true }
[[tiers]]
name = "silent"
body = { stream_options = { include_usage = false }, reasoning_effort = "none" }
[[stages]]
name = "s"
requests = 120
arrivals = { kind = "closed", streams = 1 }
"""


def told(record: RequestRecord) -> dict[str, object]:
    """What does not depend on how quick a machine is."""
    return {
        "outcome": record.outcome,
        "status": record.status,
        "detail": "" if record.outcome == "rate_limited" else record.detail,
        "input": (record.prompt_tokens, record.cached_tokens, record.cache_write_tokens),
        "output": (record.output_tokens, record.tokens_source),
        "kinds": record.event_kinds,
        "finish": record.finish_reason,
        "echo": record.echoed_tier,
        "waits": record.retry_after_s is not None,
        "limits": sorted(record.rate_limit_headers),
        "session": (record.session, record.turn, record.prompt_class_tokens),
    }


def test_a_simulated_run_says_of_each_request_what_a_real_one_says(tmp_path: Path) -> None:
    config = parse(SERVER, ServerConfig, where="test")
    (tmp_path / "p.toml").write_text(PLAN)
    with served(config) as url:
        command = [sys.executable, "-m", "tierscope", "run", str(tmp_path / "p.toml"), "--url", url]
        options = ["--model", "mock", "--out", str(tmp_path / "run"), "--metrics-port", "0"]
        subprocess.run([*command, *options], check=True, capture_output=True, timeout=100)
    real = [r for r in records.read_run(tmp_path / "run").records if r.stage == "s"]
    simulated = list(simulate(plans.parse(PLAN, where="plan"), config))
    assert {r.index: told(r) for r in simulated} == {r.index: told(r) for r in real}
    outcomes = {"ok", "rate_limited", "http_error", "overloaded", "stream_error", "truncated"}
    assert {r.outcome for r in real} == outcomes
    assert sum(r.cached_tokens or 0 for r in real) > 300
    lasted_ns = [
        sum(r.event_ns[-1] - r.event_ns[0] for r in run if r.outcome == "ok") for run in (real, simulated)
    ]
    assert 0.95 < lasted_ns[0] / lasted_ns[1] < 1.5  # a busy host is late, and nobody is ever early


ALONE = profiles.load("h100-70b")


def one_tier(**changes: object) -> ServerConfig:
    """A server of one quiet tier, changed."""
    tier = msgspec.structs.replace(
        ALONE.tiers[0], target_batch=0, noise_ratio=0.0, prefix_cache=None, limits=None
    )
    wire = changes.pop("wire", Wire())
    faults = changes.pop("faults", ())
    assert isinstance(wire, Wire)
    assert isinstance(faults, tuple)
    return msgspec.structs.replace(
        ALONE, tiers=(msgspec.structs.replace(tier, **changes),), wire=wire, faults=faults
    )


def run(config: ServerConfig, extra: str = "", *, requests: int = 6, streams: int = 1) -> list[RequestRecord]:
    """A small closed loop, without jitter, in the order of the requests."""
    text = (
        f'name = "p"\n[network]\nlatency_s = 0.01\njitter_s = 0.0\n{extra}\n'
        "[workload]\nprompt_tokens = [100]\noutput_tokens = 21\n"
        f'[[stages]]\nname = "s"\nrequests = {requests}\n'
        f'arrivals = {{ kind = "closed", streams = {streams} }}\n'
    )
    done = simulate(plans.parse(text, where="plan"), config)
    return sorted(done, key=lambda r: r.index)


def test_speculation_shows_as_events_of_several_tokens_at_the_ends_of_steps() -> None:
    plain, quick = (run(one_tier(speculation=s))[0] for s in (None, Speculation(acceptance_ratio=0.9)))
    assert len(plain.event_ns) == plain.output_tokens == quick.output_tokens == 21
    assert len(quick.event_ns) < 12
    assert quick.event_tokens is None
    assert quick.coalesced_events == 0
    running = run(one_tier(speculation=Speculation(acceptance_ratio=0.9), wire=Wire(running_usage=True)))[0]
    assert running.event_ns == quick.event_ns
    assert sum(running.event_tokens or []) == 21
    assert max(running.event_tokens or []) > 1


def test_a_server_that_smooths_sends_token_by_token_and_none_before_it_was_made() -> None:
    speculation = Speculation(acceptance_ratio=0.9)
    rough = run(one_tier(speculation=speculation, wire=Wire(running_usage=True)))[0]
    smooth = run(one_tier(speculation=msgspec.structs.replace(speculation, smoothed=True)))[0]
    assert len(smooth.event_ns) == 21
    made = np.repeat(rough.event_ns, rough.event_tokens or [])
    assert (np.array(smooth.event_ns) >= made).all()
    gaps = np.diff(smooth.event_ns)
    assert gaps.max() < np.diff(rough.event_ns).max()


@pytest.mark.parametrize(("per_event", "sizes"), [(1, [1] * 21), (4, [4] * 5 + [1]), (30, [21])])
def test_tokens_are_gathered_into_events_and_leave_with_the_last_of_them(
    per_event: int, sizes: list[int]
) -> None:
    each, gathered = (
        run(one_tier(wire=Wire(tokens_per_event=n, running_usage=True)))[0] for n in (1, per_event)
    )
    assert gathered.event_tokens == sizes
    assert gathered.event_ns == [each.event_ns[end - 1] for end in np.cumsum(sizes)]
    assert gathered.ended_ns == each.ended_ns


def test_reasoning_comes_first_and_an_event_in_which_it_ends_is_two() -> None:
    record = run(one_tier(wire=Wire(reasoning_ratio=0.5, tokens_per_event=4, running_usage=True)))[0]
    assert record.event_kinds == [("reasoning", 3), ("text", 4)]
    assert record.event_tokens == [4, 4, 2, 2, 4, 4, 1]
    assert record.event_ns[2] == record.event_ns[3] == record.first_text_ns
    assert record.coalesced_events == 1


def test_a_stall_keeps_back_what_falls_due_in_it_and_delays_nothing_after_it() -> None:
    fault = Fault(kind="stall", after_tokens=5, wait_s=0.1)
    sound, stalled = run(one_tier())[0], run(one_tier(faults=(fault,)))[0]
    from_ns = sound.event_ns[5]
    until_ns = from_ns + 100_000_000
    assert stalled.event_ns == [
        until_ns if from_ns <= at_ns < until_ns else at_ns for at_ns in sound.event_ns
    ]
    held = sum(from_ns <= at_ns < until_ns for at_ns in sound.event_ns)
    assert stalled.coalesced_events == held - 1 > 2


def test_a_delay_shifts_the_whole_answer() -> None:
    sound, late = run(one_tier())[0], run(one_tier(faults=(Fault(kind="delay", wait_s=0.25),)))[0]
    assert late.event_ns == [at_ns + 250_000_000 for at_ns in sound.event_ns]
    assert late.headers_ns == (sound.headers_ns or 0) + 250_000_000


def test_who_waits_for_a_limit_is_served_when_the_bucket_has_filled_again() -> None:
    """Six a minute, and a bucket of two: the third comes ten seconds after the first, the next each ten."""
    limits = RateLimits(requests_per_min=6.0, burst_s=20.0, over="queue")
    first, *others = run(one_tier(limits=limits), requests=5, streams=5)
    starts_s = [((r.headers_ns or 0) - (first.headers_ns or 0)) / 1e9 for r in others]
    assert starts_s == pytest.approx([0, 10, 20, 30], abs=1e-6)
    assert {r.outcome for r in others} == {"ok"}


@pytest.mark.parametrize("honours", [True, False])
def test_a_client_that_is_told_to_wait_waits_if_it_is_to(honours: bool) -> None:
    limits = RateLimits(requests_per_min=6.0, burst_s=10.0)
    control = f"[control]\nhonour_retry_after = {str(honours).lower()}"
    first, second, third = run(one_tier(limits=limits), control, requests=3)
    assert (first.outcome, second.outcome) == ("ok", "rate_limited")
    assert second.retry_after_s == 10.0  # whole seconds, rounded up
    gap_ns = (third.sent_ns or 0) - second.ended_ns
    assert (gap_ns, third.outcome) == ((10_000_000_000, "ok") if honours else (0, "rate_limited"))
    assert third.scheduled_ns == third.sent_ns


def test_later_turns_find_their_conversation_in_the_cache_and_other_conversations_nothing() -> None:
    text = """
name = "p"
[workload]
prompt_tokens = [100]
output_tokens = 20
sessions = { turns = 3, turn_tokens = 30 }
[[stages]]
name = "s"
requests = 12
arrivals = { kind = "closed", streams = 2 }
"""
    config = one_tier(prefix_cache=PrefixCache(block_tokens=16))
    done = list(simulate(plans.parse(text, where="plan"), config))
    found = {(r.turn, r.prompt_tokens, r.cached_tokens) for r in done}
    assert found == {(0, 100, 0), (1, 150, 112), (2, 200, 160)}  # whole blocks of 120 and of 170


def test_all_steps_of_the_server_are_told_with_their_engines_names() -> None:
    seen = list[tuple[str, StepDone]]()
    plan = plans.parse(PLAN.replace("requests = 120", "requests = 10"), where="plan")
    config = profiles.load("fast-tier")
    done = list(simulate(plan, config, on_step=lambda name, step: seen.append((name, step))))
    finished = Counter(name for name, step in seen for _ in step.finished)
    served = [record.requested_tier for record in done if record.outcome == "ok"]
    assert finished == Counter("fast" if tier == "fast" else "standard" for tier in served)
    assert [step.ended_ns for _, step in seen] == sorted(step.ended_ns for _, step in seen)


def test_same_seed_same_bytes_whatever_befalls_the_requests() -> None:
    plan, config = plans.parse(PLAN, where="plan"), parse(SERVER, ServerConfig, where="test")
    first, again, other = (
        b"".join(records.encode_line(r) for r in simulate(plan, msgspec.structs.replace(config, seed=seed)))
        for seed in (4, 4, 5)
    )
    assert first == again
    assert first != other


TRACES = Path(__file__).parent.parent / "data" / "traces"


def test_a_traces_ids_stand_for_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plans.parse(
        'name = "t"\n[workload]\n'
        'trace = { file = "mooncake_conversation_excerpt.jsonl", format = "mooncake" }\n'
        '[[stages]]\nname = "s"\nrequests = 40\narrivals = { kind = "closed", streams = 2 }\n',
        where="plan",
    )
    config = one_tier(prefix_cache=PrefixCache(block_tokens=24))
    by_ids = list(simulate(plan, config, open_source(plan, folder=TRACES)))
    monkeypatch.setattr(Source, "blocks", lambda *_: None)
    by_words = list(simulate(plan, config, open_source(plan, folder=TRACES)))
    assert by_ids == by_words
    assert sum(r.cached_tokens or 0 for r in by_ids) > 10_000


def test_a_server_that_smooths_breaks_off_after_exactly_as_many_tokens_as_it_may_send() -> None:
    speculation = Speculation(acceptance_ratio=0.9, smoothed=True)
    fault = Fault(kind="stream_error", after_tokens=7)
    sound = run(one_tier(speculation=speculation))[0]
    broken = run(one_tier(speculation=speculation, faults=(fault,)))[0]
    assert broken.event_ns == sound.event_ns[:7]
    assert (broken.outcome, broken.ended_ns) == ("stream_error", sound.event_ns[7])


@pytest.mark.parametrize(
    ("running", "known"), [(True, (100, None, 4, "usage")), (False, (None, None, 4, "events"))]
)
def test_of_what_broke_off_only_running_usage_and_events_are_known(
    running: bool, known: tuple[object, ...]
) -> None:
    fault = Fault(kind="cut", after_tokens=4)
    record = run(one_tier(faults=(fault,), wire=Wire(running_usage=running)))[0]
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens, record.tokens_source) == known
    assert (record.outcome, record.finish_reason, len(record.event_ns)) == ("truncated", None, 4)


@pytest.mark.parametrize(
    ("kind", "outcome", "output_tokens"),
    [
        ("cut", "truncated", None),
        ("garbage", "stream_error", None),
        ("stream_error", "ok", 21),  # there is no stream to put it into
        ("no_usage", "ok", None),
        ("no_end", "ok", 21),
        ("stall", "ok", 21),
    ],
)
def test_faults_of_an_answer_in_one_piece(kind: FaultKind, outcome: str, output_tokens: int | None) -> None:
    def whole(*faults: Fault) -> RequestRecord:
        plan = plans.parse(PLAN_OF_ONE, where="plan")
        return next(iter(simulate(plan, one_tier(faults=faults))))

    sound, struck = whole(), whole(Fault(kind=kind, wait_s=0.5))
    assert (struck.outcome, struck.output_tokens, struck.streamed) == (outcome, output_tokens, False)
    assert struck.ended_ns - sound.ended_ns == (500_000_000 if kind == "stall" else 0)


PLAN_OF_ONE = """
name = "one"
network = { jitter_s = 0.0 }
[workload]
prompt_tokens = [100]
output_tokens = 21
stream = false
[[stages]]
name = "s"
requests = 1
arrivals = { kind = "closed", streams = 1 }
"""


OPUS = """
name = "opus"
[workload]
prompt_tokens = [100]
output_tokens = 9
sessions = {{ turns = 2, turn_tokens = 40 }}
[[tiers]]
name = "fast"
body = {{ speed = "fast"{body} }}
{headers}
[[stages]]
name = "s"
requests = 2
arrivals = {{ kind = "closed", streams = 1 }}
"""
BETA = 'headers = { anthropic-beta = "fast-mode-2026-02-01" }'


@pytest.mark.parametrize(
    ("body", "headers", "status", "caches"),
    [
        ("", "", 400, False),
        ("", BETA, 200, False),
        (', cache_control = { type = "ephemeral" }', BETA, 200, True),
    ],
)
def test_a_plan_with_speeds_asks_as_anthropics_api_is_asked(
    body: str, headers: str, status: int, caches: bool
) -> None:
    plan = plans.parse(OPUS.format(body=body, headers=headers), where="plan")
    first, *later = simulate(plan, profiles.load("opus-like"))
    assert first.status == status
    assert ("anthropic-beta" in first.detail) == (status == 400)
    assert [bool(record.cached_tokens) for record in later if record.turn == 1] == [caches] * (status == 200)
