"""How words become tokens, measured: the right line from good counts, one line of refusal from others."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import calibration, plan
from loadtest.plan import CALIBRATION, Closed, Plan, Stage, Tier, Workload
from loadtest.plan_workload import Prompts, Trace
from loadtest.prose import Counting
from loadtest.workload import open_source
from tierscope.errors import BadInputError

MOONCAKE = Trace(
    file=str(Path(__file__).parent.parent / "data" / "traces" / "mooncake_conversation_excerpt.jsonl"),
    format="mooncake",
    block_tokens=16,
)


def made(work: Workload) -> Plan:
    return Plan(
        name="p",
        stages=(Stage(name="s", arrivals=Closed(streams=1), requests=1),),
        workload=work,
        tiers=(Tier(name="a"), Tier(name="b")),
    )


CLASSES = made(Workload(prompt_tokens=(64, 640), output_tokens=8))


def test_calibration_asks_for_several_lengths_with_fresh_text_of_as_many_words() -> None:
    source, asked = calibration.source(CLASSES), calibration.requests(CLASSES)
    texts = [source.says(request)[0].text.split() for request in asked]
    assert [len(words) for words in texts] == [r.prompt_tokens for r in asked] == [16, 64, 256]
    assert len({words[0] for words in texts}) == 3
    assert [r.index for r in asked] == [0, 1, 2]
    assert all(r.warmup and r.stage == CALIBRATION and r.tier.name == "a" for r in asked)
    assert sum(r.prompt_tokens + r.max_tokens for r in asked) < 400  # cheap
    assert texts[0][0] not in {
        source.says(source.request(0, k, index=k))[0].text.split()[0] for k in range(3, 40)
    }


def test_a_trace_with_blocks_is_measured_on_text_with_as_many_marks() -> None:
    work = Workload(trace=MOONCAKE, tokens_per_word=None)
    source, asked = calibration.source(made(work)), calibration.requests(made(work))
    known = set(source.says(source.request(0, 0, index=9))[0].text.split())
    for request in asked:
        words = source.says(request)[0].text.split()
        assert len(words) == request.prompt_tokens
        marks = [words[place] for place in range(0, len(words), 16)]
        assert len(set(marks)) == len(marks)
        assert not set(marks) & known


def test_what_the_plan_states_or_a_tokenizer_knows_need_not_be_measured() -> None:
    assert calibration.needed(CLASSES)
    assert calibration.needed(made(Workload(trace=MOONCAKE)))
    for work in (
        Workload(prompt_tokens=(64,), output_tokens=8, tokens_per_word=1.3),
        Workload(prompt_tokens=(64,), output_tokens=8, tokenizer="t.json"),
        Workload(prompts=Prompts(file="p"), output_tokens=8),
    ):
        assert not calibration.needed(made(work))


@given(st.floats(0.5, 5), st.floats(0, 60))
def test_an_exact_server_is_fitted_so_that_prompts_hit_their_length(per_word: float, overhead: float) -> None:
    words = calibration.PROMPT_WORDS
    counted = [round(overhead + per_word * count) for count in words]
    counting = calibration.fit(words, counted)
    # Counts are rounded by up to 1/2: the slope's error is at most 1/2 · Σ|x - mean| / Σ(x - mean)².
    worst_slope = 0.5 * (96 + 48 + 144) / (96**2 + 48**2 + 144**2) + 1e-6
    assert counting.tokens_per_word == pytest.approx(per_word, abs=worst_slope)
    for aimed in (300, 3000):
        asked = counting.words(aimed)
        worst = per_word / 2 + 0.5 + worst_slope * (112 + asked) + 0.001
        assert abs(overhead + per_word * asked - aimed) <= worst


def test_a_server_that_counts_words_is_fitted_exactly() -> None:
    assert calibration.fit([16, 64, 256], [16, 64, 256]) == Counting(1.0, 0.0)
    source = open_source(CLASSES, counting=calibration.fit([256, 16, 64], [256, 16, 64]))
    assert source.counting.words(123_457) == 123_457


@pytest.mark.parametrize(
    ("words", "tokens", "why"),
    [
        ([], [], "0 prompt lengths were counted; at least 2 are needed"),
        ([16, 16], [20, 20], "1 prompt lengths were counted; at least 2 are needed"),
        ([16, 64, 256], [30, 30, 30], "do not grow with the words: 30 for 16, 30 for 64, 30 for 256"),
        ([16, 64, 256], [90, 80, 300], "do not grow with the words"),
        ([16, 64, 256], [0, 1, 2], "0.00744 is not believable"),
        ([16, 64], [1600, 64000], "is not believable"),
        ([16, 64, 256], [20, 900, 1000], "lie on no line"),
    ],
)
def test_counts_that_are_no_measurement_are_refused_in_one_line(
    words: list[int], tokens: list[int], why: str
) -> None:
    with pytest.raises(BadInputError, match=why) as caught:
        calibration.fit(words, tokens)
    assert str(caught.value).startswith("tokens per word: ")
    assert "\n" not in str(caught.value)


def test_a_plans_stage_cannot_pass_for_the_calibration() -> None:
    with pytest.raises(BadInputError, match=r"^p: stages\[0\]\.name: 'calibration' is kept for"):
        plan.check(
            Plan(
                name="p",
                stages=(Stage(name=CALIBRATION, arrivals=Closed(streams=1), requests=1),),
                workload=CLASSES.workload,
            ),
            where="p",
        )
