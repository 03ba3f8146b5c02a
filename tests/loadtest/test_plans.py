"""Plans: the shipped ones, and every way a plan can be wrong, each in one line."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtest import plan
from loadtest.plan import Plan, Tier
from tierscope import typedtoml
from tierscope.errors import BadInputError

GOOD = """
name = "p"
[workload]
prompt_tokens = [64, 128]
output_tokens = 16
[[stages]]
name = "s"
requests = 4
arrivals = { kind = "closed", streams = 2 }
"""


def test_every_shipped_plan_is_valid_and_says_what_it_is_for() -> None:
    assert {"ab", "ramp", "session", "smoke", "steady", "sweep"} <= set(plan.shipped())
    for name in plan.shipped():
        loaded = plan.load(name)
        assert loaded.name == name
        assert loaded.description


def test_a_seed_given_overrides_the_files() -> None:
    assert plan.load("ab", seed=99) == plan.reseed(plan.load("ab"), 99)
    assert plan.load("ab", seed=99).seed == 99


def test_a_plan_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD)
    loaded = plan.load(str(file))
    assert loaded.workload.prompt_tokens == (64, 128)
    assert loaded.tiers[0].name == "standard"
    assert loaded.timeouts.total_s == 600


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "output_tokens = 16",
            "output_token = 16",
            "workload.output_token: unknown key (did you mean output_tokens?)",
        ),
        ("output_tokens = 16", "", "workload.output_tokens: is missing"),
        ("output_tokens = 16", "output_tokens = 0", "workload.output_tokens: 0 is not allowed"),
        ("output_tokens = 16", 'output_tokens = "16"', "workload.output_tokens: '16' is not allowed"),
        ("[64, 128]", "[]", "workload.prompt_tokens: [] is not allowed"),
        ("[64, 128]", "[64, 64]", "workload.prompt_tokens[1]: '64' is there twice"),
        ("[64, 128]", "[64, -1]", "workload.prompt_tokens"),
        ("requests = 4", "", "stages[0]: never ends; give it requests or duration_s"),
        ("requests = 4", "duration_s = 0.0", "stages[0].duration_s: 0.0 is not allowed"),
        ('"closed", streams = 2', '"opened", streams = 2', "stages[0].arrivals.kind"),
        (
            '"closed", streams = 2',
            '"poisson", rate_per_s = 0.0',
            "stages[0].arrivals.rate_per_s: 0.0 is not allowed",
        ),
        ('"closed", streams = 2', '"poisson", streams = 2', "stages[0].arrivals"),
        ('name = "s"', 'name = "a b"', "stages[0].name: 'a b' is not allowed"),
        ('name = "s"', 'name = "s\\n"', r"stages[0].name: 's\n' is not allowed"),
        ('name = "p"', 'name = "p"\nseed = -1', "seed: -1 is not allowed"),
        ("[workload]", "[workload", "is not valid TOML"),
        (
            'name = "p"',
            'name = "p"\n[[tiers]]\nname="x"\n[[tiers]]\nname="x"',
            "tiers[1]: 'x' is there twice",
        ),
        ('name = "p"', 'name = "p"\n[timeouts]\nidle_s = 0', "timeouts.idle_s: 0 is not allowed"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_in_one_line(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in GOOD
    file = tmp_path / "bad.toml"
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(BadInputError) as caught:
        plan.load(str(file))
    line = str(caught.value)
    assert line.startswith(str(file))
    assert words in line
    assert "\n" not in line


LEVELS = GOOD.replace("streams = 2 }", "streams = 2 }\nlevels = [1, 8]")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "s"', f'name = "{"s" * 63}"', f"stages[0].name: '{'s' * 63}-1' is not allowed"),
        ("requests = 4", "requests = 100_000_000", "stages[1].requests: 800000000 is not allowed"),
        (
            'kind = "closed", streams = 2 }\nlevels = [1, 8]',
            'kind = "poisson", rate_per_s = 2 }\nlevels = [1, 1e-9]',
            "stages[1].arrivals.rate_per_s: 1e-09 is not allowed",
        ),
    ],
)
def test_levels_make_no_plan_that_the_runs_folder_could_not_hold(old: str, new: str, words: str) -> None:
    assert old in LEVELS
    with pytest.raises(BadInputError) as caught:
        plan.parse(LEVELS.replace(old, new), where="p")
    assert str(caught.value).startswith(f"p: with its levels written out: {words}")


def test_stages_written_out_are_no_more_than_a_plan_may_have() -> None:
    head, stage = GOOD.split("[[stages]]")
    stage = stage.replace("streams = 2 }", f"streams = 2 }}\nlevels = [{', '.join(map(str, range(1, 101)))}]")
    many = "".join("[[stages]]" + stage.replace('"s"', f'"s{k}"') for k in range(11))
    with pytest.raises(BadInputError, match=r"^p: with its levels written out: stages: .*<= 1000"):
        plan.parse(head + many, where="p")


def test_a_plan_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(BadInputError, match=r"plan 'nope': .*ab, ramp, session, smoke, steady, sweep"):
        plan.load("nope")


def test_a_plan_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"gone\.toml: cannot be read: No such file"):
        plan.load(str(tmp_path / "gone.toml"))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xff"')
    with pytest.raises(BadInputError, match=r"latin\.toml: is not UTF-8 text"):
        plan.load(str(tmp_path / "latin.toml"))


def test_whole_numbers_do_for_seconds() -> None:
    text = GOOD.replace("requests = 4", "duration_s = 3")
    loaded: Any = typedtoml.parse(text, Plan, where="x")
    assert loaded.stages[0].duration_s == 3.0


def with_tier(tier: Tier) -> Plan:
    return msgspec.structs.replace(typedtoml.parse(GOOD, Plan, where="p"), tiers=(tier,))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Authorization", "Bearer x", "no secret"),
        ("X-API-Key", "x", "no secret"),
        ("Host", "x", "sets it itself"),
        ("Content-Length", "3", "sets it itself"),
        ("X-A", "a\r\nX-B: b", "cannot be sent|can be sent"),
        ("X-A", "a\n", "can be sent"),
        ("X-A\n", "a", "can be sent"),
        ("X A", "a", "can be sent"),
        ("", "a", "can be sent"),
    ],
)
def test_a_tier_cannot_smuggle_headers_or_secrets(name: str, value: str, words: str) -> None:
    with pytest.raises(BadInputError, match=rf"^p: tiers\[0\]\.headers: .*({words})"):
        plan.check(with_tier(Tier(name="t", headers={name: value})), where="p")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://h", "scheme or host is missing"),
        ("h:80", "scheme or host is missing"),
        ("", "scheme or host is missing"),
        ("http://user:word@h", "credentials do not belong there"),
        ("http://h?a=1", "a query or fragment"),
        ("http://h:0", "port 0"),
    ],
)
def test_a_tiers_own_address_is_looked_at_with_the_plan(url: str, words: str) -> None:
    with pytest.raises(BadInputError, match=rf"^p: tiers\[0\]\.url: .*{words}"):
        plan.check(with_tier(Tier(name="t", url=url)), where="p")


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nb", "a\udcff", "a\u202eb"])
def test_a_models_name_can_be_shown_and_written(name: str) -> None:
    with pytest.raises(BadInputError) as caught:
        plan.check_model(name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("{ temperature = nan }", "body.temperature: nan"),
        ("{ a = { b = [1, -inf] } }", "body.a.b[1]: -inf"),
        ("{ when = 2026-01-01 }", "body.when: 2026-01-01"),
        ("{ when = [07:32:00] }", "body.when[0]: 07:32:00"),
    ],
)
def test_what_json_cannot_say_is_no_field_of_a_tier(body: str, place: str) -> None:
    made = typedtoml.parse(f'{GOOD}[[tiers]]\nname = "t"\nbody = {body}', Plan, where="p")
    with pytest.raises(BadInputError) as caught:
        plan.check(made, where="p")
    assert str(caught.value) == f"p: tiers[0].{place} is not allowed; expected what JSON can say"


@pytest.mark.parametrize("field", ["messages = []", "prompt = 'x'", "input = 'x'", "stream = false"])
def test_what_the_workload_decides_is_no_field_of_a_tier(field: str) -> None:
    made = typedtoml.parse(f'{GOOD}[[tiers]]\nname = "t"\nbody = {{ {field} }}', Plan, where="p")
    name = field.partition(" ")[0]
    with pytest.raises(BadInputError, match=rf"^p: tiers\[0\]\.body\.{name}: .* expected workload\."):
        plan.check(made, where="p")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"closed", streams = 2', '"poisson", rate_per_s = 1e-300', "arrivals.rate_per_s: 1e-300"),
        ("streams = 2", "streams = 100000000", "arrivals.streams: 100000000"),
        ("output_tokens = 16", "output_tokens = 16\ntokens_per_word = 1e-300", "tokens_per_word: 1e-300"),
    ],
)
def test_numbers_that_no_run_could_follow_are_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        typedtoml.parse(GOOD.replace(old, new), Plan, where="p")
    assert words in str(caught.value)


WORKLOAD = """prompt_tokens = [64, 128]
output_tokens = 16
"""
TWO_TIERS = '\n[[tiers]]\nname = "a"\n[[tiers]]\nname = "b"'


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (
            "output_tokens = 16",
            "workload: nothing says what to ask; expected one of prompt_tokens, prompts and",
        ),
        (
            'prompt_tokens = [64]\noutput_tokens = 16\nprompts = { file = "p" }',
            "workload: prompt_tokens and prompts say what to ask",
        ),
        (
            'prompt_tokens = [64]\noutput_tokens = 16\ntokenizer = "t"\ntokens_per_word = 1.3',
            "workload: tokenizer and tokens_per_word both say how to count; keep one",
        ),
        (
            'prompt_tokens = { kind = "uniform", minimum = 9, maximum = 8 }\noutput_tokens = 16',
            "workload.prompt_tokens.minimum: 9 is not allowed; expected at most maximum, 8",
        ),
        (
            'prompt_tokens = { kind = "lognormal", median = 9, sigma = 1, minimum = 10 }\noutput_tokens = 16',
            "workload.prompt_tokens.median: 9 is not allowed; expected minimum to maximum, 10 to 1000000",
        ),
        (
            'prompt_tokens = [64]\noutput_tokens = { kind = "empirical" }',
            "workload.output_tokens: expected one of values and file",
        ),
        (
            'prompt_tokens = { kind = "normal" }\noutput_tokens = 16',
            "workload.prompt_tokens.kind: 'normal' is not allowed; expected one of lognormal, uniform, emp",
        ),
        (
            'trace = { file = "t", format = "azure" }\noutput_tokens = 4',
            "workload.output_tokens: a trace tells",
        ),
        (
            'trace = { file = "t", format = "azure", block_tokens = 4 }',
            "workload.trace.block_tokens: azure traces have no blocks",
        ),
        (
            'trace = { file = "t", format = "qwen" }\nshared_prefix = { tokens = 4 }',
            "workload.shared_prefix: a qwen trace tells what is shared; leave it out",
        ),
        (
            'trace = { file = "t", format = "qwen" }\nsessions = { turns = 2, turn_tokens = 4 }',
            "workload.sessions: a trace tells its own histories; leave sessions out",
        ),
        ('trace = { file = "t", format = "csv" }', "workload.trace.format: 'csv' is not allowed"),
        (
            'prompts = { file = "p" }\nshared_prefix = { tokens = 4 }',
            "workload.shared_prefix: prompts of a file are sent as they are; leave it out",
        ),
        (
            f"{WORKLOAD}sessions = {{ turns = 4, turn_tokens = 4, switch_turn = 2 }}",
            "workload.sessions: switch_turn and switch_tier go together",
        ),
        (
            f'{WORKLOAD}sessions = {{ turns = 4, turn_tokens = 4, switch_turn = 2, switch_tier = "c" }}',
            "workload.sessions.switch_tier: 'c' is no tier; expected a or b",
        ),
        (
            f'{WORKLOAD}sessions = {{ turns = 4, turn_tokens = 4, switch_turn = 4, switch_tier = "b" }}',
            "workload.sessions.switch_turn: 4 is not allowed; expected less than turns, 4",
        ),
        (
            f"{WORKLOAD}sessions = {{ turns = 0, turn_tokens = 4 }}",
            "workload.sessions.turns: 0 is not allowed",
        ),
        (
            f"{WORKLOAD}shared_prefix = {{ tokens = 4, requests_ratio = 1.5 }}",
            "requests_ratio: 1.5 is not allowed",
        ),
    ],
)
def test_a_workload_that_contradicts_itself_is_refused_in_one_line(workload: str, words: str) -> None:
    assert WORKLOAD in GOOD
    with pytest.raises(BadInputError) as caught:
        plan.parse(GOOD.replace(WORKLOAD, workload + "\n") + TWO_TIERS, where="p")
    line = str(caught.value)
    assert line.startswith("p: ")
    assert words in line
    assert "\n" not in line


@pytest.mark.parametrize(
    "workload",
    [
        'prompts = { file = "p", format = "sharegpt" }',
        'trace = { file = "t", format = "mooncake", block_tokens = 64, limit = 5 }',
        'trace = { file = "t", format = "burstgpt" }\nshared_prefix = { tokens = 4 }',
        f'{WORKLOAD}sessions = {{ turns = 4, turn_tokens = 4, switch_turn = 3, switch_tier = "b" }}',
        'prompt_tokens = { kind = "empirical", values = [3] }\noutput_tokens = 4',
        'prompt_tokens = [3]\noutput_tokens = { kind = "empirical", file = "f" }',
    ],
)
def test_a_workload_that_says_one_thing_is_taken(workload: str) -> None:
    made = plan.parse(GOOD.replace(WORKLOAD, workload + "\n") + TWO_TIERS, where="p")
    again = msgspec.json.decode(msgspec.json.encode(made), type=Plan)  # as run.json keeps it
    assert again == made


def test_files_are_found_from_the_plans_folder(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(GOOD)
    (tmp_path / "plan-without-suffix").write_text(GOOD)
    for name in ("p.toml", "plan-without-suffix", "gone.toml"):
        assert plan.folder_of(str(tmp_path / name)) == tmp_path
    assert plan.folder_of("ab") == Path()
