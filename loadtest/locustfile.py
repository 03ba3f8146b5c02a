"""The load test's composition root, and a locustfile like any other.

    locust -f loadtest/locustfile.py --plan ab --host http://127.0.0.1:8000 --model demo [--headless]

Headless, the plan starts at once and the process ends with it: exit code 0 if it was run to its end, 2 for
bad input, 3 if the run failed or was interrupted. With the web UI it starts when "start" is pressed.
"""

import gc
import logging
import os
import re
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import gevent
from locust import events

from loadtest import (
    distribution,
    endpoint,
    exposition,
    parent,
    plan,
    proxy,
    server_pages,
    signals,
    stamps,
    tls,
    web,
)
from loadtest.addresses import address
from loadtest.plan import Target
from loadtest.plan_control import CONCLUSIVE
from loadtest.request_bytes import RequestBuilder
from loadtest.run_config import RunConfig
from loadtest.spending import Spending
from loadtest.status_pipe import StatusPipe
from loadtest.users import PlanShape, PlanUser, Session, say
from loadtest.wire import WIRES
from tierscope import prices
from tierscope.errors import BadInputError

__all__ = ["PlanShape", "PlanUser"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MOST_WORKERS = 256
_STAMPS: tuple[stamps.StampWish, ...] = ("auto", "kernel", "user")
_SWITCH_S = 0.0005  # the thread that renders /metrics gives the hub its turn within this time


def add_arguments(parser: Any) -> None:
    """Add this file's options; refuse Locust's own distribution before it forks."""
    option = parser.add_argument_group("tierscope").add_argument
    option("--plan", metavar="PLAN", help="A shipped plan (ab, smoke, sweep) or a TOML file.")
    option("--model", metavar="NAME", help="The model to ask for.")
    option("--api", default="openai", metavar="API", help=f"How the server speaks: {', '.join(WIRES)}.")
    option("--out", metavar="DIR", help="Folder of the run; default: runs/RUN_ID.")
    option("--seed", metavar="N", help="Overrides the plan's seed.")
    option("--run-id", metavar="ID", help="Names the run; default: the plan's name and the time.")
    option("--metrics-port", default="0", metavar="PORT", help="Serve /metrics there; 0 (default): do not.")
    option("--metrics-host", default="127.0.0.1", metavar="HOST", help="Address /metrics is served on.")
    option("--linger-s", default="15", metavar="S", help="Wait so long at most for a last scrape.")
    option(
        "--scrape", metavar="URL", help="Record the server's own metrics from there; auto: where they are."
    )
    option("--status-fd", metavar="N", help="Write how the run stands there, a line of JSON a second.")
    option("--workers", default="0", metavar="N", help="Send from so many processes on this machine.")
    option("--parent-pid", metavar="PID", help="End soon after this process, whose child this one is.")
    option("--until", metavar="WHAT", help="Overrides the plan's end: stages, or verdict (SIGUSR1 ends it).")
    option("--prices", metavar="FILE", help="A price file, laid over the shipped book.")
    option("--insecure", action="store_true", help="Accept any TLS certificate.")
    option("--ca-file", metavar="FILE", help="Trust these authorities (PEM) in place of the system's.")
    option(
        "--stamps", default="auto", metavar="WHOSE", help=f"Arrivals by whose clock: {', '.join(_STAMPS)}."
    )
    parser.set_defaults(loglevel="WARNING")
    if not {"-h", "--help"} & set(sys.argv):
        try:
            _look_ahead(parser)
        except BadInputError as error:
            _refuse(str(error))


def _look_ahead(parser: Any) -> None:
    """Do what must be done before Locust acts on its options: it forks, and workers wait for their master."""
    options, _ = parser.parse_known_args()
    if options.processes:
        raise BadInputError("--processes is not supported; expected --workers N, or --master and --worker")
    if options.parent_pid is not None:
        parent.end_with(_number("--parent-pid", options.parent_pid, 2**31))
    workers = _number("--workers", options.workers, _MOST_WORKERS)
    if workers and options.worker:
        raise BadInputError("--workers: has no meaning for a --worker; its master starts them")
    if workers:  # this process leads them, and starts them once it has a port
        parser.set_defaults(master=True, master_bind_host="127.0.0.1", master_bind_port=0)


def compose(environment: Any, **_: Any) -> None:
    """Put the pieces of this process together."""
    options = environment.parsed_options
    if options.worker:
        distribution.follow(environment, _choose_stamps(options), own=options.parent_pid is not None)
    else:
        _compose_session(environment)
    if not (options.print_stats or options.only_summary):
        logging.getLogger("locust.stats_logger").setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()  # what was imported need not be looked through again while tokens arrive
    sys.setswitchinterval(_SWITCH_S)


def _compose_session(environment: Any) -> None:
    """Where runs are led from: session, metrics page, workers, signals."""
    options = environment.parsed_options
    try:
        _configure(environment, 1)  # refuses bad input now, not when "start" is pressed
        found = _choose_stamps(options)
        muster = distribution.lead(environment, _number("--workers", options.workers, _MOST_WORKERS))
        session = Session(environment, found, lambda number: _configure(environment, number), muster)
        port = _number("--metrics-port", options.metrics_port, 65535)
        if options.status_fd is not None:
            session.pipe = StatusPipe(_number("--status-fd", options.status_fd, 2**20))
        linger_s = _number("--linger-s", options.linger_s, 3600)
        if port:
            session.page = exposition.MetricsServer(
                options.metrics_host, port, lambda: session.run.ledger.metrics if session.run else None
            )
        if environment.web_ui is not None:
            _check_web_port(options.web_host, options.web_port)
    except BadInputError as error:
        _refuse(str(error))
    session.linger_s = linger_s if options.headless else 0.0
    environment.session = session
    environment.events.spawning_complete.add_listener(session.on_spawned)
    environment.events.test_stopping.add_listener(
        lambda **_: _wind_up(session, "stopped by the user", for_good=False)
    )
    environment.events.quitting.add_listener(lambda **_: _wind_up(session, "interrupted", for_good=True))
    gevent.signal_handler(signal.SIGUSR1, session.enough, CONCLUSIVE)
    signals.handle(
        lambda name: session.stop(f"interrupted by {name}", for_good=True),
        session.abort,
        headless=bool(options.headless),
    )
    if environment.web_ui is not None:
        web.extend(environment.web_ui, lambda: session.status)
        say(f"web interface on port {options.web_port}: press start there to run the plan {options.plan}")


def _configure(environment: Any, number: int) -> RunConfig:
    """Turn options and environment into what the process's n-th run needs. Raises BadInputError in one line.

    A second run (the web UI can start several) gets a folder and id of its own.
    """
    options = environment.parsed_options
    for name, value in (("--plan", options.plan), ("--host", environment.host), ("--model", options.model)):
        if not value:
            raise BadInputError(f"{name} is missing; see --help")
    plan.check_model(options.model)
    if options.api not in WIRES:
        raise BadInputError(f"--api: {options.api!r} is not allowed; expected {' or '.join(WIRES)}")
    seed = None if options.seed is None else _number("--seed", options.seed, 2**63 - 1)
    loaded = plan.load(options.plan, seed=seed)
    if options.until is not None:
        loaded = plan.ending(loaded, options.until)
    target = Target(url=environment.host.rstrip("/"), model=options.model, api=options.api)
    run_id = options.run_id or f"{loaded.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    if not _RUN_ID.fullmatch(run_id):
        raise BadInputError(
            f"--run-id: {run_id!r} is not allowed; expected up to 64 letters, digits and any of . _ -"
        )
    suffix = "" if number == 1 else f"-{number}"
    folder = Path(options.out) if options.out else Path("runs") / run_id
    config = RunConfig(
        plan=loaded,
        target=target,
        folder=folder.with_name(folder.name + suffix),
        run_id=run_id + suffix,
        key=WIRES[target.api].key(os.environ),
        insecure=options.insecure,
        authorities=_authorities(options),
        ca_file=Path(options.ca_file) if options.ca_file else None,
        prices=prices.load(Path(options.prices) if options.prices else None),
        files_from=plan.folder_of(options.plan).absolute(),
        scrape=tuple(server_pages.candidates(options.scrape, target.url)) if options.scrape else (),
    )
    endpoint.parse(target.url, WIRES[target.api].path)  # also if every tier has a URL of its own
    for tier in loaded.tiers:
        proxy.for_target(address(target, tier, WIRES[target.api].path), os.environ)
    RequestBuilder(loaded, target, key=config.key, run_id=run_id)
    Spending(loaded, target, config.prices or prices.load())  # refuses a ceiling without prices
    return config


def _authorities(options: Any) -> str:
    if not options.ca_file:
        return ""
    if options.insecure:
        raise BadInputError("--ca-file: is of no use with --insecure; leave one of them out")
    return tls.read_authorities(Path(options.ca_file))


def _choose_stamps(options: Any) -> stamps.Stamps:
    wish = next((known for known in _STAMPS if known == options.stamps), None)
    if wish is None:
        _refuse(f"--stamps: {options.stamps!r} is not allowed; expected {', '.join(_STAMPS)}")
    try:
        return stamps.choose(wish)
    except BadInputError as error:
        _refuse(str(error))


def _number(name: str, text: str, most: int) -> int:
    if not text.isdecimal() or int(text) > most:
        raise BadInputError(f"{name}: {text!r} is not allowed; expected a whole number from 0 to {most}")
    return int(text)


def _check_web_port(host: str, port: int) -> None:
    """Refuse a port that cannot be had; Locust, which opens it later, would end in a traceback."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise BadInputError(f"--web-port: {host}:{port} cannot be used: {reason}") from error


def _wind_up(session: Session, why: str, *, for_good: bool) -> None:
    """Locust stops: whatever run is under way ends here, before its users are killed."""
    session.stop(why, for_good=for_good)
    session.conclude()


def _refuse(line: str) -> NoReturn:
    say(f"bad input: {line}")
    sys.exit(2)


_hooks: Any = events
_hooks.init_command_line_parser.add_listener(add_arguments)
_hooks.init.add_listener(compose)
