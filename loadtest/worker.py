"""A worker's side of a run over several processes: it sends its share and hands the records to the master.

Rules for whoever edits this file:

1. ``receive`` never blocks: it runs where the answers to heartbeats are read.
2. All records of a stage are posted before its ``Over``, all of a run before its ``Done``.
3. A worker that hears no order does nothing.
"""

import os
import time
import traceback
from collections.abc import Callable

import gevent
from gevent.event import Event
from gevent.queue import Empty, Queue

from loadtest.boot import boot_id
from loadtest.clock_offset import Answer, offset
from loadtest.crew_messages import (
    Begin,
    Finish,
    Hello,
    Open,
    Order,
    Ping,
    Pong,
    Refused,
    Report,
    Stop,
)
from loadtest.environment import tierscope_version
from loadtest.share import Share
from loadtest.stamps import Stamps
from loadtest.traffic import Traffic
from tierscope.errors import BadInputError, RunFailedError

_TICK_S = 1.0
_QUESTIONS = 8
_ANSWER_S = 2.0


class Worker:
    """Follows a master's orders; ``post`` brings it what this process has to say."""

    def __init__(self, post: Callable[[Report], None], stamps: Stamps) -> None:
        self._post, self._stamps = post, stamps
        self._share: Share | None = None
        self._orders: Queue[Begin | Open | Finish] = Queue()
        self._pongs: Queue[Pong] = Queue()
        self._left = False
        self._idle = Event()
        """Whether no share is being ended just now."""
        self._idle.set()
        self._greenlets = [gevent.spawn(self._follow), gevent.spawn(self._tick)]

    @property
    def traffic(self) -> Traffic | None:
        """What users work on while a run is under way."""
        return None if self._share is None else self._share.traffic

    def receive(self, order: Order) -> None:
        """Take in what the master says."""
        share = self._share
        if isinstance(order, Pong):
            self._pongs.put(order)
        elif isinstance(order, Begin | Open | Finish):
            self._orders.put(order)
        elif share is not None and share.run == order.run:
            if isinstance(order, Stop):
                share.stop()
            else:
                share.conclude()

    def wind_up(self, why: str) -> None:
        """End this process's share of the run under way, if it has one, and wait until that is done."""
        if self._share is not None:
            self._end(self._share, left=why)
        self._idle.wait()

    def fault(self, fault: Exception) -> None:
        """What users do went wrong, which is our own doing: this process sends no more, and says so."""
        traceback.print_exception(fault)
        share = self._share
        if share is not None:
            share.stop()
            self._post(Refused(share.run, f"a fault of the load test: {fault!r}", bad_input=False))

    def leave(self, why: str) -> None:
        """Wind up, wait until the master knows (2 s at most), and do no more."""
        if self._left:
            return
        self._left = True
        self.wind_up(why)
        self._ask()
        gevent.killall(self._greenlets, block=False)

    def _follow(self) -> None:
        """Do what is ordered, one after the other."""
        while True:
            order = self._orders.get()
            try:
                self._do(order)
            except (BadInputError, RunFailedError) as error:
                self._post(Refused(order.run, str(error), isinstance(error, BadInputError)))
            except Exception as fault:
                # The master must not wait for somebody who will not answer; the hub prints the traceback.
                self._post(Refused(order.run, f"a fault of the load test: {fault!r}", bad_input=False))
                raise

    def _do(self, order: Begin | Open | Finish) -> None:
        if isinstance(order, Begin):
            if self._share is not None:
                self._end(self._share)  # its master forgot it
            compared = self._compare_clocks()
            if compared is None:
                raise RunFailedError(f"the master gave no answer within {_ANSWER_S:g} s")
            self._share = Share(order, self._stamps, compared, self._post)
        elif self._share is not None and self._share.run == order.run:
            if isinstance(order, Open):
                self._share.send(order)
            else:
                self._end(self._share)

    def _end(self, share: Share, *, left: str = "") -> None:
        """End a share; whoever is first does it."""
        if self._share is not share:
            return
        self._share = None
        self._idle.clear()
        try:
            share.end(self._compare_clocks, left=left)
        finally:
            self._idle.set()

    def _tick(self) -> None:
        """Once a second: show that this process lives, and hand over what there is."""
        while True:
            if self._share is None:
                self._post(Hello(tierscope_version(), os.getpid(), boot_id()))
            else:
                self._share.tick()
            gevent.sleep(_TICK_S)

    def _compare_clocks(self) -> tuple[int, int] | None:
        """How many ns our monotonic clock is ahead of the master's, and the error; None if unknown."""
        answers: list[Answer] = []
        while len(answers) < _QUESTIONS:
            answer = self._ask()
            if answer is None:
                break
            answers.append(answer)
        return offset(answers) if answers else None

    def _ask(self) -> Answer | None:
        """Ask the master for the time; None if it does not answer."""
        asked_ns = time.monotonic_ns()
        self._post(Ping(asked_ns))
        deadline_s = time.monotonic() + _ANSWER_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                pong = self._pongs.get(timeout=left_s)
            except Empty:
                break
            if pong.sent_monotonic_ns == asked_ns:  # else it answers an earlier question
                return Answer(asked_ns, pong.master_monotonic_ns, time.monotonic_ns())
        return None
