"""``tierscope run``: start Locust on a plan in a process of its own and say how it ended.

Locust gets its own process because it patches the standard library on import, and because its CPU time is
then the load generator's and nothing else's.
"""

import contextlib
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from loadtest import endpoint
from loadtest.command import locust_argv
from loadtest.delta import folded
from loadtest.endpoint import Endpoint
from loadtest.headers import sendable
from loadtest.plan import Api, Plan, Target
from loadtest.plan import load as load_plan
from loadtest.records import LINES_FILES
from loadtest.wire import WIRES
from tierscope.errors import BadInputError, RunFailedError, ToldError

ASK_TIMEOUT_S = 10.0
_MOST_BYTES = 1_000_000
_STOPPING = {signal.SIGINT, signal.SIGTERM}


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
    locust_options: Sequence[str],
) -> None:
    """Run a plan against a server to its end; raises BadInputError or RunFailedError with one line."""
    if locust_options and not locust_options[0].startswith("-"):
        raise BadInputError(
            f"{locust_options[0]!r} is not understood; only options for Locust may follow, after --"
        )
    loaded = load_plan(plan, seed=seed)
    target = check_target(url, model=model, api=api, insecure=insecure)
    folder = new_run_folder(out, loaded)
    print(f"{loaded.name}: {target.url}, model {target.model}; recording to {folder}")
    code = start_locust(
        plan,
        target=target,
        folder=folder,
        seed=loaded.seed,
        metrics_port=metrics_port,
        web=web,
        insecure=insecure,
        locust_options=locust_options,
    )
    check_end(folder, code)
    print(f"done: {folder}\nnext: tierscope report {folder}")


def start_locust(
    plan: str,
    *,
    target: Target,
    folder: Path,
    seed: int,
    metrics_port: int,
    web: bool = False,
    insecure: bool = False,
    locust_options: Sequence[str] = (),
    cpu: int | None = None,
) -> int:
    """Run Locust to its end and return its exit code; stops are passed on, so that it can end in order.

    ``cpu`` pins it to one core.
    """
    argv = locust_argv(
        plan,
        target=target,
        out=folder,
        metrics_port=metrics_port,
        seed=seed,
        web=web,
        insecure=insecure,
        extra=locust_options,
    )
    child: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if child is None:
            early.append(number)
        else:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _STOPPING}
    try:
        child = _start(argv, cpu=cpu)
        for number in early:
            child.send_signal(number)
        return child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(argv: Sequence[str], *, cpu: int | None) -> subprocess.Popen[bytes]:
    """Start Locust with stops blocked: it unblocks them once it can end in order, none hits its imports."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        child = subprocess.Popen([sys.executable, *argv])
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
    if code == 0:
        return
    with contextlib.suppress(OSError):
        folder.rmdir()  # only if it is empty
    if code in (2, 3):
        raise ToldError(code)
    how = (
        f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended unexpectedly with code {code}"
    )
    kept = f"; what was recorded is in {folder}" if any(folder.glob(LINES_FILES)) else ""
    raise RunFailedError(f"locust {how}{kept}")


def check_target(url: str, *, model: str | None, api: str, insecure: bool = False) -> Target:
    """Turn command-line words into a Target, asking the server for its model if none is named."""
    known = next((name for name in WIRES if name == api), None)
    if known is None:
        raise BadInputError(f"--api: {api!r} is not allowed; expected {' or '.join(WIRES)}")
    try:
        endpoint.parse(url, WIRES[known].path)
    except BadInputError as error:
        raise BadInputError(f"--{error}") from error
    return Target(url=url.rstrip("/"), model=model or ask_model(url, api=known, insecure=insecure), api=known)


def ask_model(url: str, *, api: Api = "openai", insecure: bool = False) -> str:
    """Ask ``/v1/models`` which model the server has.

    Raises BadInputError, in one line that lists them, if it has none or several, and RunFailedError if it
    does not tell.
    """
    wire = WIRES[api]
    where = endpoint.parse(url, wire.path)
    base_path = where.path.removesuffix(wire.path)
    base = where.origin + base_path
    key = wire.key(os.environ)
    if not sendable(key):
        raise BadInputError("API key: holds a character that cannot be sent in an HTTP header")
    try:
        status, reason, body = _fetch(where, f"{base_path}/v1/models", wire.headers(key), insecure=insecure)
    except http.client.HTTPException as error:
        raise RunFailedError(f"{base} does not speak HTTP: {folded(str(error))}") from error
    except TimeoutError as error:
        raise RunFailedError(f"{base}/v1/models gave no answer within {ASK_TIMEOUT_S:g} s") from error
    except OSError as error:
        raise RunFailedError(f"cannot connect to {base}: {folded(error.strerror or str(error))}") from error
    if status != HTTPStatus.OK:
        hint = f"put its key into {wire.key_variables[0]}" if status in (401, 403) else "name --model"
        raise RunFailedError(f"{base}/v1/models answered {status} {folded(reason)}; {hint}")
    try:
        names = [str(entry["id"]) for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFailedError(
            f"{base}/v1/models did not answer with a list of models; name --model"
        ) from error
    if len(names) != 1:
        raise BadInputError(f"--model: is needed, {base} has {len(names)}: {folded(', '.join(names[:20]))}")
    if not names[0].isprintable():
        raise RunFailedError(f"{base}/v1/models: {names[0]!r} is no name of a model; name --model")
    return names[0]


def _fetch(where: Endpoint, path: str, headers: dict[str, str], *, insecure: bool) -> tuple[int, str, bytes]:
    """Get a document: status, reason, body. No proxy and no redirect, since the load test takes none either.

    Raises TimeoutError if it is not there in time, however slowly it drips.
    """
    deadline_s = time.monotonic() + ASK_TIMEOUT_S
    with contextlib.closing(_connection(where, insecure=insecure)) as connection:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            body = b""
            while len(body) < _MOST_BYTES and (piece := response.read1(_MOST_BYTES)):
                body += piece
                if time.monotonic() > deadline_s:
                    raise TimeoutError
            return response.status, response.reason, body


def _connection(where: Endpoint, *, insecure: bool) -> http.client.HTTPConnection:
    if not where.tls:
        return http.client.HTTPConnection(where.host, where.port, timeout=ASK_TIMEOUT_S)
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(where.host, where.port, timeout=ASK_TIMEOUT_S, context=context)


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
