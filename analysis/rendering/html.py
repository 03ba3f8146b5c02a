"""A report as one HTML file that needs nothing else: no network, no script to be read, no font.

Rules for whoever edits this file or its templates:

1. Everything in a report may have been written by a foreign server. Text goes through autoescape; data for
   scripts goes through ``script_json``; only what was made here is marked safe.
2. A content security policy lets run what is hashed below and load nothing, should rule 1 ever fail.
3. Each figure is there as SVG; the script puts an interactive one over it, and print takes the SVG.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup, escape

from analysis.rendering import pictures, theme
from analysis.rendering.page import INTERVALS, LEVEL_MARKS, Page

_VEGA_NOTICE = (
    "/* Vega, Vega-Lite, Vega-Embed: (c) University of Washington IDL and contributors, BSD-3. */\n"
)
_UNITS = re.compile(r"(\d) (µs|ms|s|min|tokens/s|tokens|%)(?![\w/])")
_INTERVAL = re.compile(r"\([\d.,−≤≥][^()\s]{0,23}(?:\u00a0[^()\s]{1,8})?\)")
_UNSAFE_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render(page: Page, stills: Mapping[str, str]) -> str:
    """Render a page; ``stills`` holds the SVG of each of its figures. The same page gives the same text."""
    specs = {figure.name: figure.spec for figure in page.drawn()}
    scripts = [_VEGA_NOTICE + pictures.script(), _template_text("report.js")] if specs else []
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            page=page,
            marks=LEVEL_MARKS,
            intervals=INTERVALS,
            pictures={name: Markup(svg) for name, svg in stills.items()},
            specs=Markup(script_json(specs)),
            scripts=[Markup(script) for script in scripts],
            policy=_policy(scripts),
            light=Markup(theme.declarations(theme.LIGHT)),
            dark=Markup(theme.declarations(theme.DARK)),
            font=Markup(theme.FONT),
            style=Markup(_template_text("report.css")),
        )
    )


def script_json(value: Any) -> str:
    """Write JSON that can stand inside a script element whatever strings it holds."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_UNSAFE_IN_SCRIPT)


def steady(text: str) -> Markup:
    """Escape running text and keep numbers with their units, and intervals, on one line."""
    kept = _UNITS.sub("\\1\u00a0\\2", str(escape(text)))
    return Markup(_INTERVAL.sub(r'<span class="steady">\g<0></span>', kept))


def _policy(scripts: list[str]) -> str:
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _template_text(name: str) -> str:
    return (resources.files("analysis.rendering") / "templates" / name).read_text(encoding="utf-8")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis.rendering", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["steady"] = steady
    return environment
