"""One run of a plan, from reaching the server to the last line of run.json. Greenlets, but no Locust.

Rules for whoever edits this file:

1. What was recorded is on disk within about a second.
2. ``finish`` is called by whoever ends the run first; it happens once, and later callers wait for it.
3. A request that failed is data; only what keeps the run from doing its job is a failure of the run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gevent
from gevent import subprocess
from gevent.event import Event

from loadtest import derive, endpoint, exposition, progress, recorder, timeline, tls
from loadtest.clock import RunClock
from loadtest.environment import environment, tierscope_version
from loadtest.exchange import Exchange
from loadtest.message import MessageBuilder
from loadtest.metrics import RunMetrics
from loadtest.plan import Closed, Plan, Target
from loadtest.records import SCHEMA_VERSION, ClientHealth, RequestRecord, RunInfo
from loadtest.stage import StageProgress
from loadtest.stamps import Stamps
from loadtest.tally import Tally
from loadtest.traffic import Traffic
from loadtest.transport import Transport
from loadtest.wire import WIRES
from loadtest.workload import Request, open_source
from tierscope.errors import RunFailedError

_TICK_S = 1.0
_SAY_EVERY_TICKS = 5


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What is run, and where it is recorded. ``key`` is never written anywhere."""

    plan: Plan
    target: Target
    folder: Path
    run_id: str
    key: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told what while a run lasts."""

    say: Callable[[str], None]
    """A line for people."""
    seen: Callable[[RequestRecord, int], None]
    """Each record, with the bytes of its body."""


class PlanRun:
    """A run, driven by ``begin``, then ``advance`` and ``open`` for each stage, then ``finish``.

    ``traffic.turn`` is what users do meanwhile. ``failure`` says what kept the run from doing its job,
    ``interrupted`` who ended it early, and ``complete``, after ``finish``, whether all stages were run.
    """

    def __init__(self, config: RunConfig, stamps: Stamps, listeners: Listeners) -> None:
        self.config = config
        self.failure = self.interrupted = ""
        self.complete = False
        self.tally = Tally()
        self.metrics = RunMetrics(config.plan, config.target, config.run_id, stamps.source)
        self._listeners, self._stamps = listeners, stamps
        self._wire = WIRES[config.target.api]
        where = endpoint.parse(config.target.url, self._wire.path)
        self._clock = RunClock()
        context = tls.context(verify=not config.insecure) if where.tls else None
        self._builder = MessageBuilder(
            config.plan, config.target, where, key=config.key, run_id=config.run_id
        )
        self._transport = Transport(where, config.plan.timeouts, self._clock, stamps, tls=context)
        self.traffic = Traffic(
            config.plan,
            open_source(config.plan),
            self._builder,
            self._transport,
            started=self._on_started,
            ended=self._on_ended,
        )
        self._figures = progress.TierFigures(())
        self._finishing = False
        self._finished = Event()

    def begin(self) -> None:
        """Reach the server, open the run folder, start recording.

        Raises RunFailedError if nothing answers, BadInputError if the folder cannot be had.
        """
        self._transport.probe()
        info = RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id=self.config.run_id,
            tierscope_version=tierscope_version(),
            target=self.config.target,
            plan=self.config.plan,
            started_unix_s=self._clock.started_unix_s,
            environment=environment() | {"monotonic_zero_ns": str(self._clock.zero_ns)},
        )
        self._recorder = recorder.Recorder(self.config.folder, info)
        self._cpu_start_s = time.process_time()
        self._start_ns = self._clock.now_ns()
        self._ticker = gevent.spawn(self._tick)

    def advance(self) -> int | None:
        """Wait for the stage under way to end; give how many users the next needs, None after the last."""
        self.traffic.wait()
        if self.traffic.stage is not None and not self.interrupted and not self.failure:
            self._listeners.say(progress.line(self.traffic.stage, self._figures, ended=True))
        return self.traffic.users_needed()

    def open(self) -> None:
        """Begin the next stage: its users are there."""
        self._figures = progress.TierFigures([tier.name for tier in self.config.plan.tiers])
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
        self._flush()
        self.complete = complete and not self.failure
        self.failure = self.failure or self.tally.fruitless()
        if self.complete and not self.tally.ended:
            self.failure = "no request was made"
        trouble = self._recorder.close(
            "complete" if self.complete else "partial",
            self.failure or self.interrupted,
            ended_ns=self._clock.now_ns(),
            client=self._health(),
        )
        self.failure = self.failure or trouble
        self._transport.close()
        self._leave_other_forms()
        self._finished.set()
        return True

    def _leave_other_forms(self) -> None:
        """Leave the metrics page and the columns beside the records; the run does not depend on them."""
        troubles = [recorder.pack(self.config.folder, subprocess.run)]
        try:
            exposition.save(self.config.folder, self.metrics)
        except OSError as error:
            troubles.append(f"{exposition.METRICS_FILE} was not written: {error.strerror}")
        if not self.failure:  # which has its own line, and most likely the same reason
            for trouble in filter(None, troubles):
                self._listeners.say(trouble)

    def _on_started(self, request: Request) -> None:
        self.metrics.started(request.tier.name)

    def _on_ended(
        self, stage: StageProgress, request: Request, exchange: Exchange, scheduled_ns: int
    ) -> bool:
        """Record a request that ended; whether it went well."""
        record = timeline.record(
            request,
            exchange,
            self._wire,
            model=self._builder.model(request.tier),
            scheduled_ns=scheduled_ns,
            secret=self.config.key,
        )
        self._recorder.append(record)
        self.metrics.ended(record)
        self._figures.add(record)
        paced = not isinstance(stage.stage.arrivals, Closed)
        self.tally.add(record, derive.lag_s(record) if paced else None)
        if why := self.tally.hopeless():
            self.fail(why)
        self._listeners.seen(record, sum([len(piece) for _, piece in exchange.pieces]))
        return record.outcome == "ok"

    def _tick(self) -> None:
        """Once a second: flush, look after the clock, refresh gauges; now and then say how it goes."""
        cpu_s, now_ns, ticks = self._cpu_start_s, self._start_ns, 0
        while True:
            gevent.sleep(_TICK_S)
            self._flush()
            self._clock.recheck()
            before_s, before_ns = cpu_s, now_ns
            cpu_s, now_ns = time.process_time(), self._clock.now_ns()
            self.metrics.cpu_ratio = (cpu_s - before_s) * 1e9 / (now_ns - before_ns)
            self.metrics.worst_lag_s = self.tally.worst_lag_s
            ticks += 1
            if ticks % _SAY_EVERY_TICKS == 0 and self.traffic.stage is not None:
                self._listeners.say(progress.line(self.traffic.stage, self._figures))

    def _flush(self) -> None:
        try:
            self._recorder.flush()
        except RunFailedError as error:
            self.fail(str(error))

    def _health(self) -> ClientHealth:
        stepped_s = self._clock.stepped_ns / 1e9
        notes = [self._stamps.note]
        if stepped_s:
            notes.append(f"the wall clock was stepped by {stepped_s:g} s in all while the run lasted")
        return ClientHealth(
            cpu_s=time.process_time() - self._cpu_start_s,
            wall_s=(self._clock.now_ns() - self._start_ns) / 1e9,
            worst_lag_s=self.tally.worst_lag_s,
            connections_opened=self._transport.connections_opened,
            stamp_source=self._stamps.source,
            stamp_note="; ".join(note for note in notes if note),
        )
