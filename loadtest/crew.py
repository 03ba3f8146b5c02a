"""The workers of one run, led by the master: they send, it says what and when, and keeps the ledger.

Has the verbs of ``Traffic``, so that a run is led alike whether this process sends or others do. Rules for
whoever edits this file:

1. Each position of a stage belongs to one worker, which its number of users decides; what a lost worker has
   not sent of a stage is sent by nobody.
2. A worker is waited for until it answers or is lost; every wait ends.
3. Nothing a worker started is forgotten: it has a record, or the worker is named.
"""

import math
import time
from collections.abc import Callable

import gevent
from gevent.event import Event

from loadtest import fitness
from loadtest.boot import boot_id
from loadtest.clock import RunClock
from loadtest.crew_messages import (
    Batch,
    Begin,
    Conclude,
    Done,
    Finish,
    Open,
    Order,
    Over,
    Ready,
    Refused,
    Report,
    Stop,
    Wish,
    pack_config,
)
from loadtest.fitness import Fitness
from loadtest.ledger import Ledger
from loadtest.member import Member
from loadtest.muster import Muster
from loadtest.part import split
from loadtest.plan import Closed
from loadtest.records import WorkerInfo
from loadtest.run_config import RunConfig
from loadtest.workload import Counting
from tierscope.errors import BadInputError, RunFailedError

_CHECK_S = 0.1
_USERS_S = 10.0
_DONE_S = 60.0
_AHEAD_NS = 100_000_000
"""How long before a stage's start the workers hear of it: time to make what leaves first."""
_UNSEEN_INDEXES = 100_000
"""More requests than a worker sends between its last word and its loss; their indexes are not given again."""


class Crew:
    """Leads the workers of one run; ``conclude_run`` is told why one of them may send nothing more."""

    def __init__(
        self,
        muster: Muster,
        config: RunConfig,
        ledger: Ledger,
        clock: RunClock,
        *,
        say: Callable[[str], None],
        conclude_run: Callable[[str], None],
    ) -> None:
        self._muster, self._config, self._ledger, self._clock = muster, config, ledger, clock
        self._say, self._conclude_run = say, conclude_run
        self._members: dict[str, Member] = {}
        self._opened = self._next_index = 0
        self._opening: gevent.Greenlet | None = None
        self._stopped = False
        self._changed = Event()

    def begin(self, counting: Counting | None, first_index: int = 0) -> None:
        """Gather the workers and have them reach the server; indexes are given from ``first_index`` on.

        Raises RunFailedError or BadInputError, in one line that names the worker, if one of them cannot.
        """
        self._next_index = first_index
        clients = self._muster.gather(unless=lambda: self._stopped)
        if self._stopped:
            raise RunFailedError("stopped while its workers were gathered")
        self._members = {
            client: Member(str(number), client, self._muster.pid(client))
            for number, client in enumerate(clients)
        }
        self._muster.listener = self._receive
        config = pack_config(self._config)
        for number, member in enumerate(self._members.values()):
            self._tell(
                member,
                Begin(
                    self._config.run_id,
                    config,
                    boot_id(),
                    self._clock.zero_ns,
                    number,
                    len(clients),
                    counting,
                ),
            )
        self._wait_until(
            lambda: self._stopped or all(member.ready or member.refused for member in self._living())
        )
        for member in self._members.values():
            if member.refused:
                kind = BadInputError if member.refused.bad_input else RunFailedError
                raise kind(f"{_who(member)}: {member.refused.why}")
            if member.lost:
                raise RunFailedError(f"{_who(member)} was lost before the run began: {member.lost}")

    @property
    def done(self) -> bool:
        """Whether every stage has been opened, or none is to be opened any more."""
        return self._opened == len(self._config.plan.stages)

    def users_needed(self) -> int | None:
        """How many users the next stage needs, on all workers; None if there is none, or all was stopped."""
        living = len(self._living())
        if self.done or self._stopped or not living:
            return None
        arrivals = self._config.plan.stages[self._opened].arrivals
        return arrivals.streams if isinstance(arrivals, Closed) else living

    def open(self) -> None:
        """Begin the next stage: its users are there. Does not block."""
        self._opening = gevent.spawn(self._open, self._opened)
        self._opened += 1

    def wait(self) -> None:
        """Block until the stage under way is over on every worker that is not lost."""
        if self._opening is not None:
            self._opening.join()
            self._opening = None
        self._wait_until(lambda: not any(member.sending for member in self._living()))

    def conclude(self) -> None:
        """Let nothing more leave and open no stage; what is in flight goes on, and ``wait`` waits for it."""
        self._opened = len(self._config.plan.stages)
        self._tell_all(Conclude(self._config.run_id))

    def stop(self) -> None:
        """Let nothing more leave and cancel what is in flight."""
        if not self._stopped:
            self._stopped = True
            self._tell_all(Stop(self._config.run_id))
        self._changed.set()

    def drain(self) -> None:
        """After ``stop``: block until every worker has brought all it has, or is lost (at most 60 s)."""
        self._tell_all(Finish(self._config.run_id))
        self._wait_until(lambda: all(member.done for member in self._living()), at_most_s=_DONE_S)
        for member in self._living():
            if member.done is None:
                self._lose(member, f"it did not end within {_DONE_S:g} s")
        self._muster.listener = None

    # What is known of the workers

    @property
    def lost(self) -> str:
        """Who was lost, or did not bring all, in a sentence; empty if nobody."""
        return "; ".join(
            f"{_who(member)} was lost: {info.lost}"
            for member in self._members.values()
            if (info := member.info()).lost
        )

    @property
    def infos(self) -> list[WorkerInfo]:
        """What run.json says of each."""
        return [member.info() for member in self._members.values()]

    @property
    def fitness(self) -> Fitness:
        """How the one that fares worst fares."""
        return fitness.worst(member.fitness for member in self._members.values())

    @property
    def last_words(self) -> list[Done]:
        """The last words of those that ended in order."""
        return [member.done for member in self._members.values() if member.done]

    @property
    def first_words(self) -> list[Ready]:
        """How each began."""
        return [member.ready for member in self._members.values() if member.ready]

    def _living(self) -> list[Member]:
        return [member for member in self._members.values() if not member.lost]

    # Opening a stage

    def _open(self, number: int) -> None:
        """Split a stage by users and have all begin at one instant."""
        arrivals = self._config.plan.stages[number].arrivals
        if isinstance(arrivals, Closed):
            members = self._with_users(arrivals.streams)
            weights = [self._muster.users(member.client) for member in members]
        else:  # one keeps the instants on each, however many users it has
            members = self._with_users(len(self._living()))
            weights = [1 for _ in members]
        starts_ns = self._clock.now_ns() + _AHEAD_NS
        for member, part in zip(members, split(weights), strict=True):
            if part is not None and not self._stopped:
                member.sending = True
                self._tell(member, Open(self._config.run_id, number, part, self._next_index, starts_ns))

    def _with_users(self, wanted: int) -> list[Member]:
        """Wait (10 s at most) until Locust's users are where they belong; those workers that have some."""
        users = self._muster.users
        self._wait_until(
            lambda: self._stopped or sum(users(member.client) for member in self._living()) == wanted,
            at_most_s=_USERS_S,
        )
        return [member for member in self._living() if users(member.client)]

    # Talking and listening

    def _tell(self, member: Member, order: Order) -> None:
        self._muster.post(order, member.client)

    def _tell_all(self, order: Order) -> None:
        for member in self._living():
            self._tell(member, order)

    def _receive(self, client: str, report: Report) -> None:
        """Take in what a worker says. Must not block."""
        member = self._members.get(client)
        if member is None or member.lost or getattr(report, "run", None) != self._config.run_id:
            return
        if isinstance(report, Batch):
            self._enter(member, report)
        elif isinstance(report, Ready):
            member.ready = report
        elif isinstance(report, Refused):
            self._take_refusal(member, report)
        elif isinstance(report, Over):
            member.sending = False
            self._next_index = max(self._next_index, report.next_index)
        elif isinstance(report, Wish):
            self._conclude_run(report.why)
        elif isinstance(report, Done):
            member.done = report
            if report.left:
                self._lose(member, report.left)
        self._changed.set()

    def _take_refusal(self, member: Member, refusal: Refused) -> None:
        if member.ready is None:
            member.refused = refusal
        else:
            self._lose(member, refusal.why)

    def _enter(self, member: Member, batch: Batch) -> None:
        """Put what a worker brought into the ledger."""
        member.take(batch)
        parcel = batch.parcel
        for stage, tier in parcel.started:
            self._ledger.started(stage, tier)
        for record in self._ledger.add_lines(parcel.lines, member.name, parcel.body_bytes):
            member.ended(record.stage, record.requested_tier)
            self._next_index = max(self._next_index, record.index + 1)

    def _wait_until(self, is_so: Callable[[], bool], *, at_most_s: float = math.inf) -> None:
        """Block until something is so, looking for lost workers meanwhile."""
        deadline_s = time.monotonic() + at_most_s
        while not is_so() and time.monotonic() < deadline_s:
            self._changed.clear()
            self._changed.wait(_CHECK_S)
            for member in self._living():
                if member.done is None and (why := self._muster.trouble(member.client)):
                    self._lose(member, why)

    def _lose(self, member: Member, why: str) -> None:
        """Go on without a worker; its requests in flight are under way no more."""
        member.lost = why
        member.sending = False
        for (stage, tier), count in member.in_flight.items():
            self._ledger.gave_up(stage, tier, count)
        if member.done is None:
            self._next_index += _UNSEEN_INDEXES
        self._muster.drop(member.client)
        host = member.client.rpartition("_")[0]  # for people, not for run.json
        self._say(f"{_who(member)} on {host} was lost: {why}; the run goes on without it, and is partial")


def _who(member: Member) -> str:
    return f"worker {member.name} (process {member.pid})"
