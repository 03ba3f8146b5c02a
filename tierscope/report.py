"""``tierscope report``: run folders in, a page and a few plain lines out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.records import LINES_FILES, PARQUET_FILE, RUN_FILE
from tierscope import typedtoml
from tierscope.errors import BadInputError

_OWN_LAW_ERROR = 0.05
"""Of ln step, where the server is the mock: its noise, and own requests longer than the hidden ones."""

_LEAST_PROFIT_RATIO = 0.01

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
    decode_margin: float = 0.05,
    law_error: float | None = None,
    profit_ratios: tuple[float, float] | None = None,
) -> list[Path]:
    """Analyse run folders, write the report's files, print the verdict; returns where they are.

    ``margin`` is that of prefill; None leaves what the analysis, or a shipped ``hardware``, has by default.
    """
    from analysis import report
    from analysis.analyze import analyze

    page = html if html is not None else runs[0] / "report.html"
    _check_files({"--out": page, "--json": json, "--md": md})
    deployment, usual_context_tokens, usual_law_error = _hardware(hardware)
    model = analyze(
        runs,
        baseline=baseline,
        compared=compared,
        deployment=deployment,
        context_tokens=context_tokens or usual_context_tokens,
        law_error=law_error or usual_law_error,
        price_ratio=price_ratio,
        margin_ratios=_profit_ratios(profit_ratios),
        prefill_margin=margin,
        decode_margin=decode_margin,
    )
    report.write(model, html=page, json=json, md=md)
    for line in report.summary_lines(model):
        print(line)
    return [path for path in (page, json, md) if path is not None]


def _profit_ratios(given: tuple[float, float] | None) -> tuple[float, float]:
    """What margins of two tiers may be to one another; equal ones must be thought possible."""
    from analysis.batch import MARGIN_RATIOS

    if given is None:
        return MARGIN_RATIOS
    low, high = given
    if not _LEAST_PROFIT_RATIO <= low <= 1 <= high <= 1 / _LEAST_PROFIT_RATIO:
        raise BadInputError(
            f"--profit-ratios: {low:g} {high:g} is not allowed; expected {_LEAST_PROFIT_RATIO:g} ≤ LOW ≤ 1 ≤ "
            f"HIGH ≤ {1 / _LEAST_PROFIT_RATIO:g}"
        )
    return low, high


def _check_files(files: dict[str, Path | None]) -> None:
    """Refuse, before any work, files that cannot be written or would take the place of something else.

    ``files`` maps options to paths. What a run recorded is never written over.
    """
    seen: dict[Path, str] = {}
    for option, path in files.items():
        if path is None:
            continue
        if path.is_dir():
            raise BadInputError(f"{option}: {path} is a folder; name a file in it")
        if path.name in (RUN_FILE, PARQUET_FILE) or path.match(LINES_FILES):
            raise BadInputError(f"{option}: {path} is what a run recorded; name another file")
        if path in seen:
            raise BadInputError(f"{option}: {path} is the file of {seen[path]} too; name another one")
        if option == "--md" and path.exists() and not path.is_file():
            raise BadInputError(f"--md: {path} is no regular file, and figures are written beside it")
        seen[path] = option


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
    if not typedtoml.is_file(Path(hardware)):
        names = ", ".join(config.shipped())
        raise BadInputError(f"--hardware: {hardware!r} is no file and no shipped profile; shipped: {names}")
    return load_deployment(Path(hardware)), None, LAW_ERROR
