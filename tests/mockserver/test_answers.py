"""What is answered: lengths, reasons to end, stop sequences, calls, keys."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mockserver import speech, text
from mockserver.answers import answers_for
from mockserver.ask import Answer, Ask
from mockserver.wire_config import Wire

SHARES = st.floats(0, 1, allow_nan=False)


def ask(prompt: str = "a b c", *, reasoning: bool | None = None, **fields: object) -> Ask:
    return Ask(model="m", prompts=(prompt,), reasoning=reasoning, **fields)  # type: ignore[arg-type]


def answer(to: Ask, *, natural: int = 20, wire: Wire | None = None) -> Answer:
    (only,) = answers_for(to, default_output_tokens=natural, wire=wire or Wire())
    return only


@pytest.mark.parametrize(
    ("max_tokens", "ignore_eos", "tokens", "finish"),
    [
        (None, False, 20, "stop"),
        (None, True, 20, "length"),
        (7, False, 7, "length"),
        (30, True, 30, "length"),
    ],
)
def test_an_answer_is_as_long_as_the_ask_allows(
    max_tokens: int | None, ignore_eos: bool, tokens: int, finish: str
) -> None:
    found = answer(ask(max_tokens=max_tokens, ignore_eos=ignore_eos))
    assert (found.output_tokens, found.finish, found.stop_sequence) == (tokens, finish, None)


def test_answers_follow_prompts_and_then_choices_and_follow_from_prompt_and_seed() -> None:
    both = Ask(model="m", prompts=("one", "two words"), choices=2)
    found = answers_for(both, default_output_tokens=5, wire=Wire())
    assert [one.prompt_tokens for one in found] == [1, 1, 2, 2]
    assert len({one.key for one in found}) == 4
    assert found == answers_for(both, default_output_tokens=5, wire=Wire())
    keys = {answer(ask(seed=seed)).key for seed in (None, 0, 1, 2)}
    assert len(keys) == 4
    assert answer(ask(max_tokens=3)).key == answer(ask(max_tokens=30)).key


def test_an_empty_prompt_is_one_token() -> None:
    assert answer(ask(" \n ")).prompt_tokens == 1


@given(
    tokens=st.integers(1, 300),
    share=SHARES,
    prompt=st.text("ab ", max_size=9),
    stop=st.lists(st.text("etaoin ", min_size=1, max_size=4), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=50)
def test_a_text_ends_before_the_stop_sequence_that_is_complete_first(
    tokens: int, share: float, prompt: str, stop: list[str]
) -> None:
    wire = Wire(reasoning_ratio=share)
    free = answer(ask(prompt, max_tokens=tokens), wire=wire)
    met = answer(ask(prompt, max_tokens=tokens, stop=tuple(stop)), wire=wire)
    unstopped = speech.runs(free)[-1].said
    # Read letter by letter, as a server would that looks whether what it has ends with a stop sequence.
    end = next((n for n in range(1, len(unstopped) + 1) if unstopped[:n].endswith(tuple(stop))), None)
    if end is None:
        assert met == free
        return
    assert met.finish == "stop_sequence"
    assert met.stop_sequence in stop
    assert met.stop_sequence is not None
    seen = unstopped[:end].removesuffix(met.stop_sequence)
    run = speech.runs(met)[-1]
    assert run.said == seen
    assert unstopped[:end].endswith(met.stop_sequence)
    # It was generated up to the token whose last letters complete the sequence.
    letters = [len(piece) for piece in speech.runs(free)[-1].pieces]
    enough = next(n for n in range(1, len(letters) + 1) if sum(letters[:n]) >= end)
    assert met.output_tokens == free.reasoning_tokens + enough
    assert len(run.pieces) == enough


@given(tokens=st.integers(1, 200), share=SHARES, limit=st.none() | st.integers(0, 50), key=st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_reasoning_comes_first_and_leaves_at_least_one_token(
    tokens: int, share: float, limit: int | None, key: int
) -> None:
    wire = Wire(reasoning_ratio=share)
    found = answer(ask(str(key), max_tokens=tokens, reasoning_limit_tokens=limit), wire=wire)
    expected = min(int(tokens * share), tokens - 1)
    assert found.reasoning_tokens == (expected if limit is None else min(expected, limit))
    runs = speech.runs(found)
    assert [run.kind for run in runs] == (["reasoning"] if found.reasoning_tokens else []) + ["text"]
    assert text.count_tokens(speech.said(found)) == tokens == sum(len(run.pieces) for run in runs)
    assert answer(ask(max_tokens=tokens, reasoning=False), wire=wire).reasoning_tokens == 0


@given(st.integers(1, 200), st.integers(0, 99))
@settings(deadline=None, max_examples=50)
def test_the_arguments_of_a_call_are_an_object_of_as_many_tokens_as_were_asked_for(
    tokens: int, key: int
) -> None:
    found = answer(ask(str(key), max_tokens=tokens, tool="look_up", stop=("e",)))
    assert (found.finish, found.output_tokens, found.tool) == ("tool", tokens, "look_up")
    (run,) = speech.runs(found)
    assert run.kind == "tool"
    assert isinstance(json.loads(run.said), dict)
    assert json.loads(b'"' + b"".join(run.pieces) + b'"') == run.said
    assert text.count_tokens(run.said) == tokens == len(run.pieces)
