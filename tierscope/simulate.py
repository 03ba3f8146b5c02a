"""``tierscope simulate``: a plan against a server profile in virtual time.

``tierscope.virtual_run`` plays it; here the run folder is made of it. The same plan, profile and seed give
the same bytes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec

from loadtest import records
from loadtest.plan import Plan, Target, folder_of
from loadtest.plan import load as load_plan
from loadtest.records import RequestRecord, RunInfo
from loadtest.tally import Tally
from loadtest.workload import open_source
from mockserver import config as profiles
from mockserver import step_bound
from mockserver.config import ServerConfig
from tierscope.errors import BadInputError, RunFailedError
from tierscope.virtual_run import OnStep, simulate

__all__ = ["simulate", "simulate_run"]

_FLUSH_EVERY = 100


def simulate_run(
    plan: str,
    *,
    profile: str,
    seed: int | None,
    out: Path,
    force: bool = False,
    step_log: Path | None = None,
) -> None:
    """Simulate a plan and write its run folder; an existing one is refused unless ``force``.

    Every step of the server goes into the Parquet file ``step_log``, if one is named.
    """
    loaded = load_plan(plan, seed=seed)
    config = profiles.load(profile, seed=loaded.seed)
    source = open_source(loaded, folder=folder_of(plan))
    _clear(out, force=force)
    info, tally = _info(loaded, config, profile), Tally()
    try:
        with _logging(config, step_log) as on_step:
            made = simulate(loaded, config, source, on_step=on_step)
            last_ns = _record(out, made, info, tally, source.cautions)
    except OSError as error:
        raise RunFailedError(
            f"{out} cannot be written: {error.strerror}; it holds what was written"
        ) from error
    print(f"{tally.ended} requests, {last_ns / 1e9:.1f} s of virtual time: {out}")
    for caution in source.cautions:
        print(f"note: {caution}")
    if why := tally.fruitless():
        raise RunFailedError(why)
    print(f"next: tierscope report {out}")


@contextmanager
def _logging(config: ServerConfig, path: Path | None) -> Iterator[OnStep | None]:
    """Who hears of the steps, if anybody is to."""
    if path is None:
        yield None
        return
    from mockserver.step_log import StepLog  # pyarrow takes a while to load

    with StepLog(path, step_bound.of_config(config)) as log:
        yield log.add


def _record(
    out: Path, made: Iterator[RequestRecord], info: RunInfo, tally: Tally, cautions: Sequence[str]
) -> int:
    """Write a run folder so that one that breaks off can be read; gives the last instant in it.

    ``cautions`` is what is known of the prompts once the last record is made.
    """
    records.write_info(out, info)
    writer = records.RecordWriter(out)
    last_ns, status = 0, "partial"
    try:
        for record in made:
            writer.append(record)
            tally.add(record)
            last_ns = max(last_ns, record.ended_ns)
            if tally.ended % _FLUSH_EVERY == 0:
                writer.flush()
        status = "complete"
    finally:
        writer.close()
        ended = msgspec.structs.replace(info, status=status, ended_ns=last_ns, prompt_cautions=list(cautions))
        records.write_info(out, ended)
    return last_ns


def _clear(out: Path, *, force: bool) -> None:
    """Make the folder; files of an earlier run are removed only when that was asked for."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not force:
            raise BadInputError(f"--out: {out} is not empty; name a new folder, or add --force")
        for old in (*out.glob(records.LINES_FILES), out / records.PARQUET_FILE, out / records.RUN_FILE):
            old.unlink(missing_ok=True)
    except OSError as error:
        what = "is no folder" if isinstance(error, FileExistsError) else error.strerror
        raise BadInputError(f"--out: {out}: {what}") from error


def _info(plan: Plan, config: ServerConfig, profile: str) -> RunInfo:
    """run.json of a simulated run; nothing in it depends on the wall clock."""
    return RunInfo(
        schema_version=records.SCHEMA_VERSION,
        run_id=f"simulated-{plan.name}-{config.name}-{plan.seed}",
        tierscope_version=version("tierscope"),
        target=Target(url=f"simulated:{profile}", model=config.model_name),
        plan=plan,
        started_unix_s=0.0,
        simulated=True,
    )
