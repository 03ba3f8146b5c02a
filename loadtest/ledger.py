"""All that happens with a request once it has left and once its record is made: files, metrics, counts.

Rules for whoever edits this file:

1. Whoever makes the records, this process or others, they all come here, each once.
2. What was recorded is on disk after the next ``flush``.
3. A request that failed is data; ``fail`` is told only of what keeps the run from doing its job, and
   ``conclude`` when enough requests have failed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from loadtest import calibration, derive, exposition, progress
from loadtest.counts import StageCounts
from loadtest.error_window import ErrorWindow
from loadtest.fitness import Fitness
from loadtest.health import Health, Punctuality
from loadtest.metrics import RunMetrics
from loadtest.plan import CALIBRATION, Closed
from loadtest.prompt_errors import PromptErrors
from loadtest.recorder import Recorder
from loadtest.records import (
    ClientHealth,
    PromptCounting,
    RequestRecord,
    RunInfo,
    StampSource,
    WorkerInfo,
    decode_lines,
)
from loadtest.run_config import RunConfig
from loadtest.status import ClientStatus, Status
from loadtest.tally import Tally
from tierscope.errors import RunFailedError


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told what while a run lasts."""

    say: Callable[[str], None]
    """A line for people."""
    seen: Callable[[RequestRecord, int], None]
    """Each record, with the bytes of its body."""
    show: Callable[[Status], None] | None = None
    """How the run stands, once a second, if anybody looks."""
    quiet: bool = False
    """Say nothing while a stage lasts: somebody draws how it goes."""


class Ledger:
    """What is known of one run so far: ``stage`` is the one under way, ``stages`` counts each of them."""

    def __init__(
        self,
        config: RunConfig,
        stamp_source: StampSource,
        listeners: Listeners,
        *,
        fail: Callable[[str], None],
        conclude: Callable[[str], None],
    ) -> None:
        self.tally = Tally()
        self.prompt_errors = PromptErrors()
        self._errors = ErrorWindow(config.plan.control)
        self._conclude = conclude
        self._early: list[RequestRecord] = []
        self.metrics = RunMetrics(config.plan, config.target, config.run_id, stamp_source)
        self.stages = {stage.name: StageCounts(stage) for stage in (calibration.STAGE, *config.plan.stages)}
        self.stage: StageCounts | None = None
        self._config = config
        self._listeners = listeners
        self._fail = fail
        self.punctuality = Punctuality()
        self._stamp_source = stamp_source
        self._figures = progress.StageFigures(())
        self._recorder: Recorder | None = None

    def open(self, info: RunInfo, *, leads: bool = False) -> None:
        """Open the run folder; ``leads`` says that others send. Raises BadInputError if it cannot be had."""
        self._recorder = Recorder(self._config.folder, info, leads=leads)
        for record in self._early:
            self._recorder.append(record)
        self._early.clear()

    def begin_stage(self, name: str, now_ns: int) -> None:
        """A stage is opened; counts and figures that are shown are its own from here on."""
        self.stage = self.stages[name]
        self.stage.began_ns = now_ns
        self.metrics.gauges.stage = name
        self._figures = progress.StageFigures([tier.name for tier in self._config.plan.tiers])

    def started(self, stage: str, tier: str) -> None:
        """A request is under way."""
        self.metrics.started(tier)
        self.stages[stage].started += 1

    def gave_up(self, stage: str, tier: str, count: int) -> None:
        """Requests under way are waited for no longer; they will have no record."""
        self.metrics.gave_up(tier, count)
        self.stages[stage].given_up += count

    def add(self, record: RequestRecord, body_bytes: int) -> None:
        """Keep the record of a request that has ended, and count it everywhere."""
        if self._recorder is not None:
            self._recorder.append(record)
        else:
            self._early.append(record)
        self._count(record, body_bytes)

    def add_lines(self, lines: bytes, worker: str, body_bytes: Sequence[int]) -> list[RequestRecord]:
        """Keep what a worker made, as it came, and count it; gives the records.

        Raises msgspec.DecodeError if a line is no record.
        """
        records = decode_lines(lines)
        if self._recorder is not None and lines:
            try:
                self._recorder.append_lines(lines, worker)
            except RunFailedError as error:
                self._fail(str(error))
        for record, size in zip(records, body_bytes, strict=True):
            self._count(record, size)
        return records

    def flush(self) -> None:
        """Put on disk what was recorded; the run fails if that cannot be done."""
        if self._recorder is None:
            return
        try:
            self._recorder.flush()
        except RunFailedError as error:
            self._fail(str(error))

    def say_progress(self, *, ended: bool = False) -> None:
        """Say how the stage under way goes, or how it ended."""
        if self.stage is not None and (ended or not self._listeners.quiet):
            self._listeners.say(progress.line(self.stage, self._figures, ended=ended))

    def watch(self, health: Health | Fitness, now_ns: int) -> None:
        """Once a second: refresh the gauges, and show how the run stands if somebody looks."""
        if self.stage is None:
            return
        open_loop = not isinstance(self.stage.stage.arrivals, Closed)
        started_per_s, ended_per_s = self._figures.rates(now_ns, self.stage)
        gauges = self.metrics.gauges
        gauges.cpu_ratio, gauges.hub_late_s = health.cpu_ratio, health.hub_late_s
        gauges.worst_lag_s = self.tally.worst_lag_s
        gauges.offered_per_s = started_per_s if open_loop else 0.0
        if self._listeners.show is not None:
            self._listeners.show(
                progress.status(
                    self.stage,
                    self._figures,
                    self._config.plan,
                    now_ns=now_ns,
                    rates=(started_per_s, ended_per_s),
                    client=ClientStatus(
                        cpu_ratio=health.cpu_ratio,
                        worst_lag_s=self.tally.worst_lag_s,
                        hub_late_s=health.hub_late_s,
                        stamp_source=self._stamp_source,
                        coalesced_ratio=self._figures.coalesced_ratio,
                    ),
                )
            )

    def close(
        self,
        status: Literal["complete", "partial"],
        detail: str,
        *,
        ended_ns: int,
        client: ClientHealth,
        workers: Sequence[WorkerInfo] = (),
        prompt_counting: PromptCounting | None = None,
        prompt_cautions: Sequence[str] = (),
    ) -> str:
        """Write what is left and the final run.json; gives one line if that failed, else nothing."""
        if self._recorder is None:
            return ""
        return self._recorder.close(
            status,
            detail,
            ended_ns=ended_ns,
            client=client,
            workers=workers,
            prompt_counting=prompt_counting,
            prompt_cautions=prompt_cautions,
        )

    def save_metrics(self) -> str:
        """Leave the metrics page beside the records; gives one line if that failed, else nothing."""
        try:
            exposition.save(self._config.folder, self.metrics)
        except OSError as error:
            return f"{exposition.METRICS_FILE} was not written: {error.strerror}"
        return ""

    def _count(self, record: RequestRecord, body_bytes: int) -> None:
        """Count the record of a request that has ended everywhere."""
        self.metrics.ended(record)
        self._figures.add(record)
        counts = self.stages[record.stage]
        counts.ended += 1
        counts.failed += record.outcome != "ok"
        paced = not isinstance(counts.stage.arrivals, Closed)
        lag_s = derive.lag_s(record) if paced else None
        self.prompt_errors.add(record)
        if record.stage != CALIBRATION:  # which is not what was asked for
            self.tally.add(record, lag_s)
            self.punctuality.add(record, lag_s)
            if why := self._errors.add(record):
                self._conclude(why)
        if why := self.tally.hopeless():
            self._fail(why)
        self._listeners.seen(record, body_bytes)
