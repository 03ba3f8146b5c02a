"""Locust's side of a run: the users it spawns, the shape that tells it how many, and what joins them.

Rules for whoever edits this file:

1. Locust spawns users and stops them; which request leaves when is the plan's affair (``traffic``).
2. Locust's statistics get one E2E and one TTFT entry a request, in milliseconds, never one a token.
3. Nothing here may raise into Locust's event hooks: it would log a traceback and go on.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import gevent
from locust import LoadTestShape, User, task

from loadtest import derive
from loadtest.crew import Crew
from loadtest.ledger import Listeners
from loadtest.muster import Muster
from loadtest.records import RequestRecord
from loadtest.run import PlanRun
from loadtest.run_config import RunConfig
from loadtest.stamps import Stamps
from loadtest.status import Status
from loadtest.traffic import Traffic
from tierscope.errors import BadInputError, RunFailedError

if TYPE_CHECKING:
    from loadtest.exposition import MetricsServer
    from loadtest.status_pipe import StatusPipe

_MOST_SPAWNED_PER_S = 99.0  # above it Locust warns that spawning becomes unreliable


class Session:
    """The runs of one Locust process: one when headless, one each time "start" is pressed in the web UI.

    ``configure`` is given the number of the run, 1 for the first.
    """

    def __init__(
        self,
        environment: Any,
        stamps: Stamps,
        configure: Callable[[int], RunConfig],
        muster: Muster | None = None,
    ) -> None:
        self.run: PlanRun | None = None
        """The run under way, or the last one."""
        self.status: Status | None = None
        """How it stood a second ago at most, if anybody looks."""
        self.pipe: StatusPipe | None = None
        self.page: MetricsServer | None = None
        self.linger_s = 0.0
        """How long the page stays after a run, at most, for whoever reads it regularly."""
        self._environment = environment
        self._stamps = stamps
        self._configure = configure
        self._muster = muster
        self._beginning: PlanRun | None = None
        self._runs = 0
        self._active = False
        self._to_open = False
        self._stopping = False
        self._stages = 0
        self._asked = 0, 0.0
        self._why = ""
        """Who wanted out since the run under way was begun."""

    @property
    def traffic(self) -> Traffic | None:
        """What the users of this process work on; None where there is no run, or others send."""
        traffic = None if self.run is None else self.run.traffic
        return None if isinstance(traffic, Crew) else traffic

    def tick(self) -> tuple[int, float] | None:
        """Block until the next stage is to begin; give Locust its users and spawn rate, None at the end."""
        users = None
        if self._to_open and self.run is not None and self.run.traffic.users_needed() is not None:
            return self._asked  # they are still being spawned
        try:
            if not self._active and not self._stopping:
                self._begin()
            users = self.run.advance() if self._active and self.run else None
            if not self._runs:  # stopped before anything began
                self._never_began()
        except (BadInputError, RunFailedError) as error:
            if self._why and not self._active:  # it failed because somebody wanted out
                self._never_began()
            else:
                self._fail(error)
        if users is None:
            self.conclude()
            if self.page is not None and not self._stopping:
                self.page.linger(self.linger_s)
            return None
        self._to_open = True
        # Locust does nothing about users and a rate it was given before, however many users it has lost.
        self._stages += 1
        most = max(users, self._environment.runner.user_count)  # it takes users away at this rate, too
        self._asked = users, min(most, _MOST_SPAWNED_PER_S) + self._stages * 1e-6
        return self._asked

    def on_spawned(self, **_: Any) -> None:
        """All users that were asked for are there: the stage begins."""
        if self._to_open and self.run is not None:
            self._to_open = False
            self.run.open()

    def stop(self, why: str, *, for_good: bool) -> None:
        """Somebody wants out: the run under way becomes partial; ``for_good`` lets no other one begin."""
        self._stopping = self._stopping or for_good
        if self.page is not None:
            self.page.stop()
        self._why = why
        run = self.run if self._active else self._beginning
        if run is not None:
            run.interrupt(why)

    def enough(self, why: str) -> None:
        """What the run was to find out is known: it sends nothing more, and is complete."""
        if self._active and self.run is not None:
            self.run.conclude(why)

    def fault(self, fault: Exception) -> None:
        """What users do went wrong, which is our own doing: the run under way fails."""
        traceback.print_exception(fault)
        if self._active and self.run is not None:
            self.run.fail(f"a fault of the load test: {fault!r}")

    def abort(self) -> NoReturn:
        """End this process at once, with code 3; what is flushed stays, the folder is marked partial."""
        run = self.run if self._active else None
        if run is not None:
            run.abandon()
        if self._muster is not None:
            self._muster.kill()
        say("stopped at once" + (f"; what was recorded is in {run.config.folder}" if run else ""))
        os._exit(3)

    def conclude(self) -> None:
        """End the run under way, once, and say how it ended."""
        if not self._active or self.run is None:
            return
        run = self.run
        if not run.finish():  # another greenlet was faster
            return
        self._active = False
        folder, tally = run.config.folder, run.ledger.tally
        self._environment.process_exit_code = 0 if run.complete and not run.failure else 3
        if run.failure:
            say(f"run failed: {run.failure}; what was recorded is in {folder}")
        elif not run.complete:
            why = run.interrupted or f"incomplete: {run.lost}"
            say(f"run {why}: what was recorded is in {folder}, marked partial")
        else:
            say(f"run complete: {tally.ended} requests, {tally.failed} failed; recorded in {folder}")

    def _begin(self) -> None:
        self._runs += 1
        looked_at = self.pipe is not None or self._environment.web_ui is not None
        listeners = Listeners(
            say=say,
            seen=self._on_record,
            show=self._on_status if looked_at else None,
            quiet=self.pipe is not None,
        )
        run = PlanRun(self._configure(self._runs), self._stamps, listeners, self._muster)
        self._why = ""
        self._beginning, self._to_open = run, False
        try:
            run.begin()
        finally:
            self._beginning = None
        self.run, self._active = run, True
        if self._why:  # somebody wanted out while the server was being reached
            run.interrupt(self._why)

    def _never_began(self) -> None:
        say("interrupted before the run began; nothing was recorded")
        self._environment.process_exit_code = 3

    def _fail(self, error: BadInputError | RunFailedError) -> None:
        bad_input = isinstance(error, BadInputError)
        say(f"{'bad input' if bad_input else 'run failed'}: {error}")
        self._environment.process_exit_code = 2 if bad_input else 3

    def _on_status(self, status: Status) -> None:
        self.status = status
        if self.pipe is not None:
            self.pipe.write(status)

    def _on_record(self, record: RequestRecord, body_bytes: int) -> None:
        """Feed Locust's statistics. Its unit is the millisecond."""
        fire = self._environment.events.request.fire
        name = f"{record.stage} {record.requested_tier}"
        error = None if record.outcome == "ok" else f"{record.outcome}: {record.detail}"
        e2e_s, ttft_s = derive.e2e_s(record), derive.ttft_s(record)
        common = {"name": name, "response_length": body_bytes, "context": {}}
        fire(request_type="E2E", response_time=(e2e_s or 0.0) * 1e3, exception=error, **common)
        if ttft_s is not None and error is None:
            fire(request_type="TTFT", response_time=ttft_s * 1e3, exception=None, **common)


class PlanUser(User):
    """One stream of a closed loop, or the one that keeps the instants of an open loop."""

    environment: Any

    @task
    def work(self) -> None:
        """Do one request of the stage under way (all of an open loop), or wait for a stage."""
        session = self.environment.session
        traffic = session.traffic
        if traffic is None:
            gevent.sleep(0.1)
            return
        try:
            traffic.turn()
        except Exception as fault:  # noqa: BLE001 - Locust would log it and try again, without end
            session.fault(fault)

    def wait_time(self) -> float:
        """None: pauses are the plan's, and kept by ``traffic``."""
        return 0.0


class PlanShape(LoadTestShape):
    """Tells Locust how many users the plan needs. ``tick`` blocks while a stage lasts."""

    runner: Any

    def tick(self) -> tuple[int, float] | None:
        """Users and spawn rate of the next stage, None once the plan has ended."""
        answer: tuple[int, float] | None = self.runner.environment.session.tick()
        return answer


def say(line: str) -> None:
    """Show a line to whoever watches."""
    print(line, file=sys.stderr, flush=True)
