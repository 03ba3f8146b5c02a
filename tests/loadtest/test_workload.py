"""Which request comes when: a paired design, open-loop instants against their own law, stages, tallies."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtest import arrivals, workload
from loadtest.counts import StageCounts
from loadtest.plan import Arrivals, Closed, Constant, Plan, Poisson, Stage, Tier, Workload
from loadtest.progress import TierFigures, line
from loadtest.records import Outcome, RequestRecord
from loadtest.stage import StageProgress, users_of
from loadtest.tally import SAME_FAILURES, Tally

SECOND = 1_000_000_000


def plan(tiers: int = 2, classes: int = 3, seed: int = 1, tokens_per_word: float = 1.0) -> Plan:
    return Plan(
        name="p",
        seed=seed,
        tiers=tuple(Tier(name=f"t{k}") for k in range(tiers)),
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),) * 2,
        workload=Workload(
            prompt_tokens=tuple(16 * (k + 1) for k in range(classes)),
            output_tokens=8,
            tokens_per_word=tokens_per_word,
        ),
    )


def text(made: Plan, asked: workload.Request) -> str:
    return workload.open_source(made).says(asked)[0].text


def sequence(made: Plan, count: int, stage: int = 0) -> list[workload.Request]:
    source = workload.open_source(made)
    return [source.request(stage, k, index=k) for k in range(count)]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**63 - 1))
def test_arms_are_balanced_at_every_moment(tiers: int, classes: int, seed: int) -> None:
    requests = sequence(plan(tiers, classes, seed), tiers * classes * 2)
    for end in range(0, len(requests) + 1, tiers):
        assert len(set(Counter(r.tier.name for r in requests[:end]).values())) <= 1
    for tier in {r.tier.name for r in requests}:
        asked = [r.prompt_tokens for r in requests if r.tier.name == tier]
        for start in range(0, len(asked), classes):
            assert len(set(asked[start : start + classes])) == classes


def test_the_order_of_classes_is_independent_of_the_other_arm() -> None:
    requests = sequence(plan(2, 4), 4000)
    per_tier = [[r.prompt_tokens for r in requests if r.tier.name == name] for name in ("t0", "t1")]
    same = np.mean([a == b for a, b in zip(*per_tier, strict=True)])
    assert 0.2 < same < 0.3  # one in four by chance


def test_the_order_of_tiers_within_a_pair_is_a_coin() -> None:
    first = Counter(r.tier.name for r in sequence(plan(2, 4), 4000)[::2])
    assert stats.binomtest(first["t0"], 2000).pvalue > 1e-4


def test_everything_follows_from_seed_stage_and_position() -> None:
    assert sequence(plan(), 50) == sequence(plan(), 50)
    assert sequence(plan(seed=1), 50) != sequence(plan(seed=2), 50)
    assert [r.prompt_tokens for r in sequence(plan(), 50)] != [
        r.prompt_tokens for r in sequence(plan(), 50, 1)
    ]


@given(st.integers(1, 400), st.sampled_from([0.5, 1.0, 1.3, 4.0]))
def test_a_prompt_has_the_words_that_cost_the_tokens_aimed_at(tokens: int, tokens_per_word: float) -> None:
    made = plan(tokens_per_word=tokens_per_word)
    asked = workload.Request(
        index=5, stage="s", warmup=False, tier=made.tiers[0], prompt_tokens=tokens, max_tokens=1
    )
    words = text(made, asked).split(" ")
    assert len(words) == max(1, round(tokens / tokens_per_word))
    assert all(word.isalpha() for word in words)


def test_no_two_prompts_start_alike() -> None:
    made = plan(1, 1)
    texts = [text(made, r) for r in sequence(made, 3000)]
    other = [text(plan(1, 1, seed=2), r) for r in sequence(made, 100)]
    first = {text.split(" ")[0] for text in texts + other}
    assert len(first) == 3100
    assert len({text[:3] for text in texts[:100]}) > 50  # they differ early, within a cache block


# Open-loop instants


def some(kind: Arrivals, count: int, **more: int) -> list[int]:
    keys = {"seed": 1, "stage_number": 0} | more
    return list(itertools.islice(arrivals.instants(kind, **keys), count))


def test_poisson_gaps_are_exponential_with_the_mean_asked_for() -> None:
    instants = np.array(some(Poisson(rate_per_s=50.0), 20_000))
    gaps_s = np.diff(instants, prepend=0) / 1e9
    assert stats.kstest(gaps_s, "expon", args=(0, 1 / 50)).pvalue > 1e-3
    assert abs(np.corrcoef(gaps_s[:-1], gaps_s[1:])[0, 1]) < 0.03


def test_constant_instants_do_not_drift() -> None:
    instants = some(Constant(rate_per_s=3.0), 3_000_001)
    assert instants[3_000_000] == 1_000_000 * SECOND
    assert set(np.diff(instants[:1000]).tolist()) == {333_333_333, 333_333_334}


def test_instants_are_seeded_and_of_their_stage() -> None:
    kind = Poisson(rate_per_s=5.0)
    assert some(kind, 50) == some(kind, 50)
    assert some(kind, 50) != some(kind, 50, seed=2)
    assert some(kind, 50) != some(kind, 50, stage_number=1)
    assert some(kind, 3000) == sorted(some(kind, 3000))


def test_a_closed_loop_has_no_instants() -> None:
    assert some(Closed(streams=3), 10) == []


# Stages


def progress(requests: int | None = None, duration_s: float | None = None) -> StageProgress:
    stage = Stage(name="s", arrivals=Closed(streams=3), requests=requests, duration_s=duration_s)
    return StageProgress(stage, 0, started_ns=10 * SECOND, first_index=100)


def test_a_stage_is_over_when_its_requests_have_been_sent_and_have_ended() -> None:
    made = progress(requests=2)
    for _ in range(2):
        assert made.is_due(11 * SECOND)
        made.take()
    assert not made.is_due(11 * SECOND)
    assert not made.is_over(11 * SECOND)
    made.end(ok=True)
    assert (made.in_flight, made.is_over(11 * SECOND)) == (1, False)
    made.end(ok=False)
    assert (made.in_flight, made.failed, made.is_over(11 * SECOND)) == (0, 1, True)


def test_a_stage_is_over_when_its_time_is_up_and_its_requests_have_ended() -> None:
    made = progress(requests=100, duration_s=2.0)
    made.take()
    assert made.is_due(12 * SECOND - 1)
    assert not made.is_due(12 * SECOND)
    assert not made.is_over(13 * SECOND)
    made.end(ok=True)
    assert not made.is_over(12 * SECOND - 1)
    assert made.is_over(12 * SECOND)


def test_a_paced_stage_is_not_over_while_its_keeper_may_be_late_with_the_last_request() -> None:
    made = progress(duration_s=2.0)
    made.paced = True
    assert made.is_due(12 * SECOND - 1)  # and he wakes up after the end
    assert not made.is_over(12 * SECOND + 1)
    made.close()
    assert made.is_over(12 * SECOND + 1)


def test_a_stage_that_was_closed_lets_nothing_more_leave() -> None:
    made = progress(requests=100)
    made.close()
    assert not made.is_due(11 * SECOND)
    assert made.is_over(11 * SECOND)


def test_a_closed_loop_needs_a_user_a_stream_and_an_open_one_needs_one() -> None:
    assert users_of(progress(requests=1).stage) == 3
    assert users_of(Stage(name="s", arrivals=Poisson(rate_per_s=900.0), requests=1)) == 1


# Tallies and progress


def record(outcome: Outcome = "ok", status: int | None = 200, detail: str = "") -> RequestRecord:
    return RequestRecord(
        index=0, stage="s", requested_tier="a", model="m", prompt_class_tokens=4, max_tokens=8,
        scheduled_ns=0, sent_ns=0, outcome=outcome, status=status, detail=detail, stamp_source="kernel",
        ended_ns=9, event_ns=[250_000_000, 450_000_000], output_tokens=5,
    )  # fmt: skip


def tally(*records: RequestRecord) -> Tally:
    made = Tally()
    for one in records:
        made.add(one)
    return made


REFUSED = record("http_error", 401, "HTTP 401: wrong key")


def test_twenty_failures_of_one_kind_at_the_start_end_a_run_with_the_servers_words() -> None:
    assert tally(*[REFUSED] * (SAME_FAILURES - 1)).hopeless() == ""
    assert (
        tally(*[REFUSED] * SAME_FAILURES).hopeless()
        == "the first 20 requests all failed: HTTP 401: wrong key"
    )


@pytest.mark.parametrize("other", [record(), record("http_error", 404, "x"), record("timeout", None, "idle")])
def test_one_that_went_otherwise_keeps_a_run_going(other: RequestRecord) -> None:
    assert tally(other, *[REFUSED] * 50).hopeless() == ""
    assert tally(*[REFUSED] * 19, other, *[REFUSED] * 50).hopeless() == ""


def test_a_run_without_one_success_is_fruitless() -> None:
    assert tally().fruitless() == ""
    assert tally(record("cancelled")).fruitless() == ""
    assert tally(REFUSED, record()).fruitless() == ""
    assert tally(REFUSED, REFUSED, record("timeout", None, "idle")).fruitless() == (
        "none of 3 requests succeeded: HTTP 401: wrong key"
    )


def test_the_worst_lag_is_kept() -> None:
    made = Tally()
    for lag_s in (0.001, 0.5, None, 0.01):
        made.add(record(), lag_s)
    assert made.worst_lag_s == 0.5


def test_a_line_of_progress_says_stage_counts_and_medians() -> None:
    stage = Stage(name="s", arrivals=Closed(streams=1), requests=9)
    made, figures = StageCounts(stage, started=4, ended=3, failed=1), TierFigures(["a", "b"])
    for seen in (record(), record(), record(), REFUSED):
        figures.add(seen)
    assert line(made, figures) == "s: 3/9 requests, 1 in flight, 1 failed | a: TTFT 250 ms, 20.0 tokens/s"
    assert line(made, TierFigures(["a"]), ended=True) == "s: 3/9 requests, 1 failed"
