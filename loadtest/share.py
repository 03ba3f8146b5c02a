"""One process's share of a run that several processes send. Greenlets, but no Locust."""

import dataclasses
import os
from collections.abc import Callable

from loadtest import fitness
from loadtest.boot import boot_id
from loadtest.clock import RunClock
from loadtest.courier import Courier
from loadtest.crew_messages import (
    Batch,
    Begin,
    Done,
    Open,
    Over,
    Parcel,
    Ready,
    Refused,
    Report,
    Wish,
    unpack_config,
)
from loadtest.sending import Sending
from loadtest.stamps import Stamps
from loadtest.traffic import Traffic
from loadtest.watching import Watching
from loadtest.wire import WIRES


class Share:
    """Sends what it is given of each stage; what comes of it goes to ``post``.

    ``offset`` is how many ns this machine's monotonic clock is ahead of the master's, and the error; both are
    taken as 0 where the two are one clock. Raises BadInputError or RunFailedError, in one line, if this
    process cannot take part.
    """

    def __init__(
        self, order: Begin, stamps: Stamps, offset: tuple[int, int], post: Callable[[Report], None]
    ) -> None:
        self.run = order.run
        self.halted = False
        self._post, self._stamps = post, stamps
        one_machine = bool(order.boot_id) and order.boot_id == boot_id()
        self.one_clock = one_machine and abs(offset[0]) <= offset[1]
        self._offset = (0, 0) if self.one_clock else offset
        self._clock = RunClock(order.zero_monotonic_ns + self._offset[0])
        self._courier = Courier(self._post_parcel)
        config = unpack_config(order.config)
        self._sending = Sending(
            dataclasses.replace(config, key=WIRES[config.target.api].key(os.environ)),
            stamps,
            self._clock,
            started=self._courier.started,
            ended=self._courier.add,
            conclude=lambda why: post(Wish(order.run, why)),
            processes=order.of,
            counting=order.counting,
        )
        self._sending.routes.probe()
        self._watching = Watching(self._clock.now_ns)  # last: what is made before a run makes nobody late
        post(Ready(self.run, *self._offset, stamps.source, stamps.note))

    @property
    def traffic(self) -> Traffic:
        """What users work on."""
        return self._sending.traffic

    def send(self, order: Open) -> None:
        """Send a part of a stage; returns when it is over and all its records are posted."""
        traffic, next_index = self.traffic, order.first_index
        if not self.halted:
            traffic.open(
                number=order.stage,
                part=order.part,
                first_index=order.first_index,
                starts_ns=order.starts_ns,
            )
            traffic.wait()
            self._sending.scribe.drain()
            self._courier.flush()
            if traffic.fault is not None:
                why = f"a fault of the load test: {traffic.fault!r}"
                self._post(Refused(self.run, why, bad_input=False))
            next_index = next_index if traffic.stage is None else traffic.stage.next_index
        self._post(Over(self.run, order.stage, next_index))

    def conclude(self) -> None:
        """Let nothing more leave, nor what is ordered and not opened yet."""
        self.halted = True
        self.traffic.conclude()

    def stop(self) -> None:
        """Let nothing more leave and cancel what is in flight."""
        self.halted = True
        self.traffic.stop()

    def tick(self) -> None:
        """Once a second: look after the clock and hand over what there is."""
        self._watching.tick()
        self._courier.flush()
        self._clock.recheck()

    def end(self, compare_clocks: Callable[[], tuple[int, int] | None], *, left: str = "") -> None:
        """Stop, post what is left, say goodbye; ``left`` says why, if that is before the run's end."""
        self.stop()
        self._sending.drain()
        self._courier.flush()
        self._post(
            Done(
                self.run,
                started=self._courier.begun,
                recorded=self._courier.recorded,
                cpu_s=self._watching.cpu_s,
                connections_opened=self._sending.routes.connections_opened,
                stepped_ns=self._clock.stepped_ns,
                offset=(0, 0) if self.one_clock else compare_clocks(),
                left=left,
                prompt_cautions=self._sending.source.cautions,
            )
        )
        self._watching.close()
        self._sending.close()

    def _post_parcel(self, parcel: Parcel) -> None:
        watching = self._watching
        self._post(Batch(self.run, parcel, watching.cpu_s, fitness.of(watching.health)))
