"""How many replicas keep a promise: the search against brute force, the command from a trace to its table."""

import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mockserver import config as profiles
from mockserver.offered import Goal, Offered, Service, serve
from mockserver.tier_config import Price
from tests.test_end_to_end import tierscope
from tierscope.capacity import plan_capacity, search
from tierscope.capacity_table import costs, table
from tierscope.errors import BadInputError, RunFailedError

GOAL = Goal(ttft_s=1.0, tpot_s=0.1, goodput_ratio=0.9)
FULL_PRICE = Price(
    input_usd_per_mtok=4, output_usd_per_mtok=20, cache_write_usd_per_mtok=5, cache_read_usd_per_mtok=0.4
)
ROOT = Path(__file__).parent.parent.parent
EXCERPTS = ROOT / "tests" / "data" / "traces"


def outcome(replicas: int, missed: int) -> Service:
    times_s = np.full(100, 0.5)
    return Service(replicas, times_s, times_s, missed, 0, missed > 10, 1.0, 0.5, 1.0, 0)


@given(st.integers(1, 40), st.integers(0, 200), st.integers(1, 260))
def test_the_smallest_number_of_replicas_is_found_in_few_tries(low: int, more: int, enough: int) -> None:
    asked: list[int] = []

    def try_out(replicas: int) -> Service:
        asked.append(replicas)
        return outcome(replicas, 0 if replicas >= enough else 50)

    tried = search(try_out, GOAL, low, low + more)
    good = [service.replicas for service in tried if not service.given_up]
    expected = max(low, enough)
    assert (min(good) if good else None) == (expected if expected <= low + more else None)
    assert [service.replicas for service in tried] == sorted(asked)
    assert len(asked) == len(set(asked)) <= 2 * (more + 2).bit_length() + 1


def write_trace(path: Path, *, count: int = 240, rate_per_s: float = 30.0) -> Path:
    rng = np.random.default_rng(5)
    at_s = np.cumsum(rng.exponential(1 / rate_per_s, count)).tolist()
    rows = zip(
        at_s, rng.integers(100, 3000, count).tolist(), rng.integers(1, 60, count).tolist(), strict=True
    )
    lines = [f"{at:.6f},ChatGPT,{prompt},{output}" for at, prompt, output in rows]
    path.write_text("\n".join(["Timestamp,Model,Request tokens,Response tokens", *lines]))
    return path


def capacity(trace: Path, **changes: object) -> None:
    options: dict[str, object] = {
        "profile": "h100-70b", "tier": None, "ttft_s": 0.8, "tpot_s": 0.08, "goodput_ratio": 0.95,
        "replicas": "1..16", "format_name": None, "scale": 1.0, "limit": None, "seed": None,
    }  # fmt: skip
    plan_capacity(trace, **{**options, **changes})  # type: ignore[arg-type]


def test_the_answer_is_the_one_that_trying_all_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capacity(write_trace(tmp_path / "t.csv"))
    said = capsys.readouterr().out
    found = re.search(r"^(\d+) replicas of \w+ are enough", said, re.MULTILINE)
    assert found is not None
    rows = [line.split(",") for line in (tmp_path / "t.csv").read_text().splitlines()[1:]]
    at_ns = np.array([round(float(row[0]) * 1e9) for row in rows])
    what = Offered(at_ns - at_ns[0], np.array([int(r[2]) for r in rows]), np.array([int(r[3]) for r in rows]))
    config = profiles.load("h100-70b")
    goal = Goal(0.8, 0.08, 0.95)
    met = [
        serve(config, config.tiers[0], count, what, goal, give_up=False).goodput_ratio >= 0.95
        for count in range(1, int(found[1]) + 1)
    ]
    assert met == [False] * (len(met) - 1) + [True]
    assert len(met) > 1


def test_a_table_tells_of_every_try_and_what_the_answer_costs(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "t.csv")
    words = (
        "capacity",
        trace,
        "--profile",
        "opus-like",
        "--ttft-s",
        2,
        "--tpot-s",
        0.2,
        "--replicas",
        "1..8",
    )
    done = tierscope(*words, "--goodput", 0.9, "--scale", 0.5)
    assert done.returncode == 0, done.stderr
    assert "240 requests" in done.stdout
    assert re.search(r"^ +\d+ +<?\d+\.\d\d%", done.stdout, re.MULTILINE)
    assert "replicas of standard are enough" in done.stdout
    assert "chip-seconds per million output tokens" in done.stdout
    assert "at the tier's prices the trace is worth $" in done.stdout
    assert all(len(line) <= 110 for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("found", "kept", "price", "usd"),
    [
        (0, False, Price(input_usd_per_mtok=4, output_usd_per_mtok=20, cache_write_usd_per_mtok=5), 24.0),
        (600_000, True, Price(input_usd_per_mtok=4, output_usd_per_mtok=20), 24.0),
        (600_000, True, Price(input_usd_per_mtok=4, output_usd_per_mtok=20, cache_read_usd_per_mtok=0), 21.6),
        (600_000, True, FULL_PRICE, 0.6 * 0.4 + 0.4 * 5 + 20),
    ],
)
def test_a_trace_is_worth_what_its_tokens_sell_for_read_written_or_fresh(
    found: int, kept: bool, price: Price, usd: float
) -> None:
    """A million tokens in and a million out."""
    config = profiles.load("h100-70b")
    tier, million = msgspec.structs.replace(config.tiers[0], price=price), np.array([1_000_000])
    offered = Offered(np.array([0]), million, million, (lambda row: ()) if kept else None)
    service = Service(1, np.ones(1), np.ones(1), 0, 0, False, 3600.0, 1.0, 1.0, found)
    chips = config.deployment.all_chips
    told = list(costs(service, offered, config, tier))[-1]
    assert told == (f"at the tier's prices the trace is worth ${usd:,.2f}, ${usd / chips:,.2f} per chip-hour")


def test_the_example_of_the_page_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "virtual-time.md").read_text(encoding="utf-8")
    example = re.search(r"^\$ tierscope (capacity .*?)\n(?=\S)(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert example is not None
    monkeypatch.chdir(ROOT)
    assert tierscope(*example[1].replace("\\\n", "").split()).stdout == example[2]


def test_what_a_trace_does_not_have_is_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Answers of one token have no TPOT, and requests of one instant no rate."""
    path = tmp_path / "ones.csv"
    path.write_text("Timestamp,Model,Request tokens,Response tokens\n" + "0.5,ChatGPT,10,1\n" * 2)
    capacity(path)
    said = capsys.readouterr().out
    assert "2 requests in 0.0 s (all at one instant)" in said
    assert re.search(r"100\.00% .* –        –   ", said)
    assert "nan" not in said


def test_a_promise_that_nobody_can_keep_fails_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"not even 2 keep the promise to 95\.0% of the requests"):
        capacity(write_trace(tmp_path / "t.csv"), replicas="1..2", ttft_s=0.001)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"replicas": "8..4"}, r"--replicas: '8\.\.4' is not allowed; expected 1\.\.64"),
        ({"replicas": "many"}, r"--replicas: 'many' is not allowed"),
        ({"replicas": "0..4"}, r"--replicas: '0\.\.4' is not allowed"),
        ({"replicas": "1..5000"}, r"up to 4096"),
        ({"tier": "gold"}, r"--tier: 'gold' is no tier of h100-70b; expected standard"),
        ({"format_name": "csv"}, r"--format: 'csv' is not allowed; expected azure, mooncake, qwen, burstgpt"),
        ({"profile": "no-such"}, r"no-such"),
    ],
)
def test_bad_input_is_one_line_that_names_it(
    tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(BadInputError, match=complaint):
        capacity(write_trace(tmp_path / "t.csv", count=3), **changes)


@pytest.mark.parametrize(
    ("head", "row", "known"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,48,10", True),
        (
            "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
            "5,GPT-4,48,10,58,API",
            True,
        ),
        ("", '{"timestamp": 3, "input_length": 48, "output_length": 10, "hash_ids": [1]}', True),
        (
            "",
            '{"chat_id": 1, "timestamp": 3.5, "input_length": 9, "output_length": 10, "hash_ids": [1]}',
            True,
        ),
        ("when,how much", "5,48", False),
    ],
    ids=["azure", "burstgpt", "mooncake", "qwen", "another"],
)
def test_a_traces_format_is_seen_from_its_first_line(
    head: str, row: str, known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t").write_text(f"{head}\n{row}\n".lstrip())
    if known:
        capacity(tmp_path / "t")
        assert "1 requests" in capsys.readouterr().out
    else:
        with pytest.raises(BadInputError, match="is of no trace that is known; name one with --format"):
            capacity(tmp_path / "t")


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"gone\.csv: cannot be read: No such file"):
        capacity(tmp_path / "gone.csv")


def test_shared_prefixes_of_a_trace_are_found_where_the_profile_has_a_cache(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = EXCERPTS / "mooncake_conversation_excerpt.jsonl"
    said = []
    for profile in ("h100-70b", "cache-per-tier"):
        capacity(trace, profile=profile, ttft_s=60.0, tpot_s=1.0)
        said.append(capsys.readouterr().out)
    assert "prefix cache" not in said[0]
    assert "prefixes that the trace shares are cached" in said[1]
    assert re.search(r"[1-9]\d*\.\d% of the prompt tokens were found in the prefix cache", said[1])


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXCERPTS.parents[2] / "docs" / "virtual-time.md").read_text(encoding="utf-8")
    _, shown, _ = page.split("```", 2)
    lines = shown.strip().splitlines()
    words = " ".join(lines[:2]).replace("\\", "").split()
    trace, options = EXCERPTS.parents[2] / words[3], dict(zip(words[4::2], words[5::2], strict=True))
    capacity(
        trace,
        profile=options["--profile"],
        ttft_s=float(options["--ttft-s"]),
        tpot_s=float(options["--tpot-s"]),
        goodput_ratio=float(options["--goodput"]),
        scale=float(options["--scale"]),
        replicas=options["--replicas"],
    )
    said = capsys.readouterr().out.strip().splitlines()
    assert said[:2] == lines[2:4]
    for told in (said, lines):  # figures move with the profile's law, words do not
        told[:] = [re.sub(r"[<\d.,%]+|\s+", " ", line).strip() for line in told]
    assert set(said) == set(lines[2:])


def test_chips_of_all_stages_and_replicas_are_paid_for() -> None:
    loaded = profiles.load("h100-70b")
    deployment = msgspec.structs.replace(loaded.deployment, chips=4, pipeline_stages=2, usd_per_chip_hour=2.5)
    config = msgspec.structs.replace(loaded, deployment=deployment)
    times_s = np.full(100, 0.5)
    service = Service(3, times_s, times_s, 0, 0, False, 7200.0, 0.5, 1.0, 0)  # two hours
    row = table([service], GOAL, config, config.tiers[0]).splitlines()[1].split()
    assert row[-2:] == ["48.0", "120.00"]
    what = Offered(np.arange(100), np.full(100, 10), np.full(100, 1728))
    told = list(costs(service, what, config, config.tiers[0]))
    assert told[0] == "1000000 chip-seconds per million output tokens, $694.44"
