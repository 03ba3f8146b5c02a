"""``tierscope report``: run folders in, a page and a few plain lines out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tierscope.errors import BadInputError

_OWN_LAW_ERROR = 0.05
"""Of ln step, where the server is the mock: its noise, and own requests longer than the hidden ones."""

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
    context_tokens: float | None = None,
    margin: float = 0.10,
) -> list[Path]:
    """Analyse run folders, write the report's files, print the verdict; returns where they are."""
    from analysis import report
    from analysis.analyze import analyze

    deployment, usual_context_tokens, law_error = _hardware(hardware)
    page = html if html is not None else runs[0] / "report.html"
    model = analyze(
        runs,
        baseline=baseline,
        compared=compared,
        deployment=deployment,
        context_tokens=context_tokens or usual_context_tokens,
        law_error=law_error,
        price_ratio=price_ratio,
        prefill_margin=margin,
    )
    report.write(model, html=page, json=json, md=md)
    for line in report.summary_lines(model):
        print(line)
    return [path for path in (page, json, md) if path is not None]


def _hardware(hardware: str | None) -> "tuple[Deployment | None, float | None, float]":
    """Read the deployment of a shipped profile by name, or of any TOML file, and what is known with it.

    That is the mean context of other users' sequences and the law's error: a shipped profile is played by the
    very law that is inverted.
    """
    from analysis.whitebox import LAW_ERROR

    if hardware is None:
        return None, None, LAW_ERROR
    from mockserver import config
    from mockserver.hardware import load_deployment

    if hardware in config.shipped():
        profile = config.load(hardware)
        contexts = [config.mean_context_tokens(tier) for tier in profile.tiers]
        return profile.deployment, sum(contexts) / len(contexts), _OWN_LAW_ERROR
    if not Path(hardware).is_file():
        names = ", ".join(config.shipped())
        raise BadInputError(f"--hardware: {hardware!r} is no file and no shipped profile; shipped: {names}")
    return load_deployment(Path(hardware)), None, LAW_ERROR
