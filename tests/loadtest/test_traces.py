"""Traces: published rows read right, blocks equal in text where their ids are, damage said with its line."""

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import traces, workload
from loadtest.plan import Closed, Plan, Stage, Tier, TraceTimes, Workload
from loadtest.plan_workload import SharedPrefix, Trace
from loadtest.workload import Counting, Source
from tierscope.errors import BadInputError

DATA = Path(__file__).parent.parent / "data" / "traces"
AZURE = Trace(file="azure_code_head.csv", format="azure")
MOONCAKE = Trace(file="mooncake_conversation_excerpt.jsonl", format="mooncake")
# Six columns as published; the third row failed, and the fourth came before the second.
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.25,ChatGPT,1087,230,1317,Conversation log
45.5,GPT-4,80,0,80,API log
6,GPT-4,417,276,693,Conversation log
"""


def source(trace: Trace, folder: Path = DATA, *, counting: Counting | None = None, **work: Any) -> Source:
    stages = tuple(Stage(name=f"s{k}", arrivals=TraceTimes()) for k in range(2))
    plan = Plan(name="p", stages=stages, workload=Workload(trace=trace, **work), tiers=(Tier(name="a"),))
    return workload.open_source(plan, folder=folder, counting=counting)


def texts(made: Source, count: int, *, stage: int = 0, first_index: int = 0) -> list[list[str]]:
    requests = [made.request(stage, k, index=first_index + k) for k in range(count)]
    return [made.says(request)[0].text.split(" ") for request in requests]


def alike(one: list[Any], other: list[Any]) -> int:
    """How many words, or ids, two lists have in common before they part."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


# What is read


def test_azure_dates_are_read_to_the_last_of_their_seven_digits() -> None:
    rows = traces.load(AZURE, folder=DATA)
    # 18:17:03.9799600, 18:17:04.0319600 and 18:17:04.0781490 in the file
    assert rows.at_ns[:3].tolist() == [0, 52_000_000, 98_189_000]
    assert rows.prompt_tokens[:3].tolist() == [4808, 3180, 110]
    assert rows.output_tokens[:3].tolist() == [10, 8, 27]
    assert len(rows) == 59
    assert rows.block_tokens is None


def test_azure_dates_of_2024_have_a_zone_and_more_or_fewer_digits(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,5,6\n2024-05-10 00:00:01+00:00,7,8\n2024-05-11 00:00:00,9,1\n"
    )
    rows = traces.load(Trace(file="a.csv", format="azure"), folder=tmp_path)
    assert rows.at_ns.tolist() == [0, 990_070_000, 86_400_000_000_000 - 9_930_000]


def test_mooncake_instants_are_ms_and_its_blocks_512_tokens() -> None:
    rows = traces.load(MOONCAKE, folder=DATA)
    told = [json.loads(line) for line in (DATA / MOONCAKE.file).read_text().splitlines()]
    assert rows.at_ns.tolist() == [row["timestamp"] * 1_000_000 for row in told]
    assert [rows.block_ids(k).tolist() for k in range(len(told))] == [row["hash_ids"] for row in told]
    assert rows.block_tokens == 512


def test_qwen_instants_are_s_and_its_blocks_16_tokens(tmp_path: Path) -> None:
    row = {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 33, "output_length": 2,
           "type": "text", "turn": 2, "hash_ids": [1089, 1090, 6326]}  # fmt: skip
    first = row | {
        "chat_id": 55,
        "parent_chat_id": -1,
        "timestamp": 61.0,
        "input_length": 20,
        "hash_ids": [1089],
    }
    (tmp_path / "q.jsonl").write_text(f"{json.dumps(first)}\n\n{json.dumps(row)}\n")
    rows = traces.load(Trace(file="q.jsonl", format="qwen"), folder=tmp_path)
    assert rows.at_ns.tolist() == [0, 114_000_000]
    assert (rows.block_tokens, rows.greatest_id) == (16, 6326)
    made = source(Trace(file="q.jsonl", format="qwen"), tmp_path)
    one, other = texts(made, 2)
    assert (len(one), len(other), alike(one, other)) == (20, 33, 16)


def test_burstgpt_rows_that_failed_are_left_out_and_counted_and_the_rest_is_sorted(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(BURSTGPT)
    made = source(Trace(file="b.csv", format="burstgpt"), tmp_path)
    assert list(made.instants(0)) == [0, 1_000_000_000, 40_250_000_000]
    requests = [made.request(0, k, index=k) for k in range(3)]
    assert [(r.prompt_tokens, r.max_tokens) for r in requests] == [(472, 18), (417, 276), (1087, 230)]
    assert made.cautions == [f"{tmp_path / 'b.csv'}: 1 rows without tokens were left out"]


def test_columns_are_found_by_name_and_a_byte_order_mark_is_no_part_of_one(tmp_path: Path) -> None:
    lines = ["\ufeffElapsed time,Response tokens,Timestamp,Session ID,Request tokens", "9,2,0.5,x,3"]
    (tmp_path / "b.csv").write_text("\r\n".join(lines), "utf-8")
    rows = traces.load(Trace(file="b.csv", format="burstgpt"), folder=tmp_path)
    assert (rows.prompt_tokens.tolist(), rows.output_tokens.tolist()) == ([3], [2])


def test_a_limit_takes_the_first_rows_that_were_answered(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(BURSTGPT)
    rows = traces.load(Trace(file="b.csv", format="burstgpt", limit=3), folder=tmp_path)
    assert len(rows) == 3
    assert len(traces.load(msgspec.structs.replace(AZURE, limit=7), folder=DATA)) == 7


# What is said


def test_real_rows_share_exactly_the_text_of_their_common_blocks() -> None:
    rows, made = traces.load(MOONCAKE, folder=DATA), source(MOONCAKE)
    said = texts(made, len(rows))
    assert [len(words) for words in said] == rows.prompt_tokens.tolist()
    common = []
    for one, other in itertools.combinations(range(len(rows)), 2):
        shared = alike(rows.block_ids(one).tolist(), rows.block_ids(other).tolist()) * 512
        assert alike(said[one], said[other]) == min(shared, len(said[one]), len(said[other]))
        common.append(shared)
    assert max(common) > 10 * 512


@st.composite
def chains(draw: st.DrawFn, block: int = 16) -> list[dict[str, Any]]:
    """Rows with ids that often agree at first, the last block whole or not, fresh text behind it or not."""
    rows = []
    for ids in draw(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=2, max_size=5)):
        length = len(ids) * block + draw(st.integers(1 - block if ids else 1, 3 * block))
        rows.append({"timestamp": 0, "input_length": length, "output_length": 1, "hash_ids": ids})
    return rows


def said_by(folder: Path, rows: list[dict[str, Any]], counting: Counting) -> list[list[str]]:
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = Trace(file="t.jsonl", format="mooncake", block_tokens=16)
    return texts(source(trace, folder, counting=counting), len(rows))


@given(chains())
def test_rows_share_exactly_as_long_a_prefix_as_their_ids(tmp_path_factory: Any, rows: list[Any]) -> None:
    said = said_by(tmp_path_factory.mktemp("trace"), rows, Counting())
    assert [len(words) for words in said] == [row["input_length"] for row in rows]
    for (one, ours), (other, theirs) in itertools.combinations(zip(said, rows, strict=True), 2):
        shared = alike(ours["hash_ids"], theirs["hash_ids"]) * 16
        assert alike(one, other) == min(shared, len(one), len(other))


@given(chains(), st.sampled_from([0.6, 1.37, 3.0]), st.integers(0, 9))
def test_a_measured_ratio_keeps_shared_prefixes_to_a_word(
    tmp_path_factory: Any, rows: list[Any], per_word: float, overhead: int
) -> None:
    counting = Counting(per_word, overhead)
    said = said_by(tmp_path_factory.mktemp("trace"), rows, counting)
    assert [len(words) for words in said] == [counting.words(row["input_length"]) for row in rows]
    for (one, ours), (other, theirs) in itertools.combinations(zip(said, rows, strict=True), 2):
        shared_tokens = alike(ours["hash_ids"], theirs["hash_ids"]) * 16
        words = max(0.0, (shared_tokens - overhead) / per_word)
        assert abs(alike(one, other) - min(words, len(one), len(other))) <= 1.5


def test_a_block_says_the_same_wherever_it_stands(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"timestamp": 0, "input_length": 48, "output_length": 1, "hash_ids": ids}
        for ids in ([1, 2, 3], [3, 1, 9], [2, 2, 2])
    ]
    one, other, same = said_by(tmp_path, rows, Counting())
    assert one[:16] == other[16:32]
    assert one[32:] == other[:16]
    assert one[16:32] == same[:16] == same[16:32] == same[32:]


def test_an_id_more_than_the_prompt_has_blocks_says_nothing(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"timestamp": 0, "input_length": 32, "output_length": 1, "hash_ids": ids}
        for ids in ([1, 2, 3], [1, 2])
    ]
    one, other = said_by(tmp_path, rows, Counting())
    assert one == other
    assert len(one) == 32


def test_rows_out_of_order_keep_their_blocks_and_those_of_one_instant_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {"timestamp": int(at), "input_length": 1 + k, "output_length": 1, "hash_ids": [k] * (k % 2)}
        for k, at in enumerate(rng.integers(0, 5, size=2000))
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = traces.load(Trace(file="t.jsonl", format="mooncake"), folder=tmp_path)
    told = sorted(rows, key=lambda row: row["timestamp"])  # Python's sort is stable
    assert made.prompt_tokens.tolist() == [row["input_length"] for row in told]
    assert [made.block_ids(k).tolist() for k in range(2000)] == [row["hash_ids"] for row in told]


def test_a_row_of_a_trace_without_blocks_shares_nothing() -> None:
    said = texts(source(AZURE), 59)
    assert len({words[0] for words in said}) == 59


def test_a_shared_prefix_can_be_added_where_a_trace_tells_none() -> None:
    said = texts(source(AZURE, shared_prefix=SharedPrefix(tokens=20)), 20)
    assert {alike(said[0], words) for words in said[1:]} == {20}


def test_a_second_lap_and_a_second_stage_have_the_lengths_of_the_first_and_none_of_its_text() -> None:
    made, count = source(MOONCAKE), len(traces.load(MOONCAKE, folder=DATA))
    first = texts(made, count)
    assert made.cautions == []
    lap = texts(made, 2 * count)[count:]
    stage = texts(made, count, stage=1, first_index=count)
    (caution,) = made.cautions
    assert caution.endswith(
        f"its {count} rows were played more than once; their lengths repeat, their text does not"
    )
    for again in (lap, stage):
        assert [len(words) for words in again] == [len(words) for words in first]
        assert max(alike(one, other) for one in first for other in again) == 0
        assert np.mean(np.array(again[0]) == np.array(first[0])) < 0.01  # 1 in 521 by chance
        shared = [alike(again[0], words) for words in again]
        assert shared == [alike(first[0], words) for words in first]  # among themselves they share alike


def test_equal_ids_are_equal_text_and_others_as_good_as_random() -> None:
    said = texts(source(MOONCAKE), 4)
    ours, theirs = np.array(said[0][1000:6000]), np.array(said[1][1000:6000])
    assert np.mean(ours == theirs) < 0.01  # 1 in 521 by chance
    assert len(set(ours.tolist())) > 450


# What is wrong


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("azure", "TIMESTAMP,ContextTokens\n", "t:1: has no column GeneratedTokens"),
        ("azure", "", "t:1: has no column TIMESTAMP, ContextTokens, GeneratedTokens"),
        (
            "azure",
            "H\n2023-11-16 18:17:03.97,5,6\n2023-11-16,5,6\n",
            "t:3: TIMESTAMP: '2023-11-16' is no date",
        ),
        ("azure", "H\n2023-13-16 18:17:03,5,6\n", "t:2: TIMESTAMP: '2023-13-16 18:17:03' is no date"),
        ("azure", "H\n2023-11-16 18:17:03,5\n", "t:2: has 2 columns; the header has more"),
        ("azure", "H\n2023-11-16 18:17:03,5,six\n", "t:2: GeneratedTokens: 'six' is not allowed"),
        ("azure", "H\n2023-11-16 18:17:03,-5,6\n", "t:2: ContextTokens: '-5' is not allowed"),
        ("azure", "H\n2023-11-16 18:17:03,5,99999999\n", "t:2: GeneratedTokens: '99999999' is not allowed"),
        ("azure", "H\n2023-11-16 18:17:03,0,6\n", "t: holds no request that was answered"),
        (
            "burstgpt",
            "Timestamp,Request tokens,Response tokens\nsoon,5,6\n",
            "t:2: Timestamp: 'soon' is no time",
        ),
        (
            "burstgpt",
            "Timestamp,Request tokens,Response tokens\nnan,5,6\n",
            "t:2: Timestamp: 'nan' is no time",
        ),
        ("mooncake", "{}\n", "t:1: "),
        ("mooncake", "\n[]\n", "t:2: "),
        ("mooncake", '{"timestamp": -1, "input_length": 1, "output_length": 1}', "t:1: .*timestamp"),
        ("mooncake", '{"timestamp": 0, "input_length": 1.5, "output_length": 1}', "t:1: .*input_length"),
        ("qwen", '{"timestamp": 2e9, "input_length": 1, "output_length": 1}', "t:1: timestamp: 2e"),
        ("qwen", "", "t: holds no request that was answered"),
        (
            "mooncake",
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2, 3, 4]}',
            "t:1: 4 hash_ids of 512 tokens do not fit an input_length of 600; is block_tokens right",
        ),
        pytest.param("azure", 'H\n"' + "x" * 200_000, "t:2: is no CSV: field larger than", id="huge"),
        ("azure", "H\n\udcff", "t:2: is not UTF-8 text"),
    ],
)
def test_whatever_is_wrong_with_a_trace_is_one_line(tmp_path: Path, kind: Any, text: str, words: str) -> None:
    whole = text.replace("H\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n")
    (tmp_path / "t").write_bytes(whole.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadInputError, match=words) as caught:
        traces.load(Trace(file="t", format=kind), folder=tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_trace_that_is_not_there_is_said(tmp_path: Path) -> None:
    for kind in ("azure", "mooncake", "qwen", "burstgpt"):
        with pytest.raises(BadInputError, match=r"/t: cannot be read: No such file"):
            traces.load(msgspec.convert({"file": "t", "format": kind}, Trace), folder=tmp_path)


def test_a_closed_loop_takes_a_traces_lengths_too() -> None:
    plan = Plan(
        name="p",
        stages=(Stage(name="s", arrivals=Closed(streams=2), requests=5),),
        workload=Workload(trace=AZURE),
    )
    made = workload.open_source(plan, folder=DATA)
    assert list(made.instants(0)) == []
    assert made.request(0, 0, index=0).prompt_tokens == 4808
