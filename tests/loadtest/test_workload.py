"""Which request comes when: a paired design, and texts that begin like no other."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtest import workload
from loadtest.plan import Closed, Plan, Stage, Tier, Workload


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
