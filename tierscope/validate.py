"""``tierscope validate``: tell for each file whether it can be used, and if not, why."""

from collections.abc import Sequence
from pathlib import Path

from loadtest import plan
from tierscope import prices, typedtoml
from tierscope.errors import BadInputError


def validate_files(files: Sequence[Path]) -> bool:
    """Print one line per file; True if all are good. What a file is follows from the tables it has."""
    good = True
    for path in files:
        try:
            print(f"{path}: {_check(path)}")
        except BadInputError as error:
            good = False
            print(str(error))
    return good


def _check(path: Path) -> str:
    keys = typedtoml.load(path, dict).keys()
    if keys & {"stages", "workload", "timeouts"}:
        from loadtest import workload

        workload.open_source(plan.load(str(path)), folder=plan.folder_of(str(path)))
        return "a good plan"
    if "deployment" in keys:
        from mockserver import config

        config.load(str(path))
        return "a good server profile"
    if keys & {"chips", "models"}:
        from mockserver import tables

        tables.with_files([path.name], beside=path.parent)
        return "a good hardware file"
    if "prices" in keys:
        prices.check(path)
        return "a good price file"
    raise BadInputError(
        f"{path}: is neither a plan (no [workload]) nor a server profile (no [deployment]) nor a hardware "
        "file (no [[chips]] or [[models]]) nor a price file (no [[prices]])"
    )
