"""The run folders as the report names them, and the command that does the same again."""

import shlex
from pathlib import Path

from analysis import intervals
from analysis.load import Loaded
from analysis.model import RunSummary
from analysis.ragged import Bools
from loadtest import plan as plans
from loadtest.records import RunInfo

_SIMULATED = "simulated:"
"""How ``tierscope simulate`` writes a profile's name into a target's URL."""


def summarise_runs(loaded: Loaded, measured: Bools) -> list[RunSummary]:
    """One summary per folder; ``measured`` says of each row of the table whether it counts."""
    runs = loaded.requests.column("run")
    ended = loaded.requests.column("ended_at_s")
    found: list[RunSummary] = []
    for number, (folder, info) in enumerate(zip(loaded.folders, loaded.infos, strict=True)):
        mine = runs == number
        found.append(
            RunSummary(
                run_id=info.run_id,
                folder=str(folder),
                plan=info.plan.name,
                seed=None if loaded.sources else info.plan.seed,
                url=info.target.url,
                model=info.target.model,
                api=info.target.api,
                status=info.status,
                status_detail=info.status_detail,
                simulated=info.simulated,
                started_unix_s=intervals.finite(info.started_unix_s),
                duration_s=_duration_s(info, float(ended[mine].max()) if mine.any() else None),
                requests=int(mine.sum()),
                measured_requests=int((mine & measured).sum()),
                repeat_command="" if loaded.sources else repeat_command(info),
                environment=dict(info.environment),
            )
        )
    return found


def repeat_command(info: RunInfo) -> str:
    """The command line that does the run again; a plan that is not a shipped one is named as a file."""
    name = info.plan.name
    plan = name if name in plans.shipped() and _same_plan(info) else f"{name}.toml"
    words = ["tierscope"]
    if info.simulated:
        words += ["simulate", plan, "--profile", info.target.url.removeprefix(_SIMULATED)]
        words += ["--seed", str(info.plan.seed), "--out", f"runs/{Path(name).name}-again"]
    else:
        words += ["run", plan, "--url", info.target.url, "--model", info.target.model]
        words += ["--api", info.target.api] if info.target.api != "openai" else []
        words += ["--seed", str(info.plan.seed)]
        words += ["--until", "verdict"] if info.plan.control.until == "verdict" else []
    return shlex.join(words)


def _same_plan(info: RunInfo) -> bool:
    """Whether it is the shipped plan of its name, but for what the command line may override."""
    shipped = plans.load(info.plan.name, seed=info.plan.seed)
    return plans.ending(shipped, info.plan.control.until) == info.plan


def _duration_s(info: RunInfo, last_s: float | None) -> float | None:
    return info.ended_ns / 1e9 if info.ended_ns is not None else last_s
