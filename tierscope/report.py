"""``tierscope report``: run folders in, a page and a few plain lines out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tierscope.errors import BadInputError

if TYPE_CHECKING:
    from mockserver.hardware import Deployment


def report_runs(
    runs: Sequence[Path],
    *,
    html: Path | None,
    json: Path | None,
    md: Path | None,
    hardware: str | None,
    price_ratio: float | None = None,
    baseline: str | None = None,
    compared: str | None = None,
    margin: float = 0.10,
) -> None:
    """Analyse run folders, write the report's files, print the verdict and where they are."""
    from analysis import report
    from analysis.analyze import analyze

    page = html if html is not None else runs[0] / "report.html"
    model = analyze(
        runs,
        baseline=baseline,
        compared=compared,
        deployment=_deployment(hardware),
        price_ratio=price_ratio,
        prefill_margin=margin,
    )
    report.write(model, html=page, json=json, md=md)
    for line in report.summary_lines(model):
        print(line)
    for path in (page, json, md):
        if path is not None:
            print(path)


def _deployment(hardware: str | None) -> "Deployment | None":
    """Read the deployment of a shipped profile by name, or of any TOML file."""
    if hardware is None:
        return None
    from mockserver import config
    from mockserver.hardware import load_deployment

    if hardware in config.shipped():
        return config.load(hardware).deployment
    if not Path(hardware).is_file():
        names = ", ".join(config.shipped())
        raise BadInputError(f"--hardware: {hardware!r} is no file and no shipped profile; shipped: {names}")
    return load_deployment(Path(hardware))
