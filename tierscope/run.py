"""``tierscope run``: start Locust on a plan in a process of its own and say how it ended.

Locust gets its own process because it patches the standard library on import, and because its CPU time is
then the load generator's and nothing else's.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from loadtest import endpoint
from loadtest.command import locust_argv
from loadtest.plan import Plan, Target, check_model, ending
from loadtest.plan import load as load_plan
from loadtest.records import LINES_FILES
from loadtest.server_pages import candidates
from loadtest.wire import WIRES
from tierscope import until as verdicts
from tierscope.ask import Trust, ask_model
from tierscope.errors import BadInputError, RunFailedError, ToldError
from tierscope.live import open_view

_SYSTEMS = Trust()
_STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_PATIENCE = 3
"""So many stops and the child is killed: the first ends it in order, the second at once."""


def run_plan(
    plan: str,
    *,
    url: str,
    model: str | None,
    api: str,
    out: Path | None,
    seed: int | None,
    metrics_port: int,
    web: bool,
    insecure: bool,
    workers: int,
    locust_options: Sequence[str],
    scrape: str | None = None,
    linger_s: int | None = None,
    ca_file: Path | None = None,
    stamps: str = "auto",
    until: str | None = None,
    prices: Path | None = None,
) -> None:
    """Run a plan against a server to its end; raises BadInputError or RunFailedError with one line."""
    if locust_options and not locust_options[0].startswith("-"):
        raise BadInputError(
            f"{locust_options[0]!r} is not understood; only options for Locust may follow, after --"
        )
    loaded = load_plan(plan, seed=seed)
    if until is not None:
        loaded = ending(loaded, until)
        locust_options = ["--until", until, *locust_options]
    if prices is not None:
        locust_options = ["--prices", str(prices), *locust_options]
    trust = Trust(insecure, ca_file)
    target = check_target(url, model=model, api=api, trust=trust)
    if scrape is not None:
        pages = candidates(scrape, target.url)
        locust_options = ["--scrape", pages[0] if scrape != "auto" else scrape, *locust_options]
    if linger_s is not None:
        locust_options = ["--linger-s", str(linger_s), *locust_options]
    watched = loaded.control.until == "verdict"
    if watched and web:
        raise BadInputError("--until verdict: runs that a web page starts and stops are not looked at")
    folder = new_run_folder(out, loaded)
    watch = verdicts.Watch(folder) if watched else None
    print(f"{loaded.name}: {target.url}, model {target.model}; recording to {folder}")
    code = start_locust(
        plan,
        target=target,
        folder=folder,
        seed=loaded.seed,
        metrics_port=metrics_port,
        web=web,
        trust=trust,
        stamps=stamps,
        workers=workers,
        locust_options=locust_options,
        watch=watch,
    )
    check_end(folder, code)
    if not folder.exists():  # nobody pressed start in the web UI
        print("nothing was recorded")
        return
    if watch is not None:
        watch.note()
        print(watch.last_word())
    print(f"done: {folder}\nnext: tierscope report {folder}")


def start_locust(
    plan: str,
    *,
    target: Target,
    folder: Path,
    seed: int,
    metrics_port: int,
    web: bool = False,
    trust: Trust = _SYSTEMS,
    stamps: str = "auto",
    workers: int = 0,
    locust_options: Sequence[str] = (),
    cpu: int | None = None,
    watch: verdicts.Watch | None = None,
) -> int:
    """Run Locust to its end and return its exit code; stops are passed on, so that it can end in order.

    ``workers`` other than 0 has it send from so many processes; ``cpu`` pins it to one core. ``watch`` looks
    at the run meanwhile, to stop it.
    """
    view = None if web else open_view()
    argv = locust_argv(
        plan,
        target=target,
        out=folder,
        metrics_port=metrics_port,
        seed=seed,
        web=web,
        insecure=trust.insecure,
        ca_file=trust.ca_file,
        stamps=stamps,
        workers=workers,
        parent_pid=os.getpid(),
        extra=[*(view.argv if view else ()), *locust_options],
    )
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []
    stops = 0

    def pass_on(number: int, _: object) -> None:
        nonlocal stops
        stops += 1
        if child is None:
            early.append(number)
        elif stops < _PATIENCE:
            child.send_signal(number)
        else:
            child.kill()

    heard = set(_STOPPING)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup, and so it stays
        heard.remove(signal.SIGHUP)
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        child = _start(argv, cpu=cpu, **(view.popen if view else {}))
        for number in early:
            child.send_signal(number)
        if view is not None:
            view.follow(child)
        with _watched(watch, child, say=view.say if view else _say):
            return child.wait()
    finally:
        if view is not None:
            view.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(
    watch: verdicts.Watch | None, child: "subprocess.Popen[bytes]", *, say: Callable[[str], None]
) -> contextlib.AbstractContextManager[None]:
    """Look at the run while it lasts, if that is wanted; ``say`` gets a line for each look."""
    if watch is None:
        return contextlib.nullcontext()
    return verdicts.watching(watch, stop=lambda: child.send_signal(signal.SIGUSR1), say=say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _start(argv: Sequence[str], *, cpu: int | None, **popen: Any) -> subprocess.Popen[bytes]:
    """Start Locust with stops blocked: it unblocks them once it can end in order, none hits its imports.

    In a process group of its own, so that a Ctrl-C in the terminal reaches it once, through us. A terminal
    stops a process of another group that reads from it, so it gets none.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        child = subprocess.Popen([sys.executable, *argv], stdin=subprocess.DEVNULL, process_group=0, **popen)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(child.pid, {cpu})
    return child


def check_end(folder: Path, code: int) -> None:
    """Pass on how Locust ended. What it could tell it has told, in one line of its own on stderr.

    A folder in which nothing was recorded is taken away. Raises ToldError with the code 2 or 3, and
    RunFailedError for any other end.
    """
    with contextlib.suppress(OSError):
        folder.rmdir()  # only if it is empty
    if code == 0:
        return
    if code in (2, 3):
        raise ToldError(code)
    how = (
        f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended unexpectedly with code {code}"
    )
    kept = f"; what was recorded is in {folder}" if any(folder.glob(LINES_FILES)) else ""
    raise RunFailedError(f"locust {how}{kept}")


def check_target(url: str, *, model: str | None, api: str, trust: Trust = _SYSTEMS) -> Target:
    """Turn command-line words into a Target, asking the server for its model if none is named."""
    known = next((name for name in WIRES if name == api), None)
    if known is None:
        raise BadInputError(f"--api: {api!r} is not allowed; expected {' or '.join(WIRES)}")
    try:
        endpoint.parse(url, WIRES[known].path)
    except BadInputError as error:
        raise BadInputError(f"--{error}") from error
    check_model(model or "")
    return Target(url=url.rstrip("/"), model=model or ask_model(url, api=known, trust=trust), api=known)


def new_run_folder(out: Path | None, plan: Plan) -> Path:
    """Make the folder of a new run; one that holds files is refused, so that nothing recorded is lost."""
    folder = out if out is not None else Path("runs") / f"{plan.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInputError(f"--out: {folder} is not empty; name a new folder")
    except OSError as error:
        what = "is no folder" if isinstance(error, FileExistsError) else error.strerror
        raise BadInputError(f"--out: {folder}: {what}") from error
    return folder
