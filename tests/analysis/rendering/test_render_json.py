"""report.json: it comes back as it was, its schema holds, and what is written about it is complete."""

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from msgspec import structs

from analysis import model
from analysis.model import Curve, Report
from analysis.rendering import report_json

DOCS = Path(__file__).parents[3] / "docs"


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@pytest.fixture(scope="session")
def schema() -> Any:
    return json.loads((DOCS / "report.schema.json").read_bytes())


def test_a_report_comes_back_as_it_was(any_report: Report) -> None:
    assert report_json.decode(report_json.encode(any_report)) == any_report


def test_every_sample_keeps_to_the_committed_schema(any_report: Report, schema: Any) -> None:
    written = json.loads(report_json.encode(any_report), parse_constant=refuse)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(written)


def test_the_committed_schema_is_the_one_the_types_make(schema: Any) -> None:
    assert schema == report_json.schema(), (
        "write it anew: python -m analysis.rendering.report_json > docs/report.schema.json"
    )


def test_the_schema_refuses_a_conclusion_of_ones_own_and_an_unknown_field(
    ab_report: Report, schema: Any
) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    for change in ({"verdict": {"conclusion": "faster"}}, {"extra": 1}):
        written = json.loads(report_json.encode(ab_report))
        for key, value in change.items():
            written[key] = written[key] | value if isinstance(value, dict) else value
        assert not validator.is_valid(written)


def test_the_schema_says_what_the_types_say(schema: Any) -> None:
    speed = schema["$defs"]["DecodeTest"]["properties"]["speed_ratio"]
    assert "above 1 the compared tier is faster" in speed["description"]


def test_what_is_not_finite_becomes_null_where_null_is_allowed(ab_report: Report) -> None:
    lost = structs.replace(ab_report.verdict.decode, z=math.inf, p_value=math.nan)  # type: ignore[type-var]
    report = structs.replace(ab_report, verdict=structs.replace(ab_report.verdict, decode=lost))
    back = report_json.decode(report_json.encode(report))
    assert back.verdict.decode is not None
    assert (back.verdict.decode.z, back.verdict.decode.p_value) == (None, None)


def test_what_is_not_finite_is_refused_where_a_number_has_to_be(ab_report: Report) -> None:
    curve = Curve(name="standard", x=[1.0, math.nan], y=[1.0, 2.0])
    figures = structs.replace(ab_report.figures, prefill_curves=[curve])
    with pytest.raises(ValueError, match=r"not finite.*prefill_curves"):
        report_json.encode(structs.replace(ab_report, figures=figures))


def test_every_field_is_explained_in_the_documentation() -> None:
    text = (DOCS / "report.md").read_text(encoding="utf-8")
    kinds = [
        kind for kind in vars(model).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]
    names = {field.name for kind in kinds for field in structs.fields(kind)}
    assert len(names) > 100
    assert sorted(name for name in names if f"`{name}`" not in text) == []
