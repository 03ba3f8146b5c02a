"""Figures as static SVG, and the script that makes them interactive: all that needs vl-convert.

Nothing is fetched: no base URL is allowed for data, and the script comes out of the package. Text is
measured with whatever fonts there are.
"""

import re
from functools import cache
from typing import Any

import altair as alt
import vl_convert

WIDTH = 440
"""Pixels a static figure is laid out for; it scales with its place from there."""

_ID = re.compile(r"""(\bid="|url\(#|href="#)""")
_GROUND = re.compile(r'<rect width="[\d.]+" height="[\d.]+" fill="white"/>')


def svg(name: str, spec: dict[str, Any], *, width: int = WIDTH) -> str:
    """Draw a Vega-Lite ``spec`` as an SVG without ground, ids prefixed by ``name``.

    Colours stay as the spec names them, CSS variables included.
    """
    drawn: str = vl_convert.vegalite_to_svg(
        spec | {"width": width}, vl_version=_vega_lite_version(), allowed_base_urls=[]
    )
    return _ID.sub(rf"\g<1>{name}-", _GROUND.sub("", drawn, count=1))


@cache
def script() -> str:
    """Bundle Vega, Vega-Lite and Vega-Embed of the version that Altair writes for; defines ``vegaEmbed``."""
    bundle: str = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=_vega_lite_version()
    )
    # A script element ends at the first "</script" and changes its rules at "<!--", wherever they stand.
    return bundle.replace("</script", r"<\/script").replace("<!--", r"\x3c!--")


@cache
def _vega_lite_version() -> str:
    """Choose the bundled Vega-Lite that matches Altair's schema, or the newest."""
    wanted = alt.SCHEMA_VERSION.removeprefix("v").rsplit(".", 1)[0]
    offered: list[str] = vl_convert.get_vegalite_versions()
    return wanted if wanted in offered else offered[-1]
