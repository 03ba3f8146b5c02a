"""A bad file is refused in one line that names file, key, value and what is allowed."""

from pathlib import Path

import pytest

from loadtest import plan
from tierscope import typedtoml
from tierscope.errors import BadInputError

GOOD = """
name = "x"
[workload]
prompt_tokens = [128, 2048]
output_tokens = 64
[[tiers]]
name = "standard"
[[stages]]
name = "s"
requests = 320
arrivals = { kind = "closed", streams = 8 }
"""

BROKEN = [
    ("requests = 320", "requests = 0", "stages[0].requests: 0 is not allowed; expected int >= 1"),
    ("requests = 320", "requests = 2.5", "stages[0].requests: 2.5 is not allowed; expected int"),
    ("requests = 320", "request = 3", "stages[0].request: unknown key (did you mean requests?)"),
    ("streams = 8", "streems = 8", "stages[0].arrivals.streems: unknown key (did you mean streams?)"),
    (
        'kind = "closed"',
        'kind = "clozed"',
        "stages[0].arrivals.kind: 'clozed' is not allowed; expected one of closed, poisson, constant",
    ),
    ('name = "x"', "name = 7", "name: 7 is not allowed; expected str"),
    ("[workload]", "[workloads]", "workloads: unknown key (did you mean workload?)"),
    (
        "requests = 320\narrivals",
        "requests = 320\n# arrivals",
        "stages[0].arrivals: is missing and has no default",
    ),
    ("[128, 2048]", "[-1]", "workload.prompt_tokens[0]: -1 is not allowed; expected int >= 1"),
    ("[128, 2048]", "[]", "workload.prompt_tokens: [] is not allowed; expected array of length >= 1"),
    ("output_tokens = 64", "output_tokens = nan", "workload.output_tokens: nan is not allowed"),
    ('name = "standard"', 'name = "st d"', "tiers[0].name: 'st d' is not allowed"),
    ("name = ", "name == ", "is not valid TOML"),
]


@pytest.mark.parametrize(("good", "bad", "expected"), BROKEN, ids=[bad or "removed" for _, bad, _ in BROKEN])
def test_each_fault_of_a_file_is_one_line_with_place_value_and_bound(
    good: str, bad: str, expected: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        typedtoml.parse(GOOD.replace(good, bad), plan.Plan, where="my.toml")
    line = str(caught.value)
    assert line.startswith("my.toml: ")
    assert expected in line
    assert "\n" not in line


def test_the_file_they_are_made_from_is_good() -> None:
    assert typedtoml.parse(GOOD, plan.Plan, where="my.toml").stages[0].requests == 320


def test_a_file_that_is_missing_not_text_or_a_folder_is_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "b.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, expected in [
        (tmp_path / "no.toml", "No such file"),
        (binary, "not UTF-8"),
        (tmp_path, "Is a directory"),
    ]:
        with pytest.raises(BadInputError, match=expected) as caught:
            typedtoml.load(path, plan.Plan)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "0", '"fast"', "[]", "{}", "true"])
def test_no_rate_that_is_not_a_positive_finite_number_is_taken(value: str) -> None:
    text = GOOD.replace('{ kind = "closed", streams = 8 }', f'{{ kind = "poisson", rate_per_s = {value} }}')
    with pytest.raises(BadInputError, match="rate_per_s"):
        typedtoml.parse(text, plan.Plan, where="my.toml")


def test_a_name_that_no_file_can_have_is_one_line_that_can_be_read() -> None:
    for name in ("a" * 5000, "a" * 5000 + ".toml"):
        with pytest.raises(BadInputError, match=r"a{50,}.*: (no such file|cannot be read)") as caught:
            plan.load(name)
        assert len(str(caught.value)) < 300


def test_a_file_nested_too_deep_is_one_line() -> None:
    with pytest.raises(BadInputError, match=r"^my\.toml: is nested too deep$"):
        typedtoml.parse(f"a = {'[' * 3000}{']' * 3000}", plan.Plan, where="my.toml")


def test_a_byte_order_mark_is_not_part_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "edited-elsewhere.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert typedtoml.load(path, plan.Plan).name == "x"


def test_a_value_of_any_length_is_shown_in_a_line_that_can_be_read() -> None:
    with pytest.raises(BadInputError) as caught:
        typedtoml.parse(GOOD.replace('"x"', f'"{"x" * 9000}"'), plan.Plan, where="my.toml")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        (
            "requests = 320",
            "requests = 2020-01-01",
            "requests: 2020-01-01 is not allowed; expected int, got date",
        ),
        ("[workload]", "[[workload]]", "is not allowed; expected table, got array"),
        ("[128, 2048]", "64", "prompt_tokens: 64 is not allowed; expected table or array, got int"),
        ("= 64", "= [64]", "output_tokens: [64] is not allowed; expected int or table, got array"),
    ],
)
def test_types_are_named_in_the_words_of_toml(good: str, bad: str, expected: str) -> None:
    with pytest.raises(BadInputError) as caught:
        typedtoml.parse(GOOD.replace(good, bad), plan.Plan, where="my.toml")
    assert str(caught.value).endswith(expected)
