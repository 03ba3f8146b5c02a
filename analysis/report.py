"""The door of the rendering half: a ``Report`` in, files and plain lines out."""

from pathlib import Path

from analysis.model import Report
from analysis.rendering import first_screen, markdown, pictures, report_json
from analysis.rendering import html as html_page
from analysis.rendering.printable import printable
from analysis.rendering.terminal import summary_lines
from tierscope import wholefile
from tierscope.errors import BadInputError

__all__ = ["summary_lines", "write"]


def write(report: Report, *, html: Path | None, json: Path | None, md: Path | None) -> None:
    """Write a report as HTML, JSON and Markdown, each where a path is given.

    Figures of the Markdown lie beside it as ``STEM-FIGURE.svg``. All is rendered before anything is written,
    and each file is there whole or not at all. Raises BadInputError naming path and reason.
    """
    data = report_json.encode(report)
    files: dict[Path, bytes] = {} if json is None else {json: data}
    if html is not None or md is not None:
        page = first_screen.arrange(printable(report_json.decode(data)))  # what the JSON holds, and only that
        stills = {figure.name: pictures.svg(figure.name, figure.spec) for figure in page.drawn()}
        if md is not None:
            names = {name: f"{md.stem}-{name}.svg" for name in stills}
            files |= {md.with_name(names[k]): markdown.figure_file(v).encode() for k, v in stills.items()}
            files[md] = markdown.render(page, names).encode()
        if html is not None:
            files[html] = html_page.render(page, stills).encode()
    for path, content in files.items():
        _replace(path, content)


def _replace(path: Path, content: bytes) -> None:
    try:
        wholefile.write(path, content)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error
