"""One run of a plan, from reaching the server to the last line of run.json. Greenlets, but no Locust.

Rules for whoever edits this file:

1. What was recorded is on disk within about a second.
2. ``finish`` is called by whoever ends the run first; it happens once, and later callers wait for it.
3. A request that failed is data; only what keeps the run from doing its job is a failure of the run.
"""

from typing import TYPE_CHECKING

import gevent
from gevent import subprocess
from gevent.event import Event

from loadtest import endpoint, recorder
from loadtest.client_health import client_health
from loadtest.clock import RunClock
from loadtest.crew import Crew
from loadtest.environment import environment, tierscope_version
from loadtest.ledger import Ledger, Listeners
from loadtest.muster import Muster
from loadtest.records import SCHEMA_VERSION, ClientHealth, PromptCounting, RunInfo
from loadtest.run_config import RunConfig
from loadtest.sending import Sending
from loadtest.server_watch import ServerWatch
from loadtest.stamps import Stamps
from loadtest.watching import Watching

if TYPE_CHECKING:
    from loadtest.traffic import Traffic

_TICK_S = 1.0
_SAY_EVERY_TICKS = 5


class PlanRun:
    """A run, driven by ``begin``, then ``advance`` and ``open`` for each stage, then ``finish``.

    ``failure`` says what kept the run from doing its job, ``interrupted`` who ended it early, ``concluded``
    why it ended in order before its stages did, ``lost`` which workers were lost, and ``complete``, after
    ``finish``, whether it did what it was to do. With a ``muster`` its workers send, else this process's
    users do, whose work is ``traffic.turn``.
    """

    def __init__(
        self, config: RunConfig, stamps: Stamps, listeners: Listeners, muster: Muster | None = None
    ) -> None:
        self.config = config
        self.failure = self.interrupted = self.concluded = self.lost = ""
        self.complete = False
        self.ledger = Ledger(config, stamps.source, listeners, fail=self.fail, conclude=self.conclude)
        self._say, self._stamps = listeners.say, stamps
        self._clock = RunClock()
        self._sending = Sending(
            config,
            stamps,
            self._clock,
            started=self.ledger.started,
            ended=self.ledger.add,
            conclude=self.conclude,
        )
        self._crew = None
        if muster is not None:
            self._crew = Crew(
                muster, config, self.ledger, self._clock, say=listeners.say, conclude_run=self.conclude
            )
        self.traffic: Traffic | Crew = self._crew or self._sending.traffic
        self._opened = 0
        self._finishing = self._finishing_files = False
        self._finished = Event()

    def begin(self) -> None:
        """Reach the server, open the run folder, start recording.

        Raises RunFailedError if nothing answers, BadInputError if the folder cannot be had.
        """
        detours = self._sending.routes.detours
        for detour in detours:
            self._say(detour)
        self._sending.routes.probe()
        self._calibration = self._sending.calibrate()
        if self._crew is not None and not self._calibration.failure:
            self._crew.begin(self._calibration.counting, self._sending.traffic.next_index)
        self.ledger.open(
            RunInfo(
                schema_version=SCHEMA_VERSION,
                run_id=self.config.run_id,
                tierscope_version=tierscope_version(),
                target=self.config.target,
                plan=self.config.plan,
                started_unix_s=self._clock.started_unix_s,
                environment=environment()
                | {"monotonic_zero_ns": str(self._clock.zero_ns)}
                | ({"proxies": "; ".join(detours)} if detours else {}),
            ),
            leads=self._crew is not None,
        )
        self._watching = Watching(self._clock.now_ns)
        self._server_watch = self._watch_server() if self.config.scrape else None
        self._ticker = gevent.spawn(self._tick)
        if self._calibration.note and not self.interrupted:
            self._say(self._calibration.note)
        if self._calibration.failure:
            self.fail(self._calibration.failure)

    def advance(self) -> int | None:
        """Wait for the stage under way to end; give how many users the next needs, None after the last."""
        self.traffic.wait()
        self._sending.scribe.drain()
        if (fault := self._sending.traffic.fault) is not None:
            self.fail(f"a fault of the load test: {fault!r}")
        if not self.interrupted and not self.failure:
            self.ledger.say_progress(ended=True)
        return self.traffic.users_needed()

    def open(self) -> None:
        """Begin the next stage: its users are there."""
        self.ledger.begin_stage(self.config.plan.stages[self._opened].name, self._clock.now_ns())
        self._opened += 1
        self.traffic.open()

    def conclude(self, why: str) -> None:
        """Enough was asked: send nothing more, wait for what is in flight; the run is complete."""
        if not self.concluded:
            self._say(f"ending early: {why}")
        self.concluded = self.concluded or why
        self.traffic.conclude()
        self._sending.traffic.conclude()

    def interrupt(self, why: str) -> None:
        """Send nothing more, cancel what is in flight; ``advance`` then says that the run is over."""
        self.interrupted = self.interrupted or why
        self.traffic.stop()
        self._sending.traffic.stop()

    def fail(self, why: str) -> None:
        """The run cannot do its job: end it like ``interrupt``."""
        self.failure = self.failure or why
        self.traffic.stop()
        self._sending.traffic.stop()

    def finish(self) -> bool:
        """End the run: nothing in flight, everything on disk, run.json final. False if it had been ended."""
        if self._finishing:
            self._finished.wait()
            return False
        self._finishing = True
        complete = self.traffic.done and not self.interrupted
        self.traffic.stop()
        self._sending.drain()
        if self._crew is not None:
            self._crew.drain()
        if self._sending.scribe.fault is not None:
            self.failure = self.failure or f"a record could not be made: {self._sending.scribe.fault!r}"
        self._ticker.kill()
        self._watching.close()
        self._look()
        if self._server_watch is not None:
            self._server_watch.close()
        self.ledger.flush()
        self.lost = self._crew.lost if self._crew else ""
        self.complete = complete and not self.failure and not self.lost
        self.failure = self.failure or self.ledger.tally.fruitless()
        if self.complete and not self.ledger.tally.ended:
            self.failure = f"no request was made{self.concluded and ': '}{self.concluded}"
        self._finishing_files = True
        trouble = self.ledger.close(
            "complete" if self.complete else "partial",
            self.failure or self.interrupted or self.lost or self.concluded,
            ended_ns=self._clock.now_ns(),
            client=self._health(),
            workers=self._crew.infos if self._crew else (),
            prompt_counting=self._prompt_counting(),
            prompt_cautions=self._prompt_cautions(),
        )
        self.failure = self.failure or trouble
        self._sending.close()
        self._leave_other_forms()
        self._finished.set()
        return True

    def abandon(self) -> None:
        """End at once: wait for nothing, write down what is here; whoever calls ends the process next."""
        if self._finishing_files:
            return
        self.ledger.close(
            "partial",
            "stopped at once",
            ended_ns=self._clock.now_ns(),
            client=self._health(),
            workers=self._crew.infos if self._crew else (),
            prompt_counting=self._prompt_counting(),
        )

    def _look(self) -> None:
        """Take in how this process fares, and show how the run stands."""
        own = self._watching.tick()
        self.ledger.watch(self._crew.fitness if self._crew else own, self._clock.now_ns())

    def _health(self) -> ClientHealth:
        return client_health(
            self.ledger, self._watching, self._clock, self._stamps, self._sending, self._crew
        )

    def _prompt_counting(self) -> PromptCounting | None:
        found, counting = self._calibration, self._sending.source.counting
        if found.source is None:
            return None
        return PromptCounting(
            tokens_per_word=counting.tokens_per_word,
            overhead_tokens=counting.overhead_tokens,
            source=found.source,
            note=found.note,
            achieved_error_p50_ratio=self.ledger.prompt_errors.median_ratio,
            achieved_error_max_ratio=self.ledger.prompt_errors.worst_ratio,
        )

    def _prompt_cautions(self) -> list[str]:
        """What to know of the prompts, each once, whichever process noticed it."""
        said = list(self._sending.source.cautions)
        for words in self._crew.last_words if self._crew else ():
            said.extend(words.prompt_cautions)
        return list(dict.fromkeys(said))

    def _watch_server(self) -> ServerWatch:
        """Have the server's own metrics recorded beside; its key goes to its own origin only."""
        config = self.config
        origin = endpoint.parse(config.target.url, "").origin
        own = all(page.startswith(f"{origin}/") for page in config.scrape)
        return ServerWatch(
            config.scrape,
            config.folder,
            zero_ns=self._clock.zero_ns,
            say=self._say,
            is_over=lambda: bool(self.interrupted),
            key_of=config.target.api if own else "",
            insecure=config.insecure,
            ca_file=config.ca_file,
        )

    def _leave_other_forms(self) -> None:
        """Leave the metrics page and the columns beside the records; the run does not depend on them."""
        troubles = [recorder.pack(self.config.folder, subprocess.run), self.ledger.save_metrics()]
        if not self.failure:  # which has its own line, and most likely the same reason
            for said in filter(None, [*self._prompt_cautions(), *troubles]):
                self._say(said)

    def _tick(self) -> None:
        """Once a second: flush, look after the clock, refresh gauges; now and then say how it goes."""
        ticks = 0
        while True:
            gevent.sleep(_TICK_S)
            self.ledger.flush()
            self._clock.recheck()
            self._look()
            ticks += 1
            if ticks % _SAY_EVERY_TICKS == 0:
                self.ledger.say_progress()
