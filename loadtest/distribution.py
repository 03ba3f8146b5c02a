"""This process's place among several: a master that leads workers, or a worker that follows.

Rules for whoever edits this file:

1. Workers this process starts hear stops from it alone, and end with it.
2. Locust's own idea of when a worker is missing agrees with ours.
"""

import atexit
import functools
import os
import signal
from typing import Any, NoReturn

from locust import argument_parser, runners
from locust.dispatch import UsersDispatcher

from loadtest import signals, stamps
from loadtest.channel import Channel
from loadtest.command import worker_argv
from loadtest.crew_messages import decode_order, encode
from loadtest.muster import SILENCE_S, Muster
from loadtest.users import say
from loadtest.worker import Worker

_GATHER_S = 60.0


class _SteadyDispatcher(UsersDispatcher):
    """Lets a worker that comes while a run is under way wait for the next one."""

    def add_worker(self, worker_node: Any) -> None:
        """Leave the users where they are."""


def lead(environment: Any, workers: int) -> Muster | None:
    """Become the master, if Locust made this process one; starts so many ``workers`` on this machine.

    Without any, as many as Locust's ``--expect-workers`` says are waited for.
    """
    runner, options = environment.runner, environment.parsed_options
    if not isinstance(runner, runners.MasterRunner):
        return None
    runners.HEARTBEAT_LIVENESS = int(SILENCE_S)
    environment.dispatcher_class = _SteadyDispatcher
    patience_s = _GATHER_S if workers else options.expect_workers_max_wait or None
    muster = Muster(runner, workers or options.expect_workers, patience_s)
    options.expect_workers = 0  # Locust would look once a second, and say nothing to whoever waits
    environment.events.quit.add_listener(lambda **_: muster.end())
    atexit.register(muster.kill)
    if workers:
        argv = worker_argv(runner.server.port, parent_pid=os.getpid(), stamps=options.stamps)
        muster.start(workers, argv)
    else:
        say(f"master on port {runner.server.port}: runs begin with {muster.wanted} workers")
    return muster


def follow(environment: Any, chosen: stamps.Stamps, *, own: bool) -> None:
    """Become a worker with these stamps; ``own`` says that its master started it."""
    runners.MASTER_HEARTBEAT_TIMEOUT = int(SILENCE_S)
    # Locust makes its parser anew for each option of each spawn message: 0.26 s of a blocked hub (2.47).
    argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    argument_parser.default_args_dict()
    channel = Channel(environment.runner, lambda _, data: worker.receive(decode_order(data)))
    worker = Worker(lambda report: channel.send(encode(report)), chosen)
    environment.session = worker
    environment.process_exit_code = 0
    environment.events.test_stopping.add_listener(lambda **_: worker.wind_up("it was stopped"))
    environment.events.quitting.add_listener(lambda **_: worker.leave("it was stopped"))
    if own:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP, signal.SIGTERM})
    else:
        signals.handle(lambda name: worker.leave(f"interrupted by {name}"), _end_at_once, headless=False)


def _end_at_once() -> NoReturn:
    os._exit(3)
