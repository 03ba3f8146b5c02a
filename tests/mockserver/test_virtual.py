"""A whole server in virtual time: repeatable, in order, and the shipped profiles do what they promise."""

import heapq
from dataclasses import dataclass

import numpy as np
import pytest

from mockserver import config
from mockserver.engine import Job, StepDone
from mockserver.virtual import Finished, VirtualServer

FAST, SAME = config.load("fast-tier"), config.load("no-change")
CLASSES = (128, 2048, 8192, 16_384)
S = 10**9


@dataclass
class Trial:
    finished: list[Finished]
    prompt_tokens: dict[int, int]
    steps: dict[str, list[StepDone]]

    def of(self, tier: str, prompt: int | None = None) -> list[Finished]:
        asked = self.prompt_tokens
        return [d for d in self.finished if d.tier == tier and prompt in (None, asked[d.job_id])]


def closed_loop(
    server_config: config.ServerConfig, seed: int, requests: int = 336, streams: int = 8
) -> Trial:
    """Streams that alternate between the tiers and go through the prompt lengths, one request at a time."""
    trial = Trial([], {}, {tier.name: [] for tier in server_config.tiers})
    server = VirtualServer(server_config, seed, on_step=lambda name, step: trial.steps[name].append(step))
    rng = np.random.default_rng(seed)
    prompts = {tier.name: rng.permutation(np.repeat(CLASSES, requests // 4)) for tier in server_config.tiers}
    ready = [0] * streams
    sent = 0
    while len(trial.finished) < requests:
        done = server.next_finish(ready[0] if ready and sent < requests else 10**15)
        if done is None:
            now_ns = heapq.heappop(ready)
            tier = server_config.tiers[sent % 2].name
            trial.prompt_tokens[sent] = int(prompts[tier][sent // 2])
            server.submit(tier, Job(sent, trial.prompt_tokens[sent], 64), now_ns)
            sent += 1
        else:
            trial.finished.append(done)
            heapq.heappush(ready, done.ended_ns + 400_000)
    return trial


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    return [closed_loop(FAST, seed) for seed in range(1, 9)]


def median_itl_ms(trial: Trial, tier: str) -> float:
    return float(np.median([np.median(np.diff(done.token_ns)) for done in trial.of(tier)])) / 1e6


def added_prefill_ms(trial: Trial, tier: str) -> float:
    """TTFT of the longest prompts over that of the shortest ones, from the least delayed of each."""
    ttft = {
        prompt: np.sort([done.first_token_ns - done.submitted_ns for done in trial.of(tier, prompt)])
        for prompt in (CLASSES[0], CLASSES[-1])
    }
    return float(np.mean(ttft[CLASSES[-1]][:10]) - np.mean(ttft[CLASSES[0]][:10])) / 1e6


def test_the_fast_tier_decodes_two_and_a_half_times_as_fast(trials: list[Trial]) -> None:
    ratios = [median_itl_ms(trial, "standard") / median_itl_ms(trial, "fast") for trial in trials]
    assert np.mean(ratios) == pytest.approx(2.5, rel=0.03)


def test_the_fast_tier_prefills_no_faster(trials: list[Trial]) -> None:
    ratios = [added_prefill_ms(trial, "standard") / added_prefill_ms(trial, "fast") for trial in trials]
    assert np.mean(ratios) == pytest.approx(1.0, rel=0.03)


def test_prompts_are_answered_within_a_second_and_the_run_within_fifty(trials: list[Trial]) -> None:
    for trial in trials:
        waits_s = [(d.first_token_ns - d.submitted_ns) / 1e9 for d in trial.finished]
        assert np.median(waits_s) < 0.2
        assert np.quantile(waits_s, 0.95) < 1.0
        assert max(done.ended_ns for done in trial.finished) < 50 * S


@pytest.mark.parametrize("tier", FAST.tiers, ids=lambda tier: tier.name)
def test_the_batch_stays_where_the_profile_says(trials: list[Trial], tier: config.TierConfig) -> None:
    for trial in trials:
        batch = [step.decode_sequences for step in trial.steps[tier.name]]
        assert np.mean(batch) == pytest.approx(tier.target_batch, rel=0.05)


@pytest.mark.parametrize("tier", FAST.tiers, ids=lambda tier: tier.name)
def test_prefill_takes_less_than_three_tenths_of_the_time(
    trials: list[Trial], tier: config.TierConfig
) -> None:
    for trial in trials:
        steps = trial.steps[tier.name]
        decode_ns = np.median([s.ended_ns - s.started_ns for s in steps if not s.prefill_tokens])
        added_ns = sum(s.ended_ns - s.started_ns - decode_ns for s in steps if s.prefill_tokens)
        assert added_ns / (steps[-1].ended_ns - steps[0].started_ns) < 0.3


def test_identical_tiers_decode_alike() -> None:
    ratios = [
        median_itl_ms(t, "standard") / median_itl_ms(t, "fast")
        for t in (closed_loop(SAME, seed) for seed in range(1, 5))
    ]
    assert np.array(ratios) == pytest.approx(np.ones(4), rel=0.03)


def told(trial: Trial) -> list[tuple[object, ...]]:
    return [(d.tier, d.engine, d.done.job, d.submitted_ns, d.token_ns.tolist()) for d in trial.finished]


def test_the_same_seed_gives_the_same_nanoseconds_and_another_one_others() -> None:
    first, again, other = (closed_loop(FAST, seed, requests=40) for seed in (5, 5, 6))
    assert told(first) == told(again)
    assert first.steps["standard"][-1].ended_ns == again.steps["standard"][-1].ended_ns
    assert told(first) != told(other)


def test_the_hidden_loads_of_two_tiers_are_not_the_same() -> None:
    trial = closed_loop(SAME, 3, requests=8)
    standard, fast = ([s.context_tokens for s in trial.steps[name][:50]] for name in ("standard", "fast"))
    assert standard != fast


def test_no_finish_is_told_before_its_time_and_all_come_in_order() -> None:
    server = VirtualServer(FAST, 1)
    for number in range(6):
        server.submit(FAST.tiers[number % 2].name, Job(number, 500, 20), 0)
    told_ns: list[int] = []
    limit_ns = 0
    while len(told_ns) < 6:
        limit_ns += 7_000_000
        while (done := server.next_finish(limit_ns)) is not None:
            assert limit_ns - 7_000_000 < done.ended_ns <= limit_ns
            told_ns.append(done.ended_ns)
    assert told_ns == sorted(told_ns)


def test_a_cancelled_request_never_finishes() -> None:
    server = VirtualServer(FAST, 1)
    server.submit("fast", Job(0, 500, 20), 0)
    server.submit("fast", Job(1, 500, 20), 0)
    assert server.cancel("fast", 0, 50_000_000)
    done = server.next_finish(10 * S)
    assert done is not None
    assert done.job_id == 1
    assert server.next_finish(20 * S) is None


@pytest.mark.parametrize("after", [0, 1, 7, 19])
def test_a_job_that_is_cut_has_what_it_had_and_ends_when_its_next_token_would_have_come(after: int) -> None:
    whole, cut = VirtualServer(FAST, 1), VirtualServer(FAST, 1)
    for server, bound in ((whole, None), (cut, after)):
        server.submit("fast", Job(1, 300, 20), 0, cut_after_tokens=bound)
        server.submit("fast", Job(2, 300, 40), 0)
    first, dropped = whole.next_finish(10 * S), cut.next_finish(10 * S)
    assert first is not None
    assert dropped is not None
    assert (dropped.job_id, dropped.cut_ns) == (1, first.token_ns[after])
    assert dropped.token_ns.tolist() == first.token_ns[:after].tolist()
    last = cut.next_finish(10 * S)
    assert last is not None
    assert (last.job_id, last.cut_ns, len(last.token_ns)) == (2, None, 40)
    assert cut.next_finish(20 * S) is None
    assert cut.fleet.own_jobs == 0


@pytest.mark.parametrize(("after", "sent"), [(0, 0), (3, 0), (4, 4), (9, 8), (17, 16), (19, 16)])
def test_an_event_that_holds_a_token_too_many_is_not_sent_and_nothing_after_it(after: int, sent: int) -> None:
    whole, cut = VirtualServer(FAST, 1), VirtualServer(FAST, 1)
    whole.submit("fast", Job(1, 300, 18), 0)
    cut.submit("fast", Job(1, 300, 18), 0, cut_after_tokens=min(after, 17), tokens_per_event=4)
    first, dropped = whole.next_finish(10 * S), cut.next_finish(10 * S)
    assert first is not None
    assert dropped is not None
    assert dropped.token_ns.tolist() == first.token_ns[:sent].tolist()
    assert dropped.cut_ns == first.token_ns[min(sent + 4, 18) - 1]
