"""One run of a plan, from reaching the server to the last line of run.json. Greenlets, but no Locust.

Rules for whoever edits this file:

1. What was recorded is on disk within about a second.
2. ``finish`` is called by whoever ends the run first; it happens once, and later callers wait for it.
3. A request that failed is data; only what keeps the run from doing its job is a failure of the run.
"""

import time

import gevent
from gevent import subprocess
from gevent.event import Event

from loadtest import recorder
from loadtest.clock import RunClock
from loadtest.environment import environment, tierscope_version
from loadtest.ledger import Ledger, Listeners
from loadtest.records import SCHEMA_VERSION, ClientHealth, RunInfo
from loadtest.run_config import RunConfig
from loadtest.sending import Sending
from loadtest.stamps import Stamps

_TICK_S = 1.0
_SAY_EVERY_TICKS = 5


class PlanRun:
    """A run, driven by ``begin``, then ``advance`` and ``open`` for each stage, then ``finish``.

    ``traffic.turn`` is what users do meanwhile. ``failure`` says what kept the run from doing its job,
    ``interrupted`` who ended it early, and ``complete``, after ``finish``, whether all stages were run.
    """

    def __init__(self, config: RunConfig, stamps: Stamps, listeners: Listeners) -> None:
        self.config = config
        self.failure = self.interrupted = ""
        self.complete = False
        self.ledger = Ledger(config, stamps.source, listeners, fail=self.fail)
        self._say, self._stamps = listeners.say, stamps
        self._clock = RunClock()
        self._sending = Sending(
            config, stamps, self._clock, started=self.ledger.started, ended=self.ledger.add
        )
        self.traffic = self._sending.traffic
        self._opened = 0
        self._finishing = False
        self._finished = Event()

    def begin(self) -> None:
        """Reach the server, open the run folder, start recording.

        Raises RunFailedError if nothing answers, BadInputError if the folder cannot be had.
        """
        self._sending.transport.probe()
        self.ledger.open(
            RunInfo(
                schema_version=SCHEMA_VERSION,
                run_id=self.config.run_id,
                tierscope_version=tierscope_version(),
                target=self.config.target,
                plan=self.config.plan,
                started_unix_s=self._clock.started_unix_s,
                environment=environment() | {"monotonic_zero_ns": str(self._clock.zero_ns)},
            )
        )
        self._cpu_start_s = time.process_time()
        self._start_ns = self._clock.now_ns()
        self._ticker = gevent.spawn(self._tick)

    def advance(self) -> int | None:
        """Wait for the stage under way to end; give how many users the next needs, None after the last."""
        self.traffic.wait()
        if not self.interrupted and not self.failure:
            self.ledger.say_progress(ended=True)
        return self.traffic.users_needed()

    def open(self) -> None:
        """Begin the next stage: its users are there."""
        self.ledger.begin_stage(self.config.plan.stages[self._opened].name, self._clock.now_ns())
        self._opened += 1
        self.traffic.open()

    def interrupt(self, why: str) -> None:
        """Send nothing more, cancel what is in flight; ``advance`` then says that the run is over."""
        self.interrupted = self.interrupted or why
        self.traffic.stop()

    def fail(self, why: str) -> None:
        """The run cannot do its job: end it like ``interrupt``."""
        self.failure = self.failure or why
        self.traffic.stop()

    def finish(self) -> bool:
        """End the run: nothing in flight, everything on disk, run.json final. False if it had been ended."""
        if self._finishing:
            self._finished.wait()
            return False
        self._finishing = True
        complete = self.traffic.done and not self.interrupted
        self.traffic.stop()
        self.traffic.drain()
        self._ticker.kill()
        self.ledger.flush()
        self.complete = complete and not self.failure
        self.failure = self.failure or self.ledger.tally.fruitless()
        if self.complete and not self.ledger.tally.ended:
            self.failure = "no request was made"
        trouble = self.ledger.close(
            "complete" if self.complete else "partial",
            self.failure or self.interrupted,
            ended_ns=self._clock.now_ns(),
            client=self._health(),
        )
        self.failure = self.failure or trouble
        self._sending.transport.close()
        self._leave_other_forms()
        self._finished.set()
        return True

    def _leave_other_forms(self) -> None:
        """Leave the metrics page and the columns beside the records; the run does not depend on them."""
        troubles = [recorder.pack(self.config.folder, subprocess.run), self.ledger.save_metrics()]
        if not self.failure:  # which has its own line, and most likely the same reason
            for trouble in filter(None, troubles):
                self._say(trouble)

    def _tick(self) -> None:
        """Once a second: flush, look after the clock, refresh gauges; now and then say how it goes."""
        cpu_s, now_ns, ticks = self._cpu_start_s, self._start_ns, 0
        metrics = self.ledger.metrics
        while True:
            gevent.sleep(_TICK_S)
            self.ledger.flush()
            self._clock.recheck()
            before_s, before_ns = cpu_s, now_ns
            cpu_s, now_ns = time.process_time(), self._clock.now_ns()
            metrics.gauges.cpu_ratio = (cpu_s - before_s) * 1e9 / (now_ns - before_ns)
            metrics.gauges.worst_lag_s = self.ledger.tally.worst_lag_s
            ticks += 1
            if ticks % _SAY_EVERY_TICKS == 0:
                self.ledger.say_progress()

    def _health(self) -> ClientHealth:
        stepped_s = self._clock.stepped_ns / 1e9
        notes = [self._stamps.note]
        if stepped_s:
            notes.append(f"the wall clock was stepped by {stepped_s:g} s in all while the run lasted")
        return ClientHealth(
            cpu_s=time.process_time() - self._cpu_start_s,
            wall_s=(self._clock.now_ns() - self._start_ns) / 1e9,
            worst_lag_s=self.ledger.tally.worst_lag_s,
            connections_opened=self._sending.transport.connections_opened,
            stamp_source=self._stamps.source,
            stamp_note="; ".join(note for note in notes if note),
        )
