"""Requests of plans with drawn lengths, shared prefixes, conversations: shares, pairs, texts, histories."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadtest import workload
from loadtest.part import Part
from loadtest.plan import Closed, Plan, Stage, Tier, Workload
from loadtest.plan_workload import Lognormal, Sessions, SharedPrefix, Uniform
from loadtest.prose import Counting
from loadtest.workload import Request, Source

DRAWN = Lognormal(median=200, sigma=0.7, minimum=10, maximum=4000)


def plan(work: Workload, *, tiers: int = 2, seed: int = 1, stages: int = 2) -> Plan:
    return Plan(
        name="p",
        seed=seed,
        tiers=tuple(Tier(name=f"t{k}") for k in range(tiers)),
        stages=tuple(Stage(name=f"s{k}", arrivals=Closed(streams=1), requests=1) for k in range(stages)),
        workload=work,
    )


def source(work: Workload, *, tiers: int = 2, seed: int = 1, counting: Counting | None = None) -> Source:
    return workload.open_source(plan(work, tiers=tiers, seed=seed), counting=counting)


def asked(made: Source, count: int, stage: int = 0, first_index: int = 0) -> list[Request]:
    return [made.request(stage, k, index=first_index + k) for k in range(count)]


def text(made: Source, request: Request) -> str:
    return made.says(request)[0].text


def alike(one: list[str], other: list[str]) -> int:
    """How many words two texts have in common before they part."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


# Lengths


def test_drawn_lengths_are_the_same_for_all_arms_of_a_block_and_follow_their_law() -> None:
    made = source(Workload(prompt_tokens=DRAWN, output_tokens=Uniform(minimum=4, maximum=40)))
    requests = asked(made, 8000)
    lengths: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for r in requests:
        lengths[r.tier.name].append((r.prompt_tokens, r.max_tokens))
    assert lengths["t0"] == lengths["t1"]
    prompts, outputs = np.array(lengths["t0"]).T
    law = stats.truncnorm(np.log(9.5 / 200) / 0.7, np.log(4000.5 / 200) / 0.7)
    scores = np.log(prompts / 200) / 0.7
    assert stats.kstest(scores, law.cdf).statistic < 0.03
    assert stats.chisquare(np.bincount(outputs)[4:]).pvalue > 1e-3
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 0.05


def test_a_request_follows_from_its_position_whatever_was_asked_before() -> None:
    work = Workload(
        prompt_tokens=DRAWN,
        output_tokens=DRAWN,
        shared_prefix=SharedPrefix(tokens=30, groups=3, requests_ratio=0.4),
        sessions=Sessions(turns=4, turn_tokens=20),
    )
    whole = asked(source(work), 400)
    backwards = source(work)
    assert [backwards.request(0, k, index=k) for k in reversed(range(400))] == whole[::-1]
    assert asked(source(work), 400, stage=1) != whole
    assert asked(source(work, seed=2), 400) != whole


@given(st.integers(1, 5), st.integers(1, 4))
def test_parts_of_a_stage_are_the_stage(of: int, tiers: int) -> None:
    work = Workload(prompt_tokens=DRAWN, output_tokens=8)
    whole = asked(source(work, tiers=tiers), 60)
    taken: list[Request] = []
    for number in range(of):
        own = source(work, tiers=tiers)  # another process
        positions = itertools.takewhile(lambda p: p < 60, map(Part(number, of).position, itertools.count()))
        taken.extend(own.request(0, p, index=p) for p in positions)
    assert sorted(taken, key=lambda r: r.index) == whole


# Shared prefixes


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 2 / 3, 1.0])
def test_the_share_with_a_prefix_is_exact_at_every_moment_and_groups_take_turns(ratio: float) -> None:
    made = source(
        Workload(
            prompt_tokens=DRAWN,
            output_tokens=8,
            shared_prefix=SharedPrefix(tokens=50, groups=4, requests_ratio=ratio),
        ),
        tiers=1,
    )
    groups = [r.prefix_group for r in asked(made, 1000)]
    for end in (1, 7, 100, 999, 1000):
        assert abs(sum(group is not None for group in groups[:end]) - ratio * end) <= 1
    counts = Counter(group for group in groups if group is not None)
    assert max(counts.values(), default=0) - min((counts[k] for k in range(4)), default=0) <= 1


def test_both_arms_of_a_block_begin_with_the_same_prefix() -> None:
    work = Workload(prompt_tokens=DRAWN, output_tokens=8, shared_prefix=SharedPrefix(tokens=9, groups=5))
    requests = asked(source(work), 200)
    for one, other in zip(requests[::2], requests[1::2], strict=True):
        assert one.prefix_group == other.prefix_group


@given(st.integers(1, 60), st.integers(1, 90), st.sampled_from([0.5, 1.0, 1.37, 4.0]), st.integers(0, 9))
def test_a_group_shares_its_prefix_to_the_word_and_nothing_after_it(
    prefix_tokens: int, tokens: int, tokens_per_word: float, overhead: int
) -> None:
    work = Workload(
        prompt_tokens=(tokens,), output_tokens=8, shared_prefix=SharedPrefix(tokens=prefix_tokens, groups=2)
    )
    counting = Counting(tokens_per_word, overhead)
    made = source(work, tiers=1, counting=counting)
    words_of: dict[int | None, list[list[str]]] = defaultdict(list)
    for request in asked(made, 8):
        words_of[request.prefix_group].append(text(made, request).split(" "))
        assert len(words_of[request.prefix_group][-1]) == counting.words(tokens) == made.prompt_words(request)
    shared = min(counting.words(min(prefix_tokens, tokens - 1)), counting.words(tokens) - 1)
    for group in (0, 1):
        for one, other in itertools.combinations(words_of[group], 2):
            assert alike(one, other) == shared
    for one, other in itertools.product(words_of[0], words_of[1]):
        assert alike(one, other) == 0


def test_a_prefix_is_the_same_in_every_stage_and_of_its_seed() -> None:
    work = Workload(prompt_tokens=(80,), output_tokens=8, shared_prefix=SharedPrefix(tokens=40))
    made, other = source(work), source(work, seed=2)
    first, later = asked(made, 1)[0], asked(made, 1, stage=1, first_index=70)[0]
    assert text(made, first).split(" ")[:40] == text(made, later).split(" ")[:40]
    assert text(made, first).split(" ")[0] != text(other, asked(other, 1)[0]).split(" ")[0]


# Conversations


TALK = Workload(
    prompt_tokens=(100, 300),
    output_tokens=Uniform(minimum=5, maximum=50),
    sessions=Sessions(turns=4, turn_tokens=20, switch_turn=2, switch_tier="t1"),
)


def conversations(requests: list[Request], turns: int = 4) -> list[list[Request]]:
    return [requests[start : start + turns] for start in range(0, len(requests), turns)]


def test_a_turn_aims_at_all_that_was_said_before_and_says_only_what_it_adds() -> None:
    made = source(TALK)
    for talk in conversations(asked(made, 80)):
        history = 0
        for turn, request in enumerate(talk):
            said = text(made, request).split(" ")
            assert (request.turn, request.session) == (turn, talk[0].session)
            assert request.prompt_tokens == history + len(said)
            assert len(said) == made.prompt_words(request) == (20 if turn else talk[0].prompt_tokens)
            history = request.prompt_tokens + request.max_tokens
    assert len({r.max_tokens for r in asked(made, 80)}) > 20


def test_every_conversation_of_a_stage_has_a_name_of_its_own() -> None:
    names = Counter(r.session for stage in (0, 1) for r in asked(source(TALK), 80, stage=stage))
    assert len(names) == 40
    assert set(names.values()) == {4}
    assert {"s0-0", "s0-19", "s1-0"} <= names.keys()


def test_what_is_said_in_a_run_is_said_once() -> None:
    made = source(TALK)
    first_words = [text(made, r).split(" ")[0] for r in asked(made, 80)]
    first_words += [text(made, r).split(" ")[0] for r in asked(made, 80, stage=1, first_index=80)]
    assert len(set(first_words)) == 160


def test_conversations_are_switched_in_the_middle_and_those_that_began_there_stay() -> None:
    began: Counter[str] = Counter()
    for talk in conversations(asked(source(TALK), 80)):
        tiers = [r.tier.name for r in talk]
        began[tiers[0]] += 1
        assert tiers == [tiers[0]] * 2 + ["t1"] * 2
    assert began == {"t0": 10, "t1": 10}


def test_classes_and_tiers_are_balanced_over_conversations() -> None:
    firsts = [talk[0] for talk in conversations(asked(source(TALK), 160))]
    assert Counter((r.tier.name, r.prompt_tokens) for r in firsts) == {
        (tier, tokens): 10 for tier in ("t0", "t1") for tokens in (100, 300)
    }


def test_only_a_conversations_first_turn_begins_with_a_shared_prefix() -> None:
    work = Workload(
        prompt_tokens=(60,),
        output_tokens=8,
        shared_prefix=SharedPrefix(tokens=25),
        sessions=Sessions(turns=3, turn_tokens=40),
    )
    made = source(work)
    texts = [[text(made, r).split(" ") for r in talk] for talk in conversations(asked(made, 30), 3)]
    for one, other in itertools.combinations(texts, 2):
        shared = [alike(a, b) for a, b in zip(one, other, strict=True)]
        assert shared == [25, 0, 0]


def test_instants_of_a_source_are_those_of_its_stage() -> None:
    work = Workload(prompt_tokens=(60,), output_tokens=8)
    assert list(source(work).instants(0)) == []
