"""A worker and whom it follows, without Locust between them: orders in, reports out, on another clock."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import gevent
import pytest

from loadtest import plan
from loadtest.boot import boot_id
from loadtest.crew_messages import (
    Batch,
    Begin,
    Done,
    Finish,
    Hello,
    Open,
    Order,
    Over,
    Ping,
    Pong,
    Ready,
    Refused,
    Report,
    Stop,
    encode,
    pack_config,
)
from loadtest.environment import tierscope_version
from loadtest.muster import Muster
from loadtest.part import Part
from loadtest.records import RequestRecord, decode_lines
from loadtest.run_config import RunConfig
from loadtest.stamps import Stamps
from loadtest.worker import Worker
from tests.loadtest.locust_runs import free_port
from tierscope.errors import BadInputError, RunFailedError

AHEAD_NS = 3_600_000_000_000
"""The worker's machine was started an hour before the master's."""
TEXT = """
name = "p"
[workload]
prompt_tokens = [8]
output_tokens = 3
tokens_per_word = 1
[[stages]]
name = "s"
requests = 12
arrivals = { kind = "closed", streams = 3 }
"""
AnyReport = TypeVar("AnyReport", bound=Report)


class Master:
    """Gives orders and keeps what comes back."""

    def __init__(self, url: str, stamping: Stamps, *, elsewhere: bool) -> None:
        self.reports: list[Report] = []
        self.zero_ns = time.monotonic_ns() - (AHEAD_NS if elsewhere else 0)
        self._ahead_ns = AHEAD_NS if elsewhere else 0
        self._boot_id = "another machine" if elsewhere else boot_id()
        self._config = RunConfig(
            plan=plan.parse(TEXT, where="test"),
            target=plan.Target(url=url, model="m"),
            folder=Path(),
            run_id="r",
        )
        self.worker = Worker(self._take, stamping)

    def order(self, order: Order) -> None:
        self.worker.receive(order)

    def begin(self) -> None:
        self.order(Begin("r", pack_config(self._config), self._boot_id, self.zero_ns, 0, 2, None))

    def now_ns(self) -> int:
        """Since the run's start, on the master's clock."""
        return time.monotonic_ns() - self._ahead_ns - self.zero_ns

    def wait_for(self, kind: type[AnyReport]) -> AnyReport:
        with gevent.Timeout(20):
            while True:
                for report in self.reports:
                    if isinstance(report, kind):
                        return report
                gevent.sleep(0.01)

    def records(self) -> list[RequestRecord]:
        batches = [report for report in self.reports if isinstance(report, Batch)]
        return [record for batch in batches for record in decode_lines(batch.parcel.lines)]

    def users(self, count: int) -> list[gevent.Greenlet]:
        def work() -> None:
            while True:
                if self.worker.traffic is None:
                    gevent.sleep(0.01)
                else:
                    self.worker.traffic.turn()

        return [gevent.spawn(work) for _ in range(count)]

    def _take(self, report: Report) -> None:
        self.reports.append(report)
        if isinstance(report, Ping):
            gevent.spawn(self.order, Pong(report.sent_monotonic_ns, time.monotonic_ns() - self._ahead_ns))


Make = Callable[..., Master]


@pytest.fixture
def make(server: Any, stamping: Stamps) -> Iterator[Make]:
    made: list[Master] = []
    users: list[gevent.Greenlet] = []

    def begin(*, elsewhere: bool = False, url: str = "", streams: int = 2) -> Master:
        made.append(Master(url or server.url, stamping, elsewhere=elsewhere))
        users.extend(made[-1].users(streams))
        return made[-1]

    yield begin
    gevent.killall(users)
    for master in made:
        master.worker.leave("the test is over")


def test_a_worker_says_hello_until_it_is_needed(make: Make) -> None:
    assert make().wait_for(Hello).version == tierscope_version()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one machine", "another machine"])
def test_records_lie_on_the_masters_clock_wherever_the_worker_is(make: Make, elsewhere: bool) -> None:
    master = make(elsewhere=elsewhere)
    master.begin()
    ready = master.wait_for(Ready)
    assert abs(ready.offset_ns - (AHEAD_NS if elsewhere else 0)) <= ready.offset_error_ns
    assert (ready.offset_error_ns == 0) is not elsewhere
    starts_ns = master.now_ns() + 50_000_000
    master.order(Open("r", 0, Part(0, 3, 2), 100, starts_ns))
    over = master.wait_for(Over)
    records = master.records()
    assert [record.index - 100 for record in sorted(records, key=lambda r: r.index)] == [
        *(0, 1, 3, 4, 6, 7, 9, 10)
    ]
    assert over.next_index == 111
    slack_ns = ready.offset_error_ns
    for record in records:
        assert record.outcome == "ok"
        assert starts_ns - slack_ns <= record.scheduled_ns <= record.ended_ns <= master.now_ns() + slack_ns
        assert record.event_ns == sorted(record.event_ns)
    master.order(Finish("r"))
    done = master.wait_for(Done)
    assert (done.started, done.recorded, done.left) == (8, 8, "")
    assert done.offset is not None
    assert abs(done.offset[0] - ready.offset_ns) <= done.offset[1] + ready.offset_error_ns


def test_a_stage_that_was_ordered_and_then_stopped_sends_nothing(make: Make, server: Any) -> None:
    master = make()
    master.begin()
    master.wait_for(Ready)
    master.order(Open("r", 0, Part(0, 2), 5, master.now_ns()))
    master.order(Stop("r"))
    assert master.wait_for(Over).next_index == 5
    master.order(Finish("r"))
    assert master.wait_for(Done).started == 0
    assert server.requests == []


def test_a_worker_that_leaves_brings_what_it_has_and_says_why(make: Make, server: Any) -> None:
    master = make()
    master.begin()
    master.wait_for(Ready)
    master.order(Open("r", 0, Part(), 0, master.now_ns()))
    with gevent.Timeout(20):
        while not server.requests:
            gevent.sleep(0.01)
    master.worker.leave("enough")
    done = master.wait_for(Done)
    assert done.left == "enough"
    assert done.started == done.recorded == len(master.records()) >= 1


def test_a_worker_that_does_not_reach_the_server_refuses_in_one_line(make: Make) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    master = make(url=url)
    master.begin()
    refused = master.wait_for(Refused)
    assert (refused.why, refused.bad_input) == (f"cannot connect to {url}: Connection refused", False)


def test_orders_of_another_run_are_not_followed(make: Make) -> None:
    master = make()
    master.begin()
    master.wait_for(Ready)
    for order in (Stop("other"), Finish("other"), Open("other", 0, Part(), 0, 0)):
        master.order(order)
    master.order(Open("r", 0, Part(0, 12), 0, master.now_ns()))
    master.wait_for(Over)
    assert len(master.records()) == 1
    assert not [report for report in master.reports if isinstance(report, Done)]


# The master's list


class Runner:
    """As much of Locust's master as a muster looks at."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self._users_dispatcher = None
        self._hear: Any = None

    def register_message(self, _: str, listener: Any) -> None:
        self._hear = listener

    def hear(self, client: str, report: Report | bytes) -> None:
        self.clients.setdefault(client, object())
        data = report if isinstance(report, bytes) else encode(report)
        message = type("Message", (), {"node_id": client, "data": data})
        self._hear(environment=None, msg=message)


def test_a_worker_of_another_version_is_refused_by_name() -> None:
    runner = Runner()
    muster = Muster(runner, 1, 1.0)
    runner.hear("h_1", Hello("0.0.0", 1, ""))
    with pytest.raises(BadInputError, match=r"worker h_1: has tierscope 0\.0\.0; expected "):
        muster.gather(lambda: False)


def test_a_worker_that_speaks_another_language_is_of_another_version() -> None:
    runner = Runner()
    muster = Muster(runner, 1, 20.0)
    runner.hear("h_1", b"\x81\xa4type\xa5Howdy")
    with pytest.raises(BadInputError, match="worker h_1: has tierscope of another version; expected "):
        muster.gather(lambda: False)


def test_workers_that_do_not_come_or_die_first_end_the_waiting_in_one_line() -> None:
    runner = Runner()
    muster = Muster(runner, 2, 0.1)
    runner.hear("h_1", Hello(tierscope_version(), 1, ""))
    with pytest.raises(RunFailedError, match=r"1 of 2 workers came within 0\.1 s"):
        muster.gather(lambda: False)
    muster = Muster(Runner(), 2, 60.0)
    muster.start(1, ["-c", "raise SystemExit(5)"])
    with pytest.raises(RunFailedError, match=r"worker process [0-9]+ ended with code 5 before the run began"):
        muster.gather(lambda: False)


def test_a_worker_that_locust_no_longer_knows_has_left() -> None:
    runner = Runner()
    muster = Muster(runner, 1, 1.0)
    runner.hear("h_1", Hello(tierscope_version(), 1, ""))
    assert muster.gather(lambda: False) == ["h_1"]
    assert muster.trouble("h_1") == ""
    muster.drop("h_1")
    assert muster.trouble("h_1") == "it left"
