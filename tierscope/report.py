"""``tierscope report``: run folders or other tools' files in, a page and a few plain lines out."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.records import LINES_FILES, PARQUET_FILE, RUN_FILE
from tierscope import typedtoml
from tierscope.errors import BadInputError, ToldError

_OWN_LAW_ERROR = 0.05
"""Of ln step, where the server is the mock: its noise, and own requests longer than the hidden ones."""

_LEAST_PROFIT_RATIO = 0.01

if TYPE_CHECKING:
    from analysis.model import Report
    from analysis.sources.prometheus import Question
    from mockserver.hardware import Deployment


def report_runs(
    runs: Sequence[Path],
    *,
    asked: "Question | None" = None,
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
    calibration: Sequence[Path] = (),
) -> list[Path]:
    """Analyse what was recorded, write the report's files, print the verdict; returns where they are.

    Raises ToldError(1), all written and said, if what was asked cannot be told from another tool's file.

    ``runs`` are run folders, or files of other kinds (docs/sources.md), each a path or TIER=PATH; or
    ``asked`` says what to ask of a Prometheus server. ``margin`` is that of prefill; None leaves what the
    analysis, or a shipped ``hardware``, has by default. ``calibration`` are run folders of sweeps of the same
    tiers.
    """
    from analysis import report
    from analysis.analyze import analyze
    from analysis.sources import aggregate_report, inputs, prometheus, withheld
    from analysis.sources.aggregate import Aggregate

    given = [inputs.parse(str(run)) for run in runs]
    page = html if html is not None else _usual_page(given[0].path if given else Path())
    _check_files({"--out": page, "--json": json, "--md": md}, [one.path for one in given])
    deployment, usual_context_tokens, usual_law_error = _hardware(hardware)
    opened = inputs.read(given) if asked is None else prometheus.read(asked, given=given)
    answer: Callable[..., Report]
    if isinstance(opened, Aggregate):
        if calibration:
            raise BadInputError("--calibration: needs a run folder to compare with, and single requests")
        answer = partial(aggregate_report.answer, opened)
    else:
        answer = partial(analyze, opened, calibration=calibration)
    model = answer(
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
    if not isinstance(opened, Aggregate):
        model = withheld.withhold(model, opened)
    report.write(model, html=page, json=json, md=md)
    for line in report.summary_lines(model):
        print(line)
    written = [path for path in (page, json, md) if path is not None]
    compared_asked = bool(baseline or compared or any(one.tier for one in given))
    if _left_open(model, compared_asked=compared_asked, hardware_asked=hardware is not None):
        print("\n".join(map(str, written)))
        raise ToldError(1)
    return written


def _left_open(model: "Report", *, compared_asked: bool, hardware_asked: bool) -> bool:
    """Whether a source that is no run folder cannot tell anything of what was asked."""
    if not model.sources:
        return False
    verdict = model.verdict
    tests = [test for test in (verdict.decode, verdict.prefill) if test is not None]
    uncompared = all(test.speed_ratio.value is None for test in tests)
    failed = any(tier.requests for tier in model.tiers) and not any(t.outcomes.get("ok") for t in model.tiers)
    no_step = all(tier.step_s.value is None for tier in model.tiers)
    return failed or (compared_asked and uncompared) or (hardware_asked and no_step)


def question(url: str | None, run_id: str | None, begin: str | None, end: str | None) -> "Question | None":
    """What to ask of a Prometheus server; None without one. Raises BadInputError for what it cannot be."""
    told = {"--run": run_id, "--from": begin, "--to": end}
    if url is None:
        lost = next((option for option, value in told.items() if value is not None), None)
        if lost is not None:
            raise BadInputError(f"{lost}: says what to ask of a Prometheus server; --prometheus is missing")
        return None
    from analysis.sources import prometheus

    return prometheus.Question(
        url=url,
        run_id=run_id,
        begin_s=None if begin is None else prometheus.instant(begin, option="--from"),
        end_s=None if end is None else prometheus.instant(end, option="--to"),
    )


def _usual_page(first: Path) -> Path:
    """Where the page goes if nobody says: into the run's folder, or beside the file."""
    return first / "report.html" if first.is_dir() or not first.is_file() else first.with_name("report.html")


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


def _check_files(files: dict[str, Path | None], inputs: Sequence[Path]) -> None:
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
        if path.resolve() in {one.resolve() for one in inputs}:
            raise BadInputError(f"{option}: {path} is what the report is made from; name another file")
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
