"""``report.json``: a report written, read back, and described by a JSON schema made from its types. Pure."""

import ast
import inspect
import sys
from typing import Any

import msgspec

from analysis import model
from analysis.model import REPORT_SCHEMA_VERSION, Report

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def encode(report: Report) -> bytes:
    """Write a report as indented JSON in which every number is finite.

    What is not finite becomes null where the types allow null; elsewhere it raises ValueError.
    """
    data = msgspec.json.encode(report)
    try:
        msgspec.json.decode(data, type=Report)
    except msgspec.ValidationError as error:
        raise ValueError(f"a report holds a number that is not finite: {error}") from error
    return msgspec.json.format(data, indent=2) + b"\n"


def decode(data: bytes) -> Report:
    """Read a report. Raises msgspec.DecodeError where the bytes are none."""
    return msgspec.json.decode(data, type=Report)


def schema() -> dict[str, Any]:
    """Describe ``report.json`` as JSON schema, the words of the types included."""
    made = msgspec.json.schema(Report)
    words = _field_docstrings()
    for name, definition in made["$defs"].items():
        for field, described in definition.get("properties", {}).items():
            if text := words.get((name, field)):
                described["description"] = text
    head = {"$schema": SCHEMA_DIALECT, "title": f"tierscope report, format {REPORT_SCHEMA_VERSION}"}
    return head | made


def schema_text() -> bytes:
    """Write the schema as it stands in docs/report.schema.json."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n"


def _field_docstrings() -> dict[tuple[str, str], str]:
    """Collect the strings that stand below the fields of ``analysis.model``, by class and field."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(model)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, node.body[1:], strict=False):
            match field, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[node.name, name] = inspect.cleandoc(text).replace("\n", " ").replace("``", "`")
                case _:
                    pass
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(schema_text())
