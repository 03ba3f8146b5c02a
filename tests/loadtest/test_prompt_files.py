"""Prompts from files: said as they stand, in order, each once; what is wrong is said with its line."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import workload
from loadtest.plan import Closed, Plan, Stage, Tier, Workload
from loadtest.plan_workload import Prompts, Sessions
from loadtest.prompt_files import open_prompts
from loadtest.workload import Message, Source
from tierscope.errors import BadInputError

TEXTS = st.text(min_size=1, max_size=30).filter(lambda text: not any(0xD800 <= ord(c) < 0xE000 for c in text))


def lines(path: Path, *entries: Any) -> Path:
    path.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries), "utf-8")
    return path


def source(prompts: Prompts, folder: Path, **more: Any) -> Source:
    work = msgspec.structs.replace(Workload(prompts=prompts, output_tokens=9), **more)
    stages = tuple(Stage(name=f"s{k}", arrivals=Closed(streams=1), requests=9) for k in range(2))
    plan = Plan(name="p", stages=stages, workload=work, tiers=(Tier(name="a"), Tier(name="b")))
    return workload.open_source(plan, folder=folder)


def said(made: Source, count: int, stage: int = 0, first_index: int = 0) -> list[list[Message]]:
    return [made.says(made.request(stage, k, index=first_index + k)) for k in range(count)]


@given(st.lists(TEXTS, min_size=1, max_size=9))
def test_each_prompt_is_sent_as_it_stands_in_the_files_order(tmp_path_factory: Any, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("prompts")
    lines(folder / "p.jsonl", *({"prompt": text} for text in texts))
    made = source(Prompts(file="p.jsonl"), folder)
    assert said(made, len(texts)) == [[Message("user", text)] for text in texts]
    assert made.cautions == []


def test_messages_keep_their_roles_and_a_line_may_tell_its_output_length(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why is that so"}]
    lines(
        tmp_path / "p.jsonl",
        {"messages": messages, "max_tokens": 5, "id": 7},
        {"prompt": "b", "output_tokens": 6},
    )
    made = source(Prompts(file="p.jsonl"), tmp_path)
    assert said(made, 1) == [[Message("system", "be brief"), Message("user", "why is that so")]]
    requests = [made.request(0, k, index=k) for k in range(2)]
    assert [r.max_tokens for r in requests] == [5, 6]
    assert [r.prompt_tokens for r in requests] == [6, 1]
    assert [made.prompt_words(r) for r in requests] == [6, 1]


def test_a_later_stage_goes_on_where_the_one_before_ended(tmp_path: Path) -> None:
    lines(tmp_path / "p.jsonl", *({"prompt": f"number {k}"} for k in range(20)))
    made = source(Prompts(file="p.jsonl"), tmp_path)
    texts = [m[0].text for m in said(made, 9) + said(made, 9, stage=1, first_index=9)]
    assert texts == [f"number {k}" for k in range(18)]


def test_prompts_used_again_are_a_caution_unless_that_was_meant(tmp_path: Path) -> None:
    lines(tmp_path / "p.jsonl", {"prompt": "one"}, {"prompt": "two"})
    made = source(Prompts(file="p.jsonl"), tmp_path)
    assert [m[0].text for m in said(made, 2)] == ["one", "two"]
    assert made.cautions == []
    assert [m[0].text for m in said(made, 5)] == ["one", "two", "one", "two", "one"]
    assert made.cautions == [
        f"{tmp_path / 'p.jsonl'}: its 2 prompts were used more than once; a prefix cache may have known them"
    ]
    meant = source(Prompts(file="p.jsonl", repeat=True), tmp_path)
    said(meant, 5)
    assert meant.cautions == []


def test_a_conversation_opens_with_a_prompt_of_the_file_and_goes_on_fresh(tmp_path: Path) -> None:
    lines(tmp_path / "p.jsonl", *({"prompt": f"number {k}"} for k in range(4)))
    made = source(Prompts(file="p.jsonl"), tmp_path, sessions=Sessions(turns=3, turn_tokens=12))
    texts = [m[0].text for m in said(made, 12)]
    assert texts[::3] == [f"number {k}" for k in range(4)]
    later = [text for k, text in enumerate(texts) if k % 3]
    assert {len(text.split()) for text in later} == {12}
    assert len({text.split()[0] for text in later}) == 8
    assert [made.request(0, k, index=k).prompt_tokens for k in range(3)] == [2, 2 + 9 + 12, 2 + 2 * (9 + 12)]
    assert made.cautions == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{}", "expected one of prompt and messages"),
        (
            b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}',
            "expected one of prompt and mess",
        ),
        (b'{"prompt": ""}', "length >= 1 - at `$.prompt`"),
        (b'{"prompt": 7}', "`$.prompt`"),
        (b'{"messages": []}', "`$.messages`"),
        (b'{"messages": [{"role": "tool", "content": "x"}]}', "`$.messages[0].role`"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image"}]}]}', "`$.messages[0].content`"),
        (b'{"prompt": "a", "max_tokens": 0}', "`$.max_tokens`"),
        (b'{"prompt": "a", "max_tokens": 3, "output_tokens": 4}', "differ; keep one"),
        (b'{"prompt": "a"', "truncated"),
        (b'"a"', "`object`"),
        (b'{"prompt": "\xff"}', "utf-8"),
        pytest.param(b"[" * 5000, "", id="nested"),
    ],
)
def test_a_line_that_asks_nothing_is_refused_when_the_file_is_opened_with_its_number(
    tmp_path: Path, line: bytes, words: str
) -> None:
    (tmp_path / "p.jsonl").write_bytes(b'{"prompt": "good"}\n\n' + line + b'\n{"prompt": "good"}\n')
    with pytest.raises(BadInputError) as caught:
        open_prompts(Prompts(file="p.jsonl"), folder=tmp_path, lengths_needed=False)
    told = str(caught.value)
    assert told.startswith(f"{tmp_path / 'p.jsonl'}:3: ")
    assert words.lower() in told.lower()
    assert "\n" not in told


def test_where_the_plan_tells_no_output_length_each_line_must(tmp_path: Path) -> None:
    lines(tmp_path / "p.jsonl", {"prompt": "a", "max_tokens": 3}, {"prompt": "b"})
    with pytest.raises(
        BadInputError, match=r"p\.jsonl:2: says no max_tokens, and the plan has no workload\.out"
    ):
        source(Prompts(file="p.jsonl"), tmp_path, output_tokens=None)


@pytest.mark.parametrize("kind", ["jsonl", "sharegpt"])
@pytest.mark.parametrize("text", [None, "", "\n\n"])
def test_a_file_that_is_missing_or_holds_nothing_is_one_line(
    tmp_path: Path, kind: Any, text: str | None
) -> None:
    if text is not None:
        (tmp_path / "p").write_text(text)
    with pytest.raises(BadInputError, match=r"/p: (cannot be read: No such|holds no prompt|is no JSON list)"):
        open_prompts(Prompts(file="p", format=kind), folder=tmp_path, lengths_needed=False)
    with pytest.raises(BadInputError, match="cannot be read: Is a directory"):
        open_prompts(Prompts(file="", format=kind), folder=tmp_path, lengths_needed=False)


# ShareGPT


def talk(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}


def test_of_a_sharegpt_conversation_the_first_question_is_asked_for_an_answer_as_long(tmp_path: Path) -> None:
    entries = [
        talk(("human", "who are\nyou?"), ("gpt", "I am a model of some size"), ("human", "really")),
        talk(("gpt", "left over"), ("human", "and then?"), ("gpt", "the end")),
        talk(("system", "be brief"), ("user", "now"), ("assistant", "")),
        talk(("gpt", "nobody asked")),
        talk(),
        talk(("human", "  ")),
    ]
    (tmp_path / "s.json").write_text(json.dumps(entries), "utf-8")
    made = source(Prompts(file="s.json", format="sharegpt"), tmp_path, output_tokens=None)
    assert said(made, 3) == [[Message("user", t)] for t in ("who are\nyou?", "and then?", "now")]
    assert [made.request(0, k, index=k).max_tokens for k in range(3)] == [7, 2, 1]
    assert made.cautions == [f"{tmp_path / 's.json'}: 3 conversations without a question were left out"]
    plans = source(Prompts(file="s.json", format="sharegpt"), tmp_path)
    assert [plans.request(0, k, index=k).max_tokens for k in range(3)] == [9, 9, 9]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"conversations": []}, {"conversations": [{"from": "human"}]}]', "conversation 2: .*value"),
        ('[{"conversations": [{"from": 1, "value": "x"}]}]', "conversation 1: .*from"),
        ('[{"talk": []}]', "conversation 1: .*conversations"),
        ('{"conversations": []}', "is no JSON list of conversations"),
        ('[{"conversations": []}', "is no JSON list of conversations"),
    ],
)
def test_a_damaged_sharegpt_file_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(BadInputError, match=rf"s\.json: {words}") as caught:
        open_prompts(Prompts(file="s.json", format="sharegpt"), folder=tmp_path, lengths_needed=False)
    assert "\n" not in str(caught.value)


# Size


def test_memory_holds_places_and_not_prompts(tmp_path: Path) -> None:
    count, path = 20_000, tmp_path / "p.jsonl"
    with path.open("w") as file:
        for number in range(count):
            file.write(f'{{"prompt": "{number} {"word " * 100}"}}\n')
    tracemalloc.start()
    made = open_prompts(Prompts(file="p.jsonl"), folder=tmp_path, lengths_needed=False)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 10_000_000
    assert held < count * 8 * 1.2 + 100_000
    assert made.prompt(count - 1).messages[0].text.startswith(f"{count - 1} word")


def test_a_file_that_changes_under_a_run_is_said(tmp_path: Path) -> None:
    lines(tmp_path / "p.jsonl", {"prompt": "one"}, {"prompt": "two"})
    made = open_prompts(Prompts(file="p.jsonl"), folder=tmp_path, lengths_needed=False)
    (tmp_path / "p.jsonl").write_text("{}")
    with pytest.raises(BadInputError, match=r"p\.jsonl: has changed since it was opened"):
        made.prompt(1)
